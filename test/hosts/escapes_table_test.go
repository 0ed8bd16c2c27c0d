package hosts

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// What a run can leave behind, and what becomes of it: the table that TestEscapes holds against real
// hosts and that docs/escapes.md is made from.

// grounds are the boundaries that every escape is tried in, with the account that has them.
var grounds = []ground{
	{kind: longstop.BoundaryTree, account: "deploy"},
	{kind: longstop.BoundaryCgroup, account: "root"},
	{kind: longstop.BoundarySystemd, account: "root", flags: []string{"--owner", "systemd"}, refuses: longstop.LeftoverRelease},
}

type ground struct {
	kind    longstop.BoundaryKind
	account string
	flags   []string          // of longstop run
	refuses longstop.Leftover // it cannot do that, and does not begin
}

var leftovers = []longstop.Leftover{longstop.LeftoverWait, longstop.LeftoverKill, longstop.LeftoverRelease}

// fate is what becomes of what a run leaves behind.
type fate int

const (
	caught   fate = iota // known for the run's, and ended with it
	survives             // known for the run's and named; this user may not end it
	unseen               // another owner's by now: neither named nor ended
	refused              // nothing was started
)

// escape is one way to leave a process behind. Its script runs in a folder of its own, $ESCAPE, which all
// that it leaves can be told by, and ends once that is there; it may call `until_there FILE`.
type escape struct {
	name   string
	does   string // in the words of the table
	script string
	tree   fate // of a plain user's, in his tree
	why    string
	moves  bool // it is another process at every look
	fate   fate // everywhere else
}

func (e escape) in(g ground, l longstop.Leftover) fate {
	switch {
	case g.refuses == l:
		return refused
	case g.kind == longstop.BoundaryTree:
		return max(e.tree, e.fate)
	}
	return e.fate
}

var escapes = []escape{
	{name: "nginx", does: "a master in a session of its own, workers as another user where it is root", script: `
cat >conf <<END
pid $ESCAPE/pid; worker_processes 2; events {}
http { access_log off; server { listen unix:$ESCAPE/socket; }
  client_body_temp_path $ESCAPE/b; proxy_temp_path $ESCAPE/p; fastcgi_temp_path $ESCAPE/f; uwsgi_temp_path $ESCAPE/u; scgi_temp_path $ESCAPE/s; }
END
nginx -e $ESCAPE/log -c $ESCAPE/conf; until_there pid`},
	{name: "PostgreSQL", does: "pg_ctl start: a server and its helpers, as another user where it is root", script: `
as() { test -z "$root" || set -- setpriv --reuid=deploy --regid=deploy --clear-groups "$@"; "$@"; }
chmod 777 .; cp -a ` + escapeDir + `/template db
as $(echo /usr/lib/postgresql/*/bin)/pg_ctl -D db -l log -s -w -o "-k $ESCAPE -c listen_addresses= -c fsync=off" start`},
	{name: "Redis", does: "redis-server --daemonize yes", script: `
redis-server --daemonize yes --port 0 --unixsocket $ESCAPE/socket --dir $ESCAPE --pidfile $ESCAPE/pid --save "" >log; until_there pid`},
	{name: "tmux", does: "tmux new -d: a server with a terminal, and what runs in that", script: `
tmux -S $ESCAPE/socket -f /dev/null new -d 'touch up; exec sleep 600'; until_there up`},
	{name: "screen", does: "screen -dm: the same, its group changed", script: `
mkdir -m 700 sockets; SCREENDIR=$ESCAPE/sockets screen -c /dev/null -dmS x sh -c 'touch up; exec sleep 600'; until_there up`},
	{name: "ssh", does: "ControlPersist: a connection kept open in the background", script: `
ssh -F none -i ` + escapeDir + `/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=error \
  -o ControlMaster=auto -o ControlPath=$ESCAPE/socket -o ControlPersist=yes deploy@127.0.0.1 true; until_there socket`},
	{name: "ssh-agent", does: "a daemon that shows nobody its memory", script: `
ssh-agent -a $ESCAPE/socket >env; until_there socket`},
	{name: "dbus-launch", does: "a message bus", script: `
dbus-launch --sh-syntax >env`},
	{name: "start-stop-daemon", does: "--start --background", script: `
start-stop-daemon --start --background --make-pidfile --pidfile $ESCAPE/pid --exec /bin/sleep -- 600; until_there pid`},
	{name: "daemonize", does: "forked twice, a session of its own, no descriptors", script: `
daemonize -c $ESCAPE -p $ESCAPE/pid /bin/sleep 600; until_there pid`},
	{name: "gpg-agent", does: "--daemon", script: `
mkdir -m 700 home; gpg-agent --homedir $ESCAPE/home --daemon 2>log`},
	{name: "double fork", does: "forked twice, a session of its own, no environment, no descriptors, in /", script: `
perl -MPOSIX -e '%ENV = (); exit if fork; setsid; exit if fork; open(F, ">$ARGV[0]/up"); close F; chdir "/"; POSIX::close($_) for 0..9; exec "/bin/sh", "-c", "sleep 600; :", $ARGV[0]' $ESCAPE
until_there up`},
	{name: "forks on TERM", does: "answers TERM with a child in a session of its own, and goes", script: `
perl -MPOSIX -e '$SIG{TERM} = sub { exit if fork; setsid }; open(F, ">up"); close F; sleep 1 while 1' &
until_there up`},
	{name: "fork storm", does: "six lines of processes that each fork, leave their session and go, a hundred times a second", moves: true, script: `
perl -MPOSIX -e 'for (1..6) { last unless fork } open(F, ">up"); close F; while (1) { exit if fork; setsid; select undef, undef, undef, 0.01 }' &
until_there up`},
	{name: "stopped", does: "a stopped process, which cannot hear TERM", script: `
sh -c 'touch up; kill -STOP $$; sleep 600' & until_there up`},
	{name: "other cgroup", does: "moves itself to a cgroup that it made: beside the run's where it is root", script: `
cat >move <<'END'
g=$1; mkdir $g && echo $$ >$g/cgroup.procs && touch up; exec sleep 600
END
if test "$root"; then sh move /sys/fs/cgroup/escape-$(basename $ESCAPE) &
else systemd-run --user --scope -q -p Delegate=yes sh -c 'exec sh move /sys/fs/cgroup$(grep -o "/user.slice.*" /proc/self/cgroup)/escape' & fi
until_there up`},
	{name: "systemd-run --scope", does: "moved to a scope of the service manager's, by asking for it", script: `
systemd-run $user --scope -q sh -c 'touch up; exec sleep 600' & until_there up`},
	{name: "sudo", does: "root's: sudo takes TERM on to it", script: `
sudo -n ESCAPE=$ESCAPE sh -c 'touch up; exec sleep 600' & until_there up`},
	{name: "sudo, deaf", does: "root's, and ignores TERM", tree: survives, why: "a plain user may not signal root's processes", script: `
sudo -n ESCAPE=$ESCAPE sh -c 'trap "" TERM; touch up; exec sleep 600' & until_there up`},
	{name: "multiprocessing", does: "a pool of Python's, and who tends it", script: `
python3 -c 'import multiprocessing, time
with multiprocessing.Pool(3) as pool:
    pool.apply(time.sleep, [0]); open("up", "w").close(); pool.map(time.sleep, [600] * 3)' & until_there up`},
	{name: "at", does: "at now", fate: unseen, why: "handed to atd, whose child it is", script: `
echo 'touch up; exec sleep 600' | at -M now 2>log; until_there up`},
	{name: "systemd-run", does: "a transient service", fate: unseen, why: "handed to the service manager, whose child it is", script: `
systemd-run $user -q --collect --setenv=ESCAPE=$ESCAPE sh -c 'touch $ESCAPE/up; exec sleep 600'; until_there up`},
}

// escapeDir holds the folders of all escapes on a host.
const escapeDir = "/srv/escapes"

// words are the table's, one for each fate.
var words = [...]string{caught: "emptied", survives: "**survivor**", unseen: "**not seen**", refused: "refused"}

func escapesPage() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from test/hosts by go generate. Do not edit. -->

# What a run leaves behind

A run is over when its main process has ended and nothing else of it is left. What outlives the main
process is waited for, killed or released, as the run's ` + "`--leftover`" + ` says. Each of these is started on
a real host in each boundary with each of the three, and looked for in the process table, by traces that
do not depend on any record of ours (` + "`TestEscapes`, `make hosts`" + `).

- **wait**: the run is ` + "`lingering`" + ` for as long as it lives; a cancel ends it.
- **kill**: it is ended when the main process ends, and named in ` + "`left`" + `.
- **release**: it lives on, is named in ` + "`released`" + `, and a later cancel ends it.

*Emptied*: known for the run's, named, and ended as above; with wait and kill it is proven that nothing is left.
*Survivor*:
known for the run's and not to be ended by this user. A run that waits or kills is not over until
somebody else has ended it, and says which process that is and why; so does the cancel of one that
released it. *Not seen*: handed to another owner, which starts it as its own child. No boundary encloses
that: the run ends without it, and a cancel does not reach it. Work that shall end with its run is not
handed on. *Refused*: such a run is not begun.

`)
	b.WriteString("| what | does |")
	for _, g := range grounds {
		for _, l := range leftovers {
			fmt.Fprintf(&b, " %s, %s |", g.kind, l)
		}
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(grounds)*len(leftovers)) + "\n")
	for _, e := range escapes {
		does := e.does
		if e.why != "" {
			does += "; " + e.why
		}
		fmt.Fprintf(&b, "| %s | %s |", e.name, does)
		for _, g := range grounds {
			for _, l := range leftovers {
				fmt.Fprintf(&b, " %s |", words[e.in(g, l)])
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n`tree` is a plain user's here, `cgroup` and `systemd` are root's. A unit's\nmanager ends whatever its main process leaves behind, so nothing can be released from there.\n")
	return b.String()
}

var update = flag.Bool("update", false, "write docs/escapes.md")

func TestEscapesPage(t *testing.T) {
	const page = "../../docs/escapes.md"
	want := escapesPage()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("docs/escapes.md is not what the table says: go generate ./test/hosts (%v)", err)
	}
}

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// What a script leaves behind is said with its place, and with what that means for this run.
func TestFindings(t *testing.T) {
	t.Parallel()
	wait, kill, release := longstop.LeftoverWait, longstop.LeftoverKill, longstop.LeftoverRelease
	const handed = "the run ends without it, and no cancel, lease or deadline of the run reaches it"
	const other = "runs as another user: where the boundary is a tree, what ignores TERM then outlives a cancel"
	for _, c := range []struct {
		script   string
		leftover longstop.Leftover
		want     []string // kind, place, words
	}{
		{"true; make", wait, nil},
		{"deploy.sh & echo started", wait, []string{"background 1:1 `deploy.sh` is left in the background: the run goes on until it ends"}},
		{"a\n  b |\n c &", kill, []string{"background 2:3 `b | c` is left in the background: it is killed when the main process ends"}},
		{"a &", release, []string{"background 1:1 `a` is left in the background: it may live on after the run; a later cancel ends it"}},
		{"a & b & wait; c", wait, []string{"background 1:1 `a` runs in the background, and the script waits for it later", "background 1:5 `b` runs in the background, and the script waits for it later"}},
		{"(a &)", wait, []string{"background 1:2 `a` is left in the background: the run goes on until it ends"}},
		{"nohup a > x 2>&1 &", wait, []string{"background 1:1 `nohup a` is left in the background: the run goes on until it ends",
			"detaches 1:1 `nohup a` is out of reach of a hangup, not of Longstop: the run goes on until it ends"}},
		{"x=1; setsid -f a", kill, []string{"detaches 1:6 `setsid -f a` has a session of its own and is still the run's: it is killed when the main process ends"}},
		{"a\ndisown", wait, []string{"detaches 2:1 `disown` is out of reach of a hangup, not of Longstop: the run goes on until it ends"}},
		{"nginx", wait, []string{"daemon 1:1 `nginx` puts itself into the background: the run goes on until it ends"}},
		{"nginx -g 'daemon off;'; nginx -t", wait, nil},
		{"redis-server --daemonize yes", wait, []string{"daemon 1:1 `redis-server --daemonize yes` puts itself into the background: the run goes on until it ends"}},
		{"redis-server", wait, nil},
		{"anything --daemon=yes", wait, nil},
		{"anything --daemon", wait, []string{"daemon 1:1 `anything --daemon` puts itself into the background: the run goes on until it ends"}},
		{"pg_ctl -D /data start", wait, []string{"daemon 1:1 `pg_ctl -D /data start` puts itself into the background: the run goes on until it ends"}},
		{"tmux new -d top", wait, []string{"terminal 1:1 `tmux new -d top` starts or joins a server with terminals of its own: of one that it starts, the run goes on until it ends",
			"dynamic 1:1 `tmux` runs a program whose name is known only when it runs"}},
		{"echo 'a &' | at now", wait, []string{"handed_over 1:14 `at now` hands work over to atd: " + handed, "dynamic 1:14 commands are read from standard input: which they are is known only when it runs"}},
		{"systemd-run nohup a", wait, []string{"handed_over 1:1 `systemd-run nohup a` hands work over to the service manager: " + handed}},
		{"systemd-run --scope a", wait, nil},
		{"systemctl restart nginx; systemctl status nginx", wait, []string{"handed_over 1:1 `systemctl restart nginx` hands work over to the service manager: " + handed}},
		{"docker run -d x; docker ps", wait, []string{"handed_over 1:1 `docker run -d x` hands work over to the container engine: " + handed,
			"dynamic 1:1 `docker` runs a program whose name is known only when it runs"}},
		{"sudo a; su -c 'b &' c", wait, []string{"other_user 1:1 `sudo a` " + other,
			"other_user 1:9 `su -c 'b &' c` " + other, "background 1:9 `b` is left in the background: the run goes on until it ends"}},
		{"ssh web-2 'a &' &", wait, []string{"background 1:1 `ssh web-2 'a &'` is left in the background: the run goes on until it ends",
			"other_host 1:1 `ssh web-2 'a &'` works on another host: no record of that is kept, and a cancel ends its connection, no more"}},
		{"exec 9> /run/lock; exec 2>&1; exec 3<&-", wait, []string{"held_open 1:6 `9> /run/lock` stays open in all that is started after it: a lock or pipe there is held by what is left behind too"}},
		{"a > >(b)", wait, []string{"background 1:5 `>(b)` is not waited for by the shell: the run goes on until it ends"}},
		{"coproc a", wait, []string{"background 1:1 `coproc a` is left in the background: the run goes on until it ends"}},
		{"$x", wait, []string{"dynamic 1:1 `$x` runs a program whose name is known only when it runs"}},
		{"a\nif b; then", wait, []string{"unread 2:7 this could not be read as a shell script (`then` must be followed by a statement list): what it leaves behind is not known before it runs"}},
		{"echo " + strings.Repeat("x", 100) + " &", wait, []string{"background 1:1 `echo " + strings.Repeat("x", 75) + "…` is left in the background: the run goes on until it ends"}},
	} {
		var got []string
		for _, f := range Read(&longstop.Request{Script: c.script, Leftover: c.leftover}).Findings {
			got = append(got, fmt.Sprintf("%s %d:%d %s", f.Kind, f.Line, f.Column, f.Words))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%q:\n got %s\nwant %s", c.script, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestFindingsOfArguments(t *testing.T) {
	t.Parallel()
	r := longstop.Request{Argv: []string{"sh", "-c", "a &"}, Verify: "b &", BoundaryMin: longstop.BoundaryCgroup, DeadlineS: 90}
	got := Read(&r).Findings
	if len(got) != 2 || got[0].Line != 0 || got[0].Words != "`a` is left in the background: the run goes on until it ends, for 1m30s at most" ||
		got[1].Part != "verify" || got[1].Line != 1 || got[1].Column != 1 {
		t.Errorf("%+v", got)
	}
}

// C142: of a file that is run nothing is bound but its name, and that is said.
func TestC142FilesThatAreRunAreNotBound(t *testing.T) {
	t.Parallel()
	const notBound = " is a file on the host: its content when it runs is not bound by anything here"
	for script, want := range map[string]string{
		"sh /tmp/s.sh":             "/tmp/s.sh",
		"sudo -n ./deploy.sh -x":   "./deploy.sh",
		". /srv/env":               "/srv/env",
		"/usr/local/bin/deploy":    "/usr/local/bin/deploy",
		"/usr/bin/make; make":      "",
		"sh -c '/tmp/s.sh'":        "/tmp/s.sh",
		"find . -exec ./x.sh {} +": "./x.sh",
	} {
		var got []string
		for _, f := range Read(&longstop.Request{Script: script}).Findings {
			if f.Kind == longstop.FindingFile {
				got = append(got, f.Words)
			}
		}
		if want != "" {
			want = "`" + want + "`" + notBound
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%q: %q, want %q", script, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, script := range []string{"a & b", "sudo -u x sh -c 'a; $b'", "find . -exec sh -c '{}' \\;", "((a)) [[ b ]] <<EOF\n$(c)\nEOF", "su -c 'a' | xargs -I{} {}", "a=(b c) {d,e} $'f'"} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		for _, r := range []longstop.Request{{Script: script}, {Argv: strings.Fields(script)}, {Argv: []string{"sh", "-c", script}, Verify: script}} {
			read := Read(&r)
			for _, found := range read.Findings {
				if found.Words == "" || found.Kind == "" || len(found.Text) > maxText+len("…") || found.Line < 0 || found.Line > 0 && found.Column < 1 {
					t.Errorf("%q: %+v", script, found)
				}
			}
			for _, c := range read.Commands {
				if c.Name == "" || strings.Contains(c.Name, "/") {
					t.Errorf("%q: a command %q", script, c.Name)
				}
			}
		}
	})
}

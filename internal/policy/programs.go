package policy

import (
	"strings"

	"github.com/longstop/longstop"
)

// wrapper is a program that runs another one, and how the words before that one are read: as getopt does
// that stops at the first operand. An option that is not here makes what is run unknown.
type wrapper struct {
	flags    string // letters of options without a value
	valued   string // of options with one
	attached string // of options whose value, if any, is attached
	long     string // names of long options without a value, or with one after =
	longWith string // of long options whose value is the next word, or after =
	operands int    // words before the command
	assigns  bool   // NAME=VALUE may stand before the command
	script   string // letter of the option whose value is a script
	shell    bool   // the words are put together for a shell
	appends  bool   // it adds words to the command's own, and puts some in for {}

	within string // parts of its options' words that run something

	shellAlone bool // without a command it runs a shell
	shellOnly  bool // without a script it runs a shell, whatever follows
}

// wrappers by their names. su, ssh, find and the shells are read on their own.
var wrappers = map[string]wrapper{
	"sudo": {flags: "AbEHKklnNPSVvB", valued: "aCcDgHhpRrTtUu", assigns: true, shellAlone: true,
		long:     "askpass background bell list non-interactive preserve-env preserve-groups remove-timestamp reset-timestamp set-home stdin validate no-update",
		longWith: "auth-type close-from login-class chdir group host prompt chroot role type command-timeout other-user user"},
	"doas":   {flags: "nL", valued: "ua", shellAlone: true},
	"pkexec": {long: "disable-internal-agent keep-cwd", longWith: "user", shellAlone: true},
	"gosu":   {operands: 1}, "su-exec": {operands: 1},
	"env": {flags: "i0v-", valued: "uCa", script: "S", assigns: true,
		long:     "ignore-environment null debug block-signal default-signal ignore-signal list-signal-handling",
		longWith: "unset chdir argv0"},
	"nohup":   {},
	"setsid":  {flags: "cfw", long: "ctty fork wait"},
	"timeout": {flags: "fpv", valued: "ks", long: "foreground preserve-status verbose", longWith: "kill-after signal", operands: 1},
	"nice":    {flags: "0123456789", valued: "n", longWith: "adjustment"},
	"ionice":  {flags: "t", valued: "cn", long: "ignore", longWith: "class classdata"},
	"stdbuf":  {valued: "ioe", longWith: "input output error"},
	"time":    {flags: "apvq", valued: "fo", long: "append portability verbose quiet", longWith: "format output"},
	"chroot":  {long: "skip-chdir", longWith: "userspec groups", operands: 1, shellAlone: true},
	"taskset": {flags: "ac", long: "all-tasks cpu-list", operands: 1},
	"chrt":    {flags: "abdfiorRv", valued: "TPD", long: "batch deadline fifo idle other rr reset-on-fork verbose", operands: 1},
	"flock":   {flags: "esxunoFv", valued: "wE", script: "c", long: "shared exclusive unlock nonblock no-fork close verbose", longWith: "timeout conflict-exit-code", operands: 1},
	"setpriv": {flags: "d", long: "clear-groups keep-groups init-groups no-new-privs nnp reset-env",
		longWith: "reuid regid groups ruid euid rgid egid inh-caps ambient-caps bounding-set securebits pdeathsig"},
	"prlimit":  {attached: "cdefilmnqrstuvxy"},
	"numactl":  {long: "localalloc", longWith: "interleave membind cpunodebind physcpubind preferred"},
	"cgexec":   {valued: "g", long: "sticky"},
	"unshare":  {flags: "rcf", attached: "mnpuiUCT", valued: "RwSG", long: "fork map-root-user map-current-user mount net pid uts ipc user cgroup time mount-proc", longWith: "root wd", shellAlone: true},
	"nsenter":  {flags: "aFZe", attached: "mnpuiUCTrw", valued: "tSG", long: "all no-fork mount net pid uts ipc user cgroup time root wd", longWith: "target setuid setgid", shellAlone: true},
	"unbuffer": {flags: "p"}, "fakeroot": {}, "chronic": {flags: "ev"}, "tini": {flags: "gsvw", valued: "ep"}, "dumb-init": {flags: "cv"},
	"sshpass": {valued: "pfdP", attached: "e", flags: "v"},
	"strace":  {flags: "cCdDfFhikqrtTvVwxyYzZ", valued: "abeIoOPsSuUX", within: "| !"},
	"xargs":   {flags: "0prtxo", valued: "adEILnPsRS", attached: "el", long: "null no-run-if-empty verbose interactive exit open-tty show-limits max-lines", longWith: "arg-file delimiter max-args max-procs max-chars process-slot-var", appends: true},
	"watch":   {flags: "bcdegtpxCr", valued: "nq", long: "beep color no-color differences errexit chgexit no-title precise exec no-rerun no-wrap", longWith: "interval equexit", shell: true},
	"script":  {flags: "aefq", valued: "BEIOTom", attached: "t", script: "c", shellOnly: true},
	"busybox": {}, "toybox": {},
	"command": {flags: "pvV"}, "builtin": {}, "exec": {flags: "cl", valued: "a"},
	"systemd-run": {flags: "dtPqrGS", valued: "pMHuC", within: "exec environment= environmentfile root setenv passenvironment load pam",
		long:     "scope user system no-block wait pty pty-late pipe quiet same-dir remain-after-exit collect slice-inherit send-sighup shell ignore-failure no-ask-password",
		longWith: "unit property description slice uid gid nice working-directory service-type on-calendar on-active on-boot on-startup on-unit-active on-unit-inactive timer-property path-property socket-property host machine job-mode background expand-environment"},
}

// shells run scripts of their own.
var shells = set("sh bash dash ash rbash")

// otherShells read what is not read here, from their words or from their input.
var otherShells = set("ksh ksh93 mksh zsh rzsh fish csh tcsh yash posh hush rc es elvish nu xonsh pwsh lksh osh oil")

// daemons put themselves into the background, by these of their words or, where there are none, always.
var daemons = map[string][]string{
	"nginx": nil, "sshd": nil, "ssh-agent": nil, "memcached": {"-d"}, "redis-server": {"--daemonize"}, "pg_ctl": {"start", "restart"},
	"pg_ctlcluster": {"start", "restart"}, "apachectl": {"start", "restart", "graceful"}, "apache2ctl": {"start", "restart", "graceful"},
	"start-stop-daemon": {"--background", "-b"}, "daemonize": nil, "php-fpm": {"-D"}, "mysqld": {"-D"}, "gunicorn": {"-D"}, "uwsgi": {"-d"},
	"pm2": {"start", "restart"}, "forever": {"start"}, "haproxy": {"-D"}, "mongod": {"--fork"}, "supervisord": nil, "dbus-launch": nil,
	"httpd": {"-k"}, "dnsmasq": nil, "squid": nil, "named": nil, "crond": nil, "cron": nil, "atd": nil,
}

// foreground are words that keep such a program in the foreground.
var foreground = set("-D -g -n --nodaemon --no-daemon --foreground -F -f -X --no-fork -N -k --keep-in-foreground -t -T -s -v -V -h --help --version")

// daemonWords make any program a daemon that knows them.
var daemonWords = set("--daemon --daemonize --detach --daemonized --background --fork")

// owners start work of their own at the asking of these programs, by these of their words or, where there
// are none, always.
var owners = map[string]struct {
	name  string
	words []string
}{
	"at": {"atd", nil}, "batch": {"atd", nil}, "crontab": {"cron", nil},
	"systemctl":      {"the service manager", []string{"start", "restart", "reload", "try-restart", "reload-or-restart", "enable", "isolate"}},
	"service":        {"the service manager", []string{"start", "restart", "reload"}},
	"rc-service":     {"the service manager", []string{"start", "restart", "reload"}},
	"docker":         {"the container engine", []string{"-d", "--detach", "start", "restart"}},
	"podman":         {"the container engine", []string{"-d", "--detach", "start", "restart"}},
	"nerdctl":        {"the container engine", []string{"-d", "--detach", "start", "restart"}},
	"docker-compose": {"the container engine", []string{"-d", "--detach", "start", "restart"}},
	"kubectl":        {"the cluster", []string{"apply", "create", "run", "rollout", "scale", "delete", "patch"}},
	"sbatch":         {"the batch system", nil}, "qsub": {"the batch system", nil},
	"supervisorctl": {"supervisord", []string{"start", "restart", "reload"}},
	"launchctl":     {"launchd", []string{"start", "load", "bootstrap", "kickstart"}},
}

// set is the words of a text.
func set(text string) map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		words[word] = true
	}
	return words
}

// habits notes what a program is known to do, by its name and its words.
func (s *scripts) habits(name string, args []word, text string) {
	has := func(any []string) bool {
		for _, a := range args {
			for _, w := range any {
				if a.known && (a.text == w || strings.HasPrefix(w, "--") && strings.HasPrefix(a.text, w+"=")) {
					return true
				}
			}
		}
		return any == nil
	}
	switch name {
	case "nohup", "setsid", "disown":
		s.detaching(name, text)
	case "sudo", "su", "doas", "runuser", "pkexec":
		s.otherUser(text)
	case "screen", "tmux":
		s.find(longstop.FindingTerminal, text, "starts or joins a server with terminals of its own: of one that it starts, "+s.left())
	case "systemd-run":
		if !has([]string{"--scope"}) {
			s.handedOver(text, "the service manager")
			s.at.elsewhere = true
		}
	case "ssh":
		s.otherHost(text)
	}
	if owner, known := owners[name]; known && has(owner.words) {
		s.handedOver(text, owner.name)
		s.at.elsewhere = true
	}
	if s.isDaemon(name, args, has) {
		s.daemon(text)
	}
}

func (s *scripts) isDaemon(name string, args []word, has func([]string) bool) bool {
	if flags, known := daemons[name]; known {
		if flags != nil {
			return has(flags) || anyWord(args, daemonWords)
		}
		return !anyWord(args, foreground)
	}
	if _, wraps := wrappers[name]; wraps || owners[name].name != "" || shells[name] {
		return false
	}
	return anyWord(args, daemonWords)
}

func anyWord(args []word, set map[string]bool) bool {
	for _, a := range args {
		if a.known && set[a.text] {
			return true
		}
	}
	return false
}

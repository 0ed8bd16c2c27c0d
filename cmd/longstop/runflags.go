package main

import (
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/longstop/longstop"
)

// maxScript bounds a script: what the API takes in one request, with room for JSON's escapes.
const maxScript = 8 << 20

// runFlags are what `longstop run` was told, before it is made a request.
type runFlags struct {
	script, scriptFile        string
	noWait, stdin, pty        bool
	detached, strict, channel bool
	lease, deadline, grace    time.Duration
	leftover, effect, owner   string
	boundary                  string
	key, cwd, session, reason string
	direct                    bool
	env, limits               []string
	outputMax                 string
	stages                    stageFlags
}

// define gives run its flags.
func (f *runFlags) define(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVarP(&f.script, "script", "c", "", "a script for sh -c")
	flags.StringVar(&f.scriptFile, "script-file", "", "the same, from a file (- is standard input)")
	flags.BoolVarP(&f.noWait, "no-wait", "d", false, "return once the host has accepted the run; print its id")
	flags.BoolVar(&f.detached, "detached", false, "no lease: the run needs no word from the gateway to go on")
	flags.DurationVar(&f.lease, "lease", 0, "how long the run may go on without word from the gateway (default 2m)")
	flags.DurationVar(&f.deadline, "deadline", 0, "how long the run may go on at all")
	flags.DurationVar(&f.grace, "grace", 0, "from TERM to KILL, when it is stopped (default 10s)")
	flags.StringVar(&f.leftover, "leftover", "", "what outlives the main process: wait for it, kill it, or release it (default wait)")
	flags.StringVar(&f.effect, "effect", "", "what a second execution would mean: read, idempotent or once (default once)")
	flags.StringVar(&f.key, "key", "", "idempotency key: one key starts one run, whoever repeats the request")
	flags.StringVar(&f.cwd, "cwd", "", "absolute directory on the host (default the login's home)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE, or NAME to take its value from here; repeatable. Values are never kept")
	flags.BoolVar(&f.stdin, "stdin", false, "send standard input (it is read to its end first); without it the run's is empty")
	flags.BoolVar(&f.pty, "pty", false, "a terminal for the run's output, both streams in one; nobody types there: what reads it finds its end")
	flags.BoolVar(&f.strict, "strict-shell", false, "run the script with -e, and pipefail where the host's shell has it")
	flags.BoolVar(&f.channel, "own-channel", false, "an SSH channel for this action alone, with its own exit status")
	flags.StringArrayVar(&f.limits, "limit", nil, "NAME=N, repeatable. Of each process: open_files, processes (the account's), cpu_s, file_bytes. Of the whole\nrun, where the host has cgroup controllers: memory_bytes, cpu_percent, tasks (as in memory_bytes=512M)")
	flags.StringVar(&f.outputMax, "output-max", "", "how much of each output stream the host keeps: beginning and end, half of it each\n(64K, 10M, 2G; 0: all of it; default 1G)")
	flags.StringVar(&f.owner, "owner", "", "who owns the run on the host: auto, runner, or systemd by a unit of its own (default auto)")
	flags.BoolVar(&f.direct, "direct", false, "no owner: the command alone, on an SSH channel of its own, for hosts without a runner")
	flags.StringVar(&f.boundary, "boundary", "", "the weakest boundary to take: tree, cgroup or systemd (default whatever the host has)")
	flags.StringVar(&f.session, "session", "", "the session that the action belongs to, as longstop session start printed it (default your own)")
	f.stages.define(flags)
	flags.StringVar(&f.reason, "reason", "", "why, for those who read the journal")
}

// request reads the flags; nothing has been asked of anyone yet.
func (f *runFlags) request(c *cobra.Command, args []string) (host string, r longstop.Request, err error) {
	argv, err := f.commandLine(c, &args)
	if err != nil {
		return "", r, err
	}
	host = args[0]
	for name, text := range map[string]string{"the host": host, "--cwd": f.cwd, "--key": f.key, "--session": f.session, "--reason": f.reason} {
		if plain(text) != text {
			return "", r, usage("", "%s has characters that cannot be printed: %s", name, plain(text))
		}
	}
	if err := f.setCommand(&r, argv); err != nil {
		return "", r, err
	}
	if f.cwd != "" && !strings.HasPrefix(f.cwd, "/") {
		return "", r, usage("--cwd takes a path on the host, from /", "--cwd %s is not absolute", f.cwd)
	}
	if f.detached && c.Flags().Changed("lease") {
		return "", r, usage("a detached run has no lease; --deadline bounds how long it may go on", "--detached and --lease exclude each other")
	}
	for name, d := range map[string]time.Duration{"lease": f.lease, "deadline": f.deadline, "grace": f.grace} {
		if c.Flags().Changed(name) && (d < 0 || d == 0 && name != "grace") {
			return "", r, usage("write it as 90s, 10m or 6h", "--%s %s is no length of time", name, d)
		}
	}
	r.Lifetime = longstop.Leased
	if f.detached {
		r.Lifetime = longstop.Detached
	}
	r.LeaseS, r.DeadlineS, r.GraceS = f.lease.Seconds(), f.deadline.Seconds(), f.grace.Seconds()
	if c.Flags().Changed("grace") {
		r.GraceS = max(r.GraceS, 0.001) // 0 would take the default; one millisecond is as good as none
	}
	r.PTY = f.pty
	r.Cwd, r.StrictShell, r.OwnChannel, r.Reason = f.cwd, f.strict, f.channel, f.reason
	r.Leftover, err = oneOf("--leftover", f.leftover, longstop.LeftoverWait, longstop.LeftoverKill, longstop.LeftoverRelease)
	if err == nil {
		r.Effect, err = oneOf("--effect", f.effect, longstop.EffectOnce, longstop.EffectIdempotent, longstop.EffectRead)
	}
	if err == nil {
		r.Owner, err = oneOf("--owner", f.owner, longstop.OwnerAuto, longstop.OwnerRunner, longstop.OwnerSystemd)
	}
	if f.direct && f.owner != "" {
		return "", r, usage("nobody owns a direct action", "--direct and --owner exclude each other")
	}
	if f.direct {
		r.Owner = longstop.OwnerNone
	}
	if err == nil {
		r.BoundaryMin, err = oneOf("--boundary", f.boundary, longstop.BoundaryTree, longstop.BoundaryCgroup, longstop.BoundarySystemd)
	}
	if err == nil {
		r.Limits, err = limits(f.limits)
	}
	if err == nil {
		err = f.stages.ask(c.Flags(), &r)
	}
	if err == nil && c.Flags().Changed("output-max") {
		r.OutputMax, err = size("--output-max", f.outputMax)
	}
	return host, r, err
}

// commandLine splits the arguments into the host and what follows --.
func (f *runFlags) commandLine(c *cobra.Command, args *[]string) (argv []string, err error) {
	before := *args
	dash := c.ArgsLenAtDash()
	if dash >= 0 {
		before, argv = (*args)[:dash], (*args)[dash:]
	}
	*args = before
	scripts := c.Flags().Changed("script") || c.Flags().Changed("script-file")
	switch {
	case len(before) == 0:
		return nil, usage("longstop run HOST -- COMMAND. longstop host list shows the hosts", "run needs a host, before the command")
	case len(before) > 1 && dash < 0 && !scripts:
		words := make([]string, len(before)-1)
		for i, arg := range before[1:] {
			words[i] = word(arg)
		}
		return nil, usage("longstop run "+word(before[0])+" -- "+strings.Join(words, " "), "put -- before the command, so that its flags stay its own")
	case len(before) > 1:
		return nil, usage("longstop run --help", "run takes one host, not %q too", plain(before[1]))
	case scripts && dash >= 0 && len(argv) > 0:
		return nil, usage("arguments of a script: -- sh -c SCRIPT sh ARG…", "a script and a command after -- exclude each other")
	case c.Flags().Changed("script") && c.Flags().Changed("script-file"):
		return nil, usage("", "-c and --script-file exclude each other")
	case !scripts && len(argv) == 0:
		return nil, usage("longstop run "+word(before[0])+" -- COMMAND, or -c SCRIPT", "run needs something to run")
	}
	return argv, nil
}

func (f *runFlags) setCommand(r *longstop.Request, argv []string) error {
	if f.scriptFile != "" {
		if f.scriptFile == "-" && f.stdin {
			return usage("", "--script-file - and --stdin both want standard input")
		}
		text, err := readFile("the script file", f.scriptFile, maxScript)
		if err != nil {
			return err
		}
		f.script = string(text)
	}
	if argv == nil {
		switch {
		case strings.TrimSpace(f.script) == "":
			return usage("", "the script is empty")
		case len(f.script) > maxScript:
			return usage("copy it to the host first, and run it there by its path", "the script has more than %d MiB", maxScript>>20)
		case !utf8.ValidString(f.script) || strings.ContainsRune(f.script, 0):
			return usage("one that is not UTF-8 goes as an argument: -- sh -c SCRIPT", "the script is not UTF-8 text")
		}
		r.Script = f.script
		return nil
	}
	if f.strict {
		return usage("it is an option of a script: use -c", "--strict-shell means nothing for a command after --")
	}
	if argv[0] == "" {
		return usage("", "the command after -- is empty")
	}
	for _, arg := range argv {
		if !utf8.ValidString(arg) {
			r.ArgvB64 = make([][]byte, len(argv))
			for i, arg := range argv {
				r.ArgvB64[i] = []byte(arg)
			}
			return nil
		}
	}
	r.Argv = argv
	return nil
}

// readFile reads a file, or standard input for "-", up to one byte more than it may have at most.
func readFile(what, path string, most int64) ([]byte, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, usage("", "%s: %v", what, err)
		}
		defer file.Close()
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, usage("", "%s: %v", what, err)
	}
	return text, nil
}

// oneOf reads a word of a vocabulary; the first is the default, which the gateway sets.
func oneOf[S ~string](flag, text string, words ...S) (S, error) {
	if text == "" {
		return "", nil
	}
	names := make([]string, len(words))
	for i, w := range words {
		if text == string(w) {
			return w, nil
		}
		names[i] = string(w)
	}
	return "", usage("one of "+strings.Join(names, ", "), "%s %s is not known", flag, plain(text))
}

// size reads a number of bytes, with K, M, G or T for powers of 1024.
func size(flag, text string) (*int64, error) {
	digits := strings.TrimRight(text, "KMGTkmgtiB")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text[len(digits):]), "B"), "I")
	shift, known := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n < 0 || n > math.MaxInt64>>shift {
		return nil, usage("as in "+flag+" 10M", "%s %s is no size", flag, plain(text))
	}
	n <<= shift
	return &n, nil
}

// environment reads --env; values travel beside the request and are kept nowhere.
func environment(list []string, lookup func(string) (string, bool)) (map[string][]byte, error) {
	values := map[string][]byte{}
	for _, item := range list {
		name, value, given := strings.Cut(item, "=")
		if name == "" || plain(name) != name || strings.ContainsAny(name, " '\"$`") {
			return nil, usage("NAME=VALUE, or NAME alone to take its value from here", "--env %s has no usable name", plain(name))
		}
		if !given {
			if value, given = lookup(name); !given {
				return nil, usage("NAME=VALUE gives it one", "--env %s: it is not set here", name)
			}
		}
		if _, twice := values[name]; twice {
			return nil, usage("", "--env %s is given twice", name)
		}
		values[name] = []byte(value)
	}
	return values, nil
}

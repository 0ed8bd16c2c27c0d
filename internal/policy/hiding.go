package policy

import (
	"slices"
	"strings"
)

// hiding is by which of its words a program runs commands that are not read here, which is why they count as
// any. What this says too often costs a question, and what it says too seldom is a way around a rule.
type hiding struct {
	short  string // letters of options that do, wherever they stand in a word
	long   string // names of long options that do, and what these may be shortened to
	words  string // whole words, or what stands before their =
	within string // parts of its words: of the first operand alone where stops is set
	only   string // its first operand does, if it is none of these
	valued string // letters of options whose value is the next word and does nothing

	bundled bool // its first word has options without a dash
	stops   bool // behind its first operand stand words for what that is
	file    bool // its first operand is a file of what it runs
	inputs  bool // without an operand it runs what comes on its input
}

// interpreter runs a file, or what it is told.
func interpreter(short, long string) hiding {
	return hiding{short: short, long: long, words: "- /dev/stdin /dev/fd/0", stops: true, file: true, inputs: true}
}

var (
	awk = hiding{short: "fEielW", long: "file exec source include load", within: "system | @ getline", valued: "Fv", stops: true}

	python = interpreter("cmi", "")
	node   = interpreter("eprCi", "eval print require import loader experimental-loader experimental-config-file env-file")

	containers = hiding{valued: "Hcl",
		only: "ps images inspect logs pull push rm rmi stats stop start restart kill top version info tag port events diff history wait login logout search pause unpause rename network volume"}
	remote = hiding{short: "SoFD"}
	viewer = hiding{within: "+ !", short: "kPpK", long: "lesskey-file lesskey-src lesskey-content pager html preprocessor"}
	apt    = hiding{short: "oc", long: "option config-file"}
)

// hidings by the names of their programs.
var hidings = map[string]hiding{
	"awk": awk, "gawk": awk, "mawk": awk, "nawk": awk, "original-awk": awk,
	"python": python, "python2": python, "python3": python, "pypy": python, "pypy3": python,
	"perl": interpreter("eEMmdxiCSs", ""), "ruby": interpreter("eErIxsSC", "require"), "node": node, "nodejs": node,
	"bun": interpreter("ep", "eval print preload"), "php": interpreter("rBREFadcfSt", "run process-code process-begin process-end process-file file define php-ini interactive"),
	"lua": interpreter("eli", ""), "luajit": interpreter("elijb", ""), "Rscript": interpreter("e", ""), "tclsh": interpreter("", ""), "wish": interpreter("", ""),

	"tar":  {short: "IF", long: "to-command checkpoint-action use-compress-program rsh-command info-script new-volume-script", valued: "fCTX", bundled: true},
	"cpio": {long: "rsh-command"}, "rsync": {short: "e", long: "rsh rsync-path"}, "scp": remote,
	"zip": {short: "T", long: "test unzip-command"}, "sort": {long: "compress-program"}, "split": {long: "filter"},
	"git": {short: "cuxO", long: "config-env exec-path upload-pack receive-pack exec extcmd open-files-in-pager ext-diff textconv template upload-archive", words: "-oProxyCommand",
		within: "ext::", valued: "C", only: "add archive blame branch cat-file checkout cherry-pick clean clone commit describe diff fetch for-each-ref gc init log ls-files ls-remote ls-tree " +
			"merge mv pull push rebase reflog remote reset restore rev-list rev-parse rm shortlog show show-ref stash status switch symbolic-ref tag version"},
	"svn": {long: "diff-cmd diff3-cmd editor-cmd config-option"}, "hg": {within: "alias hooks shell extensions ssh", long: "config ssh"},
	"docker": containers, "podman": containers, "nerdctl": containers, "docker-compose": containers,
	"kubectl": {long: "kubeconfig", valued: "nfo", only: "get describe logs apply create delete rollout scale patch label annotate top version explain " +
		"api-resources api-versions auth cluster-info config cordon uncordon drain taint wait diff expose autoscale set replace"},
	"fd": {short: "xX", long: "exec exec-batch"}, "fdfind": {short: "xX", long: "exec exec-batch"}, "rg": {long: "pre hostname-bin"}, "ag": {long: "pager"}, "ack": {long: "pager output"},
	"man": viewer, "less": viewer, "more": viewer, "most": viewer,
	"apt": apt, "apt-get": apt, "aptitude": apt, "dpkg": {long: "pre-invoke post-invoke status-logger"}, "rpm": {short: "ED", long: "eval define pipe load rcfile macros"},
	"wget": {short: "e", long: "use-askpass execute config"}, "curl": {short: "K", long: "config"}, "java": {within: "-XX: -agent -javaagent @"}, "tcpdump": {short: "z"},
	"make": {short: "E", long: "eval", words: "- -f- /dev/stdin --file=- --makefile=- SHELL", within: "$ ` .SHELL"}, "gmake": {short: "E", long: "eval", words: "- -f- /dev/stdin SHELL", within: "$ `"},
	"gcc": {words: "-wrapper -B -fplugin -specs"}, "cc": {words: "-wrapper -B -fplugin -specs"}, "g++": {words: "-wrapper -B -fplugin -specs"},
	"go": {words: "generate tool -exec -toolexec -overlay -vettool"}, "ip": {words: "exec vrf", short: "b", long: "batch"}, "tc": {short: "b"},
	"psql":  {within: "\\ program PROGRAM |", short: "fv", long: "file variable set", inputs: true},
	"mysql": {within: "\\ system source", inputs: true}, "mariadb": {within: "\\ system source", inputs: true},
	"systemctl": {words: "edit link set-environment import-environment set-property import-credential", long: "stdin drop-in"},
	"crontab":   {only: "-l", short: "euT", words: "-", inputs: true}, "busctl": {words: "call"}, "dbus-send": {words: "StartTransientUnit", within: "systemd1"},

	// Words of the shells themselves.
	"mapfile": {short: "Cc"}, "readarray": {short: "Cc"}, "compgen": {short: "CFWX"}, "complete": {short: "CFWX"}, "bind": {short: "xfm", within: "\""},
	"set": {short: "k", words: "keyword"}, "enable": {short: "fd"}, "hash": {short: "p"}, "fc": {short: "es"}, "history": {short: "ranp"}, "jobs": {short: "x"}, "autoload": {short: "Xw"},
}

// opaque programs run others, by their words or by what comes on their input, in ways that are not read here.
var opaque = set("parallel sem entr expect bwrap firejail proot fakechroot faketime torify torsocks proxychains proxychains4 " +
	"valgrind gdb lldb ltrace perf catchsegv setarch linux32 linux64 i386 x86_64 uname26 dtach abduco screen tmux zellij byobu rlwrap chpst setuidgid envdir " +
	"envuidgid softlimit setlock daemonize daemon systemd-nspawn machinectl socat nc ncat netcat mosh mosh-client dbclient autossh slogin rsh rexec pdsh pssh parallel-ssh " +
	"pscp parallel-scp dsh clush cssh ansible ansible-playbook ansible-console salt salt-ssh fab cap pexec rush plink " +
	"vi vim nvim view vimdiff rvim rview ex ed red emacs emacsclient joe jed mg pico nano mcedit mc m4 dc gnuplot octave ghc ghci guile sbcl clisp ocaml erl elixir iex " +
	"groovy scala clojure julia R deno npx pnpx bunx jshell irb pry ipython ipython3 gosh osascript runcon choom coresched uclampset cpulimit schedtool eatmydata " +
	"dbus-run-session xvfb-run newgrp capsh nsjail run0 please hyperfine ts tsp nq watchexec incrontab logsave run-parts inotifyrun xterm x-terminal-emulator " +
	"lxc lxc-attach lxc-execute incus crictl ctr runc crun vagrant virsh distrobox toolbox flatpak snap catatonit s6-setuidgid execlineb with-contenv " +
	"srun salloc mpirun mpiexec torun cmake ninja-exec gdbserver rr bpftrace bcc openvt cttyhack inotifyd runsv udhcpc dhclient pppd scriptlive tcpsvd udpsvd tcpserver telnetd inetd xinetd sudoedit visudo vipw vigr lftp ftp sftp telnet sqlite3 mutt mail mailx sendmail")

// loader reports whether a name is that of the loader of programs, which runs its first operand.
func loader(name string) bool {
	return strings.HasPrefix(name, "ld.so") || strings.HasPrefix(name, "ld-") && strings.Contains(name, ".so")
}

// hidden reads the words of a program that may hide commands in them.
func (s *scripts) hidden(name string, h hiding, args []word) {
	operands, behind := 0, false
	for i := 0; i < len(args) && !(operands > 0 && h.stops); i++ {
		a := args[i]
		if h.bundled && i == 0 && a.text != "" && a.text[0] != '-' {
			a.text = "-" + a.text
		}
		operand := behind || isOperand(a)
		attached := len(a.text) > 2 && a.text[0] == '-' && strings.IndexByte(h.valued, a.text[1]) >= 0
		switch {
		case a.known && a.text == "--":
			behind = true
			continue
		case attached && a.single:
			continue
		case !a.known && (!operand || h.within != "" || h.only != ""), h.tells(a.text):
			s.unknown(name)
			return
		case a.known && len(a.text) > 1 && a.text[0] == '-':
			if a.text[1] != '-' && strings.Contains(h.valued, a.text[len(a.text)-1:]) {
				i++
				if i < len(args) && !args[i].single {
					s.unknown(name)
					return
				}
			}
			continue
		}
		if operands++; operands > 1 {
			continue
		}
		if h.only != "" && !slices.Contains(strings.Fields(h.only), a.text) {
			s.unknown(name)
			return
		}
		if h.file {
			s.sourced(args[i : i+1])
		}
	}
	if h.inputs && operands == 0 && !onlyAsks(args) {
		s.fromInput(nil) // in a language of its own
	}
}

// isOperand reports whether a word is no option, as far as it is known: a glob matches names of files, which may
// begin as options do.
func isOperand(a word) bool {
	return a.text != "" && a.text[0] != '-' && (a.known || strings.IndexByte("*?[!@+", a.text[0]) < 0)
}

// onlyAsks reports whether a program is asked about itself, or what there is, and does nothing else.
func onlyAsks(args []word) bool {
	return len(args) == 1 && slices.Contains([]string{"--version", "-V", "--help", "-l"}, args[0].text)
}

// tells reports whether one of the program's words runs a command.
func (h *hiding) tells(text string) bool {
	name, _, _ := strings.Cut(text, "=")
	switch {
	case slices.ContainsFunc(strings.Fields(h.words), func(w string) bool { return w == text || w == name }):
		return true
	case strings.HasPrefix(text, "--"):
		for option := range strings.FieldsSeq(h.long) {
			if len(name) > 2 && strings.HasPrefix(option, name[2:]) {
				return true
			}
		}
	case strings.HasPrefix(text, "-") && strings.ContainsAny(text, h.short) && h.short != "":
		return true
	}
	for part := range strings.FieldsSeq(h.within) {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// sed reads the scripts among the words of sed.
func (s *scripts) sed(args []word) {
	var scripts, operands []word
	behind := false
	options := wrapper{flags: "nErsuzb", valued: "lef"}
	for i := 0; i < len(args); i++ {
		a := args[i]
		letters := strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--") && len(a.text) > 1
		switch {
		case behind:
			operands = append(operands, a)
		case a.text == "--":
			behind = true
		case !a.known && !isOperand(a):
			s.unknown("sed")
			return
		case a.text == "--expression" || letters && strings.Trim(a.text[1:len(a.text)-1], options.flags) == "" && strings.HasSuffix(a.text, "e"):
			i++
			scripts = append(scripts, args[min(i, len(args)-1)])
		case strings.HasPrefix(a.text, "--expression="):
			scripts = append(scripts, word{text: a.text[len("--expression="):], known: a.known, single: true})
		case letters && strings.HasPrefix(a.text, "-i"), letters && strings.Trim(a.text[1:], options.flags) == "",
			slices.Contains([]string{"--quiet", "--silent", "--regexp-extended", "--separate", "--unbuffered", "--null-data", "--in-place", "--sandbox", "--posix", "--version", "--help"}, a.text):
		case strings.HasPrefix(a.text, "-") && len(a.text) > 1:
			s.unknown("sed") // a file of commands, or an option that is not known
			return
		default:
			operands = append(operands, a)
		}
	}
	if len(scripts) == 0 && len(operands) > 0 {
		scripts = operands[:1]
	}
	if slices.ContainsFunc(scripts, func(w word) bool { return !w.known || !plainSed(w.text) }) {
		s.unknown("sed")
	}
}

// plainSed reports whether a script of sed can run nothing: it has no e and writes no file, as far as it is
// one of the commands that scripts mostly are.
func plainSed(text string) bool {
	for {
		text = strings.TrimLeft(text, " \t\n;{},$!~+0123456789")
		if text == "" {
			return true
		}
		c := text[0]
		text = text[1:]
		switch {
		case c == '/':
			if !sedSection(&text, '/', true) {
				return false
			}
			text = strings.TrimLeft(text, "IM")
		case c == 's' || c == 'y':
			if text == "" || strings.IndexByte("\\\n;} ", text[0]) >= 0 || text[0] >= 0x80 {
				return false
			}
			delimiter := text[0]
			text = text[1:]
			if !sedSection(&text, delimiter, c == 's') || !sedSection(&text, delimiter, false) {
				return false
			}
			text = strings.TrimLeft(text, "gpIi0123456789")
			if text != "" && strings.IndexByte(" \t\n;}", text[0]) < 0 {
				return false
			}
		case strings.IndexByte("pPdDqQhHgGxnNlz=", c) < 0:
			return false
		}
	}
}

// sedSection goes past the next delimiter, which in the brackets of a regular expression is none.
func sedSection(text *string, delimiter byte, brackets bool) bool {
	in := false
	for i := 0; i < len(*text) && (*text)[i] != '\n'; i++ {
		rest := (*text)[i:]
		switch c := rest[0]; {
		case c == '\\':
			if in && strings.HasPrefix(rest, `\]`) {
				return false // seds differ
			}
			i++
		case c == delimiter && !in:
			*text = rest[1:]
			return true
		case in && strings.HasPrefix(rest, "[:"):
			end := strings.Index(rest, ":]")
			if end < 0 {
				return false
			}
			i += end + 1
		case in && c == ']':
			in = false
		case brackets && !in && c == '[':
			if strings.HasPrefix(rest, "[]") || strings.HasPrefix(rest, "[^]") {
				return false
			}
			in = true
		case in && c == '[':
			return false
		}
	}
	return false
}

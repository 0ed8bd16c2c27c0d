package policy

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// meaning are variables by which shells, the loader and other programs run something else than what is
// written, or read other files that say what to run.
var meaning = set("BASH_ENV ENV PS0 PS1 PS2 PS4 SHELLOPTS BASHOPTS PROMPT_COMMAND BASH_LOADABLES_PATH BASH_CMDS BASH_ALIASES POSIXLY_CORRECT PATH FPATH ZDOTDIR " +
	"HOME XDG_CONFIG_HOME GCONV_PATH GLIBC_TUNABLES LOCPATH PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONUSERBASE PYTHONBREAKPOINT PYTHONWARNINGS " +
	"PERL5LIB PERL5OPT PERLLIB PERL5DB PERL5DBOPT RUBYOPT RUBYLIB NODE_OPTIONS NODE_PATH JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH PHPRC PHP_INI_SCAN_DIR " +
	"LUA_INIT LUA_PATH LUA_CPATH AWKPATH AWKLIBPATH TAR_OPTIONS MAKEFLAGS MFLAGS MAKEFILES GNUMAKEFLAGS GOFLAGS RUSTC_WRAPPER OPENSSL_CONF " +
	"GIT_DIR GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_CONFIG LESS LESSKEY LESSOPEN LESSCLOSE MANOPT MANROFFOPT MORE VIMINIT EXINIT INPUTRC RIPGREP_CONFIG_PATH WGETRC CURL_HOME RPM_CONFIGDIR " +
	"KUBECONFIG DOCKER_CONFIG ANSIBLE_CONFIG PSQLRC PGSYSCONFDIR")

// commanding are variables whose value is a command that other programs run.
var commanding = set("PAGER EDITOR VISUAL FCEDIT BROWSER SHELL MANPAGER SYSTEMD_PAGER SYSTEMD_EDITOR SUDO_EDITOR KUBE_EDITOR KUBECTL_EXTERNAL_DIFF PSQL_PAGER PSQL_EDITOR CRONTAB_EDITOR " +
	"GIT_SSH GIT_SSH_COMMAND GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS " +
	"RSYNC_RSH RSYNC_CONNECT_PROG CVS_RSH SVN_SSH SVN_EDITOR HGEDITOR BORG_RSH TAPE_RSH RSH CC CXX CPP LD AR AS MAKE MAKESHELL PYTHON PERL")

// changes reports whether a variable changes what is run, by more than its own value.
func changes(name string) bool {
	for _, family := range [...]string{"LD_", "DYLD_", "BASH_FUNC_", "GIT_CONFIG_", "BASH_ARGV"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return meaning[name]
}

// numeric are the variables of shells that are numbers unless a script sets them.
var numeric = set("RANDOM SRANDOM SECONDS LINENO EPOCHSECONDS UID EUID PPID COLUMNS LINES OPTIND OPTERR HISTCMD BASHPID SHLVL BASH_SUBSHELL")

// variables are those that a request sets, and those that arithmetic is done with: bash evaluates what it finds in
// such a one, and with that the commands in its subscripts. One that can hold other than a number makes what
// is run unknown.
type variables struct {
	words   map[string]bool // the variables that were set; true: to what may be no number
	counted []counted
}

type counted struct {
	name, text string
	at         site
}

// sets notes that a variable gets a value.
func (s *scripts) sets(name string, number bool) {
	if s.vars.words == nil {
		s.vars.words = map[string]bool{}
	}
	s.vars.words[name] = s.vars.words[name] || !number
}

// assigned is for a variable that gets a value, which is what of w follows the name.
func (s *scripts) assigned(name string, value word, number bool) {
	s.sets(name, number)
	switch {
	case name == "PATH" && s.standardPath(value):
	case changes(name):
		s.dynamic("it sets " + name + ", which changes what is run" + s.place())
	case commanding[name] && !value.known:
		s.unknown(name)
	case commanding[name]:
		s.nested(value.text)
	}
}

// standardPath reports whether a PATH has the system's folders alone.
func (s *scripts) standardPath(value word) bool {
	text := value.text
	if value.node != nil {
		text = s.source(value.node)
	}
	text = strings.Trim(strings.TrimPrefix(strings.Trim(text, `"'`), "PATH="), `"'`)
	for folder := range strings.SplitSeq(text, ":") {
		if !slices.Contains([]string{"$PATH", "${PATH}", "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}, folder) {
			return false
		}
	}
	return true
}

// assign reads an assignment of the script.
func (s *scripts) assign(a *syntax.Assign) {
	if a.Name == nil {
		return
	}
	if a.Index != nil {
		s.arithmetic(a.Index)
	}
	value, number := word{known: true, single: true}, a.Value == nil || isNumber(a.Value.Parts)
	if a.Value != nil {
		value = readWord(a.Value)
	}
	if a.Array != nil {
		value.known = false
		for _, e := range a.Array.Elems {
			number = number && e.Value != nil && isNumber(e.Value.Parts)
			if e.Index != nil {
				s.arithmetic(e.Index)
			}
		}
	}
	if !a.Naked {
		s.assigned(a.Name.Value, value, number)
	}
}

// declared reads the words of declare, export and their kind, as far as they are no assignments of the parser's.
func (s *scripts) declared(d *syntax.DeclClause) {
	var options string
	for _, a := range d.Args {
		if a.Naked && a.Name == nil && a.Value != nil {
			w := readWord(a.Value)
			if len(w.text) > 1 && (w.text[0] == '-' || w.text[0] == '+') {
				options += w.text
			}
			s.declaredWord(w, options)
			continue
		}
		if a.Name != nil && strings.ContainsAny(options, "i") {
			s.counts(a.Name.Value, a.Name.Value)
		}
	}
	if d.Variant.Value != "export" && strings.Contains(options, "n") {
		s.unknown(s.source(d)) // a name for another variable
	}
}

// declaredWord is one word of declare that the parser has not read.
func (s *scripts) declaredWord(w word, options string) {
	name, value, sets := strings.Cut(w.text, "=")
	switch {
	case !sets && !w.known, strings.ContainsAny(name, "[`$"):
		s.unknown(s.textOf([]word{w}))
	case sets:
		name = strings.TrimSuffix(name, "+")
		s.assigned(name, word{text: value, known: w.known, node: w.node}, w.known && isNumeric(value))
		if strings.Contains(options, "i") {
			s.counts(name, name)
		}
	}
}

// isNumber reports whether a word of the script is a number, whatever it expands to.
func isNumber(parts []syntax.WordPart) bool {
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if !isNumeric(p.Value) {
				return false
			}
		case *syntax.SglQuoted:
			if !isNumeric(p.Value) {
				return false
			}
		case *syntax.DblQuoted:
			if !isNumber(p.Parts) {
				return false
			}
		case *syntax.ArithmExp:
		case *syntax.ParamExp:
			if !isCount(p) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func isNumeric(text string) bool { return strings.Trim(text, "0123456789 \t\n+-*/%.,:{}") == "" }

// isCount reports whether an expansion is a number always: ${#x}, $?, $$ and their kind.
func isCount(p *syntax.ParamExp) bool {
	if p.Param == nil || p.Excl {
		return false
	}
	return p.Length || slices.Contains([]string{"#", "?", "$", "!"}, p.Param.Value) && p.Exp == nil
}

// arithmetic reads an expression, which may be nil.
func (s *scripts) arithmetic(x syntax.ArithmExpr) {
	if x == nil {
		return
	}
	syntax.Walk(x, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Lit:
			s.expression(n.Value)
		case *syntax.ParamExp:
			switch {
			case isCount(n):
			case n.Excl || n.Param == nil || n.Repl != nil:
				s.unknown(s.source(n))
			default:
				s.counts(n.Param.Value, s.source(n))
				if n.Exp != nil && n.Exp.Word != nil && n.Exp.Op < syntax.RemSmallSuffix && !isNumber(n.Exp.Word.Parts) {
					s.unknown(s.source(n))
				}
			}
			return false
		case *syntax.ArithmExp: // it is read on its own, and gives a number
			return false
		case *syntax.CmdSubst, *syntax.SglQuoted, *syntax.ProcSubst, *syntax.ExtGlob:
			s.unknown(s.source(n))
			return false
		}
		return true
	})
}

// expression is for a text that bash takes for arithmetic.
func (s *scripts) expression(text string) {
	if strings.ContainsAny(text, "[`$'\"\\") {
		s.unknown(text)
		return
	}
	for name := range strings.FieldsFuncSeq(text, func(c rune) bool {
		return c != '_' && c < 0x80 && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}) {
		if name[0] < '0' || name[0] > '9' {
			s.counts(name, name)
		}
	}
}

// counts notes that arithmetic is done with a variable.
func (s *scripts) counts(name, text string) {
	s.vars.counted = append(s.vars.counted, counted{name, text, s.at})
}

// evaluated says at the end which of the variables that arithmetic is done with can hold other than numbers.
func (s *scripts) evaluated() {
	for _, c := range s.vars.counted {
		word, set := s.vars.words[c.name]
		upper := strings.ToUpper(c.name) == c.name // positional parameters, and what shells set themselves
		if word || !set && upper && !numeric[c.name] {
			s.at = c.at
			s.dynamic("arithmetic is done with what `" + shortened(c.text) + "` holds, and bash runs the commands in a subscript there" + s.place())
			return
		}
	}
}

// expansion looks at an expansion of a variable.
func (s *scripts) expansion(p *syntax.ParamExp) {
	s.arithmetic(p.Index)
	if p.Slice != nil {
		s.arithmetic(p.Slice.Offset)
		s.arithmetic(p.Slice.Length)
	}
	if p.Exp == nil || p.Param == nil {
		return
	}
	switch p.Exp.Op {
	case syntax.OtherParamOps:
		if p.Exp.Word == nil || p.Exp.Word.Lit() == "P" {
			s.unknown(s.source(p)) // a prompt's text, which has its substitutions run
		}
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		value, number := word{known: true}, true
		if p.Exp.Word != nil {
			value, number = readWord(p.Exp.Word), isNumber(p.Exp.Word.Parts)
		}
		s.assigned(p.Param.Value, value, number)
	}
}

// compared looks at a test of [[ ]] that is arithmetic.
func (s *scripts) compared(t *syntax.BinaryTest) {
	switch t.Op {
	case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
		for _, side := range [...]syntax.TestExpr{t.X, t.Y} {
			if w, ok := side.(*syntax.Word); ok {
				s.arithmetic(w)
			}
		}
	}
}

// naming are words of shells that are given names of variables, and their options: a subscript in a name is
// evaluated.
var naming = map[string]wrapper{
	"read": {flags: "ersa", valued: "dinNptu"}, "mapfile": {flags: "t", valued: "dnOsu"}, "readarray": {flags: "t", valued: "dnOsu"},
	"unset": {flags: "fvn"}, "getopts": {operands: 1},
}

// variablesNamed reads the words of those.
func (s *scripts) variablesNamed(name string, args []word) {
	switch name {
	case "let":
		for _, a := range args {
			if !a.known {
				s.unknown(s.textOf(args))
				return
			}
			s.expression(a.text)
		}
	case "declare", "typeset", "local", "export", "readonly", "integer":
		s.declaredWords(name, args)
	case "printf", "wait", "test", "[", "[[":
		s.named(name, args)
	default:
		w, ok := naming[name]
		if !ok {
			return
		}
		rest, read := s.options(w, args)
		if read != toTheEnd {
			s.unknown(s.textOf(args))
			return
		}
		if len(rest) == 0 && name == "read" {
			s.sets("REPLY", false)
		}
		for _, a := range rest[min(w.operands, len(rest)):] {
			s.variable(a, name == "unset")
		}
	}
}

func (s *scripts) declaredWords(name string, args []word) {
	var options string
	for _, a := range args {
		if len(a.text) > 1 && (a.text[0] == '-' || a.text[0] == '+') {
			options += a.text
		}
		s.declaredWord(a, options)
	}
	if name != "export" && strings.Contains(options, "n") {
		s.unknown(s.textOf(args))
	}
}

// named reads the options of printf, wait and test that take a variable's name: -v, -p, and -v and -R.
func (s *scripts) named(name string, args []word) {
	letters := map[string]string{"printf": "v", "wait": "p"}[name]
	for i, a := range args {
		switch {
		case letters == "": // test
			if i > 0 && (args[i-1].text == "-v" || args[i-1].text == "-R") && !(a.known && !strings.ContainsAny(a.text, "[$`")) {
				s.unknown(s.textOf(args))
			}
			if name == "[[" && a.known && strings.ContainsAny(a.text, "[") {
				s.expression(a.text)
			}
		case i == 0 && !a.known && (a.text == "" || a.text[0] == '-'):
			if !a.single && name == "printf" || a.expands {
				s.unknown(s.textOf(args))
			}
		case i == 0 && strings.HasPrefix(a.text, "-"+letters) && len(a.text) > 2:
			s.variable(word{text: a.text[2:], known: a.known}, false)
		case i > 0 && args[i-1].text == "-"+letters:
			s.variable(a, false)
		}
	}
}

// variable is for a word that names one, which gets a value that nobody knows.
func (s *scripts) variable(a word, unset bool) {
	subscripted := strings.Contains(a.text, "[") && strings.Trim(a.text[strings.Index(a.text, "["):], "[0123456789]@*") != ""
	if !a.known || subscripted {
		s.unknown(s.textOf([]word{a}))
		return
	}
	switch {
	case !unset:
		s.assigned(a.text, word{}, false)
	case changes(a.text):
		s.dynamic("it unsets " + a.text + ", which changes what is run" + s.place())
	}
}

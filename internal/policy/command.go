package policy

import (
	"cmp"
	pathpkg "path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxWrapped bounds how many programs may stand before the one that is meant.
const maxWrapped = 32

// command notes what a simple command would run: its program, and those that it is told to run.
func (s *scripts) command(words []word, redirects []*syntax.Redirect) {
	defer func(was bool) { s.at.elsewhere = was }(s.at.elsewhere)
	for range maxWrapped {
		if len(words) == 0 {
			return
		}
		if first := words[0].text; !words[0].known || first == "" || first[0] == '~' && !strings.Contains(first, "/") {
			s.unknown(s.textOf(words))
			return
		}
		name := words[0].text[strings.LastIndexByte(words[0].text, '/')+1:]
		s.name(name)
		if s.at.fed && partial[name] {
			s.unknown(name)
		}
		if isOwnFile(words[0].text) {
			s.file(words[0].text)
			s.out.Beyond = true
		}
		s.habits(name, words[1:], s.textOf(words))
		next, goesOn := s.inside(name, words[1:], redirects)
		if !goesOn {
			return
		}
		words = next
	}
	s.dynamic("more programs stand before a command than are looked through" + s.place())
}

// isOwnFile reports whether a program is named by a path outside of where a system has its programs.
func isOwnFile(path string) bool {
	if !strings.Contains(path, "/") {
		return false
	}
	clean := pathpkg.Clean(path)
	for _, folder := range [...]string{"/bin/", "/sbin/", "/usr/"} {
		if strings.HasPrefix(clean, folder) && !strings.HasPrefix(clean, "/usr/local/") && !strings.Contains(path, "/../") {
			return false
		}
	}
	return true
}

// inside reads the words of a program that runs others. Those that it runs itself, by their words, come back.
func (s *scripts) inside(name string, args []word, redirects []*syntax.Redirect) (next []word, goesOn bool) {
	switch name {
	case "su", "runuser", "sg":
		return s.su(name, args)
	case "ssh":
		s.ssh(args, redirects)
	case "find":
		s.findCommands(args)
	case "eval":
		s.joined(args)
	case ".", "source":
		s.sourced(args)
	case "trap":
		s.trap(args)
	case "alias":
		s.aliases(args)
	case "at", "batch":
		if slices.ContainsFunc(args, func(a word) bool { return !a.known || strings.HasPrefix(a.text, "-") && strings.Contains(a.text, "f") }) {
			s.unknown(s.textOf(args))
			break
		}
		s.fromInput(redirects)
	case "command":
		if len(args) > 0 && (args[0].text == "-v" || args[0].text == "-V") {
			return nil, false // it looks, and runs nothing
		}
		return s.unwrap(wrappers[name], args, redirects)
	case "start-stop-daemon":
		s.startStopDaemon(args)
	case "sed", "gsed":
		s.sed(args)
	default:
		switch {
		case shells[name]:
			s.shell(args, redirects)
			return nil, false
		case opaque[name], otherShells[name], loader(name):
			s.unknown(name)
			return nil, false
		}
		s.variablesNamed(name, args)
		if h, ok := hidings[name]; ok {
			s.hidden(name, h, args)
		}
		w, wraps := wrappers[name]
		if !wraps {
			return nil, false
		}
		return s.unwrap(w, args, redirects)
	}
	return nil, false
}

// unwrap reads the options of a wrapper.
func (s *scripts) unwrap(w wrapper, args []word, redirects []*syntax.Redirect) (command []word, goesOn bool) {
	given := args
	args, read := s.options(w, args)
	switch read {
	case unreadable:
		s.unknown(s.textOf(args))
		return nil, false
	case aScript:
		return nil, false
	}
	if hasWithin(w, given[:len(given)-len(args)]) {
		s.unknown(s.textOf(given))
		return nil, false
	}
	for range w.operands {
		if len(args) == 0 {
			return nil, false
		}
		if !args[0].single {
			s.unknown(s.textOf(args))
			return nil, false
		}
		args = args[1:]
		if w.script != "" && len(args) > 0 && strings.HasPrefix(args[0].text, "-") { // flock FILE -c SCRIPT
			if len(args) == 2 && args[0].text == "-"+w.script {
				s.joined(args[1:])
			} else {
				s.unknown(s.textOf(args))
			}
			return nil, false
		}
	}
	for w.assigns && len(args) > 0 && args[0].single && strings.Contains(args[0].text, "=") {
		name, value, _ := strings.Cut(args[0].text, "=")
		s.assigned(name, word{text: value, known: args[0].known, node: args[0].node}, false)
		args = args[1:]
	}
	if w.shell {
		s.joined(args)
		return nil, false
	}
	switch {
	case w.shellOnly:
		s.fromInput(redirects)
		return nil, false
	case len(args) == 0 && w.shellAlone:
		s.fromInput(redirects)
	case w.appends && len(args) > 0:
		mark := "{}"
		for i, g := range given[:len(given)-len(args)] { // xargs -I MARK
			if _, own, ok := strings.Cut(g.text, "I"); ok && g.text[0] == '-' && g.text[1] != '-' {
				mark = cmp.Or(own, given[i+1].text)
			}
		}
		args = append(replaced(replaced(args, "{}"), mark), word{expands: true})
	}
	return args, len(args) > 0
}

// hasWithin reports whether one of a wrapper's options runs something, or may.
func hasWithin(w wrapper, options []word) bool {
	return w.within != "" && slices.ContainsFunc(options, func(o word) bool {
		return !o.known || slices.ContainsFunc(strings.Fields(w.within), func(part string) bool {
			return strings.Contains(strings.ToLower(o.text), strings.ToLower(part))
		})
	})
}

// replaced are words in which another program puts something for a mark.
func replaced(args []word, mark string) []word {
	args = slices.Clone(args)
	for i := range args {
		if before, _, ok := strings.Cut(args[i].text, mark); ok {
			args[i].text, args[i].known = before, false
		}
	}
	return args
}

func isAssignment(text string) bool {
	name, _, ok := strings.Cut(text, "=")
	return ok && name != "" && strings.IndexFunc(name, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}) < 0
}

// reading is how far the options of a wrapper could be read.
type reading int

const (
	unreadable reading = iota
	aScript            // one of them had a script, which was read
	toTheEnd
)

// options goes past the options of a wrapper, or stops at one that it cannot read.
func (s *scripts) options(w wrapper, args []word) (rest []word, read reading) {
	for len(args) > 0 {
		a, took := args[0], 1
		switch {
		case !a.known:
			operand := a.text != "" && a.text[0] != '-' && (w.operands > 0 || w.assigns && isAssignment(a.text))
			if !a.single || !operand {
				return args, unreadable
			}
			return args, toTheEnd
		case a.text == "--":
			return args[1:], toTheEnd
		case a.text == "-" && strings.Contains(w.flags, "-"):
		case len(a.text) < 2 || a.text[0] != '-':
			return args, toTheEnd
		case strings.HasPrefix(a.text, "--"):
			took, read = s.long(w, args)
		default:
			took, read = s.letters(w, args)
		}
		switch {
		case read == aScript:
			return nil, aScript
		case took == 0 || took > 1 && (len(args) < took || !args[1].single):
			return args, unreadable
		}
		args = args[took:]
	}
	return nil, toTheEnd
}

// long reads a long option. It says how many words it takes, 0 where it is not known.
func (s *scripts) long(w wrapper, args []word) (took int, read reading) {
	name, value, given := strings.Cut(args[0].text[2:], "=")
	switch {
	case name == "split-string" && w.script == "S", name == "command" && w.script == "c":
		words := args[1:]
		if given {
			words = append([]word{{text: value, known: true, single: true}}, words...)
		}
		s.told(w, words)
		return 0, aScript
	case set(w.longWith)[name] && !given:
		return 2, unreadable
	case set(w.long)[name], set(w.longWith)[name]:
		return 1, unreadable
	}
	return 0, unreadable
}

// letters reads one word of short options, as long does.
func (s *scripts) letters(w wrapper, args []word) (took int, read reading) {
	cluster := args[0].text[1:]
	for i := range len(cluster) {
		letter, rest := cluster[i:i+1], cluster[i+1:]
		switch {
		case letter == w.script:
			words := args[1:]
			if rest != "" {
				words = append([]word{{text: rest, known: true, single: true}}, words...)
			}
			s.told(w, words)
			return 0, aScript
		case strings.Contains(w.attached, letter), strings.Contains(w.valued, letter) && rest != "":
			return 1, unreadable
		case strings.Contains(w.valued, letter):
			return 2, unreadable
		case !strings.Contains(w.flags, letter):
			return 0, unreadable
		}
	}
	return 1, unreadable
}

// told reads the script of a wrapper's option, and what follows.
func (s *scripts) told(w wrapper, words []word) {
	switch {
	case w.script == "S":
		s.joined(append(knownWords([]string{"env"}), words...)) // its own options may stand there too
	case len(words) > 1 && anotherOption(words[1:]):
		s.unknown(s.textOf(words))
	default:
		s.joined(words[:min(1, len(words))])
	}
}

// joined reads words as a shell does that gets them with spaces between.
func (s *scripts) joined(words []word) {
	if len(words) == 0 {
		return
	}
	texts := make([]string, len(words))
	for i, w := range words {
		if !w.known {
			s.unknown(s.textOf(words))
			return
		}
		texts[i] = w.text
	}
	if texts[0] == "env" && strings.ContainsAny(strings.Join(texts, " "), "\\$#") {
		s.unknown(s.textOf(words)) // env -S reads these in its own way
		return
	}
	s.nested(strings.Join(texts, " "))
}

// nested has a text read that stands in a word of this place.
func (s *scripts) nested(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	at := s.at
	at.inside = true
	s.later(text, at)
}

// su takes its options anywhere: a script after -c, or a command after the options.
func (s *scripts) su(name string, args []word) (command []word, goesOn bool) {
	operands := 0
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !a.known {
			s.unknown(s.textOf(args))
			return nil, false
		}
		value, attached := "", false
		if strings.HasPrefix(a.text, "--") {
			_, value, attached = strings.Cut(a.text, "=")
		}
		option, _, _ := strings.Cut(a.text, "=")
		switch {
		case option == "--command" || option == "--session-command" || isLetters(a.text, "c"):
			rest := args[i+1:]
			if !attached {
				if len(rest) == 0 {
					return nil, false
				}
				s.joined(rest[:1])
				rest = rest[1:]
			}
			s.nested(value)
			if anotherOption(rest) {
				s.unknown(name)
			}
			return nil, false
		case a.text == "-u" && name == "runuser" || option == "--user" && !attached:
			rest := args[min(i+2, len(args)):]
			if len(rest) > 0 && rest[0].known && rest[0].text == "--" {
				rest = rest[1:]
			}
			return rest, len(rest) > 0
		case strings.ContainsAny(strings.TrimPrefix(option, "-"), "gGswT") && len(option) == 2 && option[0] == '-':
			i++
		case len(a.text) > 0 && a.text[0] != '-':
			if operands++; operands > 1 {
				s.unknown(s.textOf(args)) // words for the shell of that user
				return nil, false
			}
		}
	}
	s.fromInput(nil)
	return nil, false
}

// anotherOption reports whether an option stands behind a script, which may be another script, or a shell.
func anotherOption(args []word) bool {
	return slices.ContainsFunc(args, func(a word) bool { return !a.known || strings.HasPrefix(a.text, "-") && a.text != "-" })
}

// isLetters reports whether text is a word of short options that ends with one.
func isLetters(text, last string) bool {
	return len(text) > 1 && text[0] == '-' && text[1] != '-' && strings.HasSuffix(text, last)
}

var sshOptions = wrapper{flags: "46AaCfGgKkMNnqsTtVvXxYy", valued: "BbcDEeiJLlmOoPpQRSWw", operands: 1, within: "command proxy include pkcs11 securitykeyprovider xauth"}

func (s *scripts) ssh(args []word, redirects []*syntax.Redirect) {
	s.at.elsewhere = true
	rest, read := s.options(sshOptions, args)
	if read != toTheEnd {
		s.unknown(s.textOf(args))
		return
	}
	switch {
	case hasWithin(sshOptions, args[:len(args)-len(rest)]):
		s.unknown(s.textOf(args))
	case len(rest) == 1:
		s.fromInput(redirects)
	case len(rest) > 1:
		// ssh takes options behind the host too.
		if after, read := s.options(sshOptions, rest[1:]); read == toTheEnd && !hasWithin(sshOptions, rest[1:len(rest)-len(after)]) {
			s.joined(after)
			return
		}
		s.unknown(s.textOf(args))
	}
}

// findCommands reads the commands among the words of find.
func (s *scripts) findCommands(args []word) {
	for i := 0; i < len(args); i++ {
		if !args[i].single {
			if args[i].expands {
				s.unknown(s.textOf(args))
			}
			continue // folders, by a glob
		}
		if !args[i].known && (args[i].text == "" || args[i].text[0] == '-') && ends(args[i+1:]) {
			s.unknown(s.textOf(args)) // it may be -exec
			return
		}
		switch args[i].text {
		case "-exec", "-execdir", "-ok", "-okdir":
			end := i + 1
			for end < len(args) && !(args[end].known && (args[end].text == ";" || args[end].text == "+" && args[end-1].text == "{}")) {
				end++
			}
			if words := args[i+1 : end]; len(words) > 0 {
				s.command(replaced(words, "{}"), nil)
			}
			i = end
		}
	}
}

// ends reports whether the end of a command of find may be among some words.
func ends(args []word) bool {
	return slices.ContainsFunc(args, func(a word) bool { return !a.known && a.text == "" || a.text == ";" || a.text == "+" })
}

// trap has its first word run later.
func (s *scripts) trap(args []word) {
	if len(args) > 0 && args[0].known && args[0].text == "--" {
		args = args[1:]
	}
	if len(args) > 1 && !(args[0].known && (args[0].text == "-" || args[0].text == "-p" || args[0].text == "-l")) {
		s.joined(args[:1])
	}
}

func (s *scripts) aliases(args []word) {
	for _, a := range args {
		if !a.known {
			s.unknown(s.textOf(args))
			return
		}
		_, value, ok := strings.Cut(a.text, "=")
		if !ok {
			continue
		}
		if strings.ContainsFunc(value, func(c rune) bool { return c == ' ' || c == '\t' }) {
			s.unknown(s.textOf(args)) // it may run the words that it is used with
			return
		}
		s.nested(value)
	}
}

func (s *scripts) startStopDaemon(args []word) {
	for i, a := range args {
		option, value, attached := strings.Cut(a.text, "=")
		switch option {
		case "--exec", "-x", "--startas", "-a":
			if !attached {
				if i+1 == len(args) || !args[i+1].known {
					s.unknown(s.textOf(args))
					return
				}
				value = args[i+1].text
			}
			s.name(value)
		}
		if letters := strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--"); !a.known || letters && len(a.text) > 2 {
			s.unknown(s.textOf(args))
			return
		}
	}
}

// textOf is how some words stand in the script, or would be written.
func (s *scripts) textOf(words []word) string {
	if len(words) == 0 {
		return ""
	}
	if first, last := words[0].node, words[len(words)-1].node; first != nil && last != nil {
		from, to := int(first.Pos().Offset()), int(last.End().Offset())
		if from < to && to <= len(s.text) {
			return s.text[from:to]
		}
	}
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	return strings.Join(texts, " ")
}

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/longstop/longstop"
)

const (
	// maxScript bounds what is read of one request's scripts, those inside of others among them: it is
	// read while its caller waits. What is longer is not known.
	maxScript = 256 << 10
	// maxDepth bounds how deep a script may nest, in calls of the parser, which has no bound of its own.
	maxDepth    = 4000
	maxFindings = 50
	maxText     = 80
)

// Reading is what a request's command line and scripts say before they run.
type Reading struct {
	Commands []Command // each name once, where it stands first
	Dynamic  string    // why not all of its commands are known; empty: they are
	Beyond   bool      // it does what names do not tell: writes a file by a redirection, or runs one of its own
	Findings []longstop.Finding
}

// Command is a program that would be run: its name without folders.
type Command struct {
	Name         string
	Part         string // as in longstop.Finding
	Line, Column int    // 0: an argument
}

func (c Command) place() string { return place(c.Part, c.Line, c.Column) }

func place(part string, line, column int) string {
	at := ""
	if line > 0 {
		at = fmt.Sprintf("%d:%d", line, column)
	}
	switch {
	case part == "" && at == "":
		return ""
	case at == "":
		return " (" + part + ")"
	case part == "":
		return " (" + at + ")"
	}
	return " (" + part + " " + at + ")"
}

// spoken are the findings for those who have no policy: what is left behind, and what could not be read.
func (r *Reading) spoken() []longstop.Finding {
	return slices.DeleteFunc(r.Findings, func(f longstop.Finding) bool {
		return f.Kind == longstop.FindingDynamic || f.Kind == longstop.FindingFile
	})
}

// Read reads all that a request would run: its arguments or its script, and what it has checked before
// and after. A host's sh is dash on one and bash on another, so that each script is read as both would,
// and what either would run counts.
func Read(r *longstop.Request) *Reading {
	s := &scripts{request: r, budget: maxScript}
	if argv := arguments(r); len(argv) > 0 {
		s.at = site{}
		s.command(knownWords(argv), nil)
	}
	for _, part := range [...]struct{ name, text string }{{"", r.Script}, {"preflight", r.Preflight}, {"verify", r.Verify}} {
		if part.text != "" {
			s.later(part.text, site{part: part.name, text: part.text})
		}
	}
	for len(s.queue) > 0 {
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.script(next.text, next.at)
	}
	if r.Owner == longstop.OwnerNone && r.Script != "" {
		s.dynamic("a login shell that may be any reads its script")
	}
	for _, name := range r.Env {
		s.sets(name, false)
		if changes(name) || commanding[name] {
			s.dynamic("its environment sets " + name + ", which changes what is run")
		}
	}
	s.evaluated()
	return s.done()
}

func arguments(r *longstop.Request) []string {
	argv := r.Argv
	for _, arg := range r.ArgvB64 {
		argv = append(argv, string(arg))
	}
	return argv
}

// site is where something stands: in a script of the request, or inside of a word of that.
type site struct {
	part   string
	text   string // the request's script; empty: its arguments
	inside bool   // at offset stands the word that has all of it
	offset uint

	elsewhere bool // it is not this run that does it
	fed       bool // a shell reads it from its input
}

func (at site) lineAndColumn() (line, column int) {
	if at.text == "" {
		return 0, 0
	}
	before := at.text[:min(int(at.offset), len(at.text))]
	return 1 + strings.Count(before, "\n"), len(before) - strings.LastIndexByte(before, '\n')
}

type foundAt struct {
	part   string
	offset uint
	kind   longstop.FindingKind
}

type queued struct {
	text string
	at   site
}

// scripts reads the scripts of one request.
type scripts struct {
	request *longstop.Request
	queue   []queued
	budget  int             // bytes that may still be read
	seen    map[queued]bool // by text and part
	names   map[string]bool
	found   map[foundAt]bool
	out     Reading
	more    int // findings over maxFindings
	vars    variables

	at    site   // of what is being read
	text  string // that is being read; empty: arguments
	waits uint   // the offset of the last plain `wait`, 0: there is none
}

// later has a text read as a script, once.
func (s *scripts) later(text string, at site) {
	if key := (queued{text, site{part: at.part, fed: at.fed}}); !s.seen[key] {
		mark(&s.seen, key)
		s.queue = append(s.queue, queued{text, at})
	}
}

func (s *scripts) script(text string, at site) {
	s.at, s.text = at, text
	if s.budget -= len(text); s.budget < 0 {
		s.find(longstop.FindingUnread, "", "the script is too long to be read: what it leaves behind is not known before it runs")
		s.dynamic("the script is too long to be read")
		return
	}
	if strings.Contains(text, "\x00") {
		s.dynamic("it has a NUL byte, which shells leave out" + s.place())
	}
	if behind := behindComment(text); behind != "" {
		at := at
		at.inside = true
		s.later(behind, at)
	}
	var failed error
	read := false
	for _, shell := range []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX} {
		// The parser takes a backslash before CR LF for the end of a line that goes on. To shells it is none.
		stmts, err := parse(strings.ReplaceAll(text, "\\\r\n", "_\r\n"), shell)
		s.waits = lastWait(stmts)
		s.walk(stmts)
		s.at = at
		if err == nil {
			read = true
		} else if failed == nil {
			failed = err
		}
	}
	if !read {
		if e := (syntax.ParseError{}); errors.As(failed, &e) && !at.inside {
			s.at.offset = e.Pos.Offset()
			failed = errors.New(e.Text)
		}
		s.find(longstop.FindingUnread, "", fmt.Sprintf("this could not be read as a shell script (%v): what it leaves behind is not known before it runs", failed))
		s.dynamic("it could not be read as a shell script" + s.place())
		s.at = at
	}
}

// behindComment is what follows the first line that may be a comment and ends with a backslash: to the parser
// the line goes on, and to shells another begins.
func behindComment(text string) string {
	for rest := text; ; {
		line, after, more := strings.Cut(rest, "\n")
		if !more {
			return ""
		}
		for i := range len(line) {
			if line[i] == '#' && strings.HasSuffix(line, "\\") && (i == 0 || strings.IndexByte(" \t\r\f\v;&|()<>`", line[i-1]) >= 0) {
				return after
			}
		}
		rest = after
	}
}

// parse returns the statements up to the end or the first error: those are what a shell would have run
// by then.
func parse(text string, shell syntax.LangVariant) (stmts []*syntax.Stmt, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser failed: %v", p)
		}
	}()
	for st, err := range syntax.NewParser(syntax.Variant(shell)).StmtsSeq(shallow{strings.NewReader(text)}) {
		if err != nil {
			return stmts, err
		}
		stmts = append(stmts, st)
	}
	return stmts, nil
}

// shallow is a reader that fails once whoever reads from it is too deep in calls. The parser reads a
// block at a time, each of which can take it no further than its length.
type shallow struct{ io.Reader }

func (r shallow) Read(b []byte) (int, error) {
	var caller [1]uintptr
	if runtime.Callers(maxDepth, caller[:]) > 0 {
		return 0, errors.New("it is nested too deep")
	}
	return r.Reader.Read(b[:min(len(b), 512)])
}

// walk visits all that a shell would run of some statements.
func (s *scripts) walk(stmts []*syntax.Stmt) {
	for _, st := range stmts {
		syntax.Walk(st, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Stmt:
				s.statement(n)
			case *syntax.CoprocClause:
				// A name before no compound command is a command to bash.
				if call, simple := n.Stmt.Cmd.(*syntax.CallExpr); n.Stmt.Cmd == nil || simple && (n.Name != nil || len(call.Args) > 0 && isAssignment(readWord(call.Args[0]).text)) {
					s.on(n).unknown(s.source(n))
				}
				s.on(n).background(n, n)
			case *syntax.ProcSubst:
				s.on(n).find(longstop.FindingBackground, s.source(n), "is not waited for by the shell: "+s.left())
			case *syntax.DeclClause:
				s.on(n).name(n.Variant.Value)
				s.declared(n)
			case *syntax.Assign:
				s.on(n).assign(n)
			case *syntax.WordIter:
				numbers := n.InPos.IsValid() && !slices.ContainsFunc(n.Items, func(w *syntax.Word) bool { return !isNumber(w.Parts) })
				s.on(n).assigned(n.Name.Value, word{}, numbers)
			case *syntax.ParamExp:
				s.on(n).expansion(n)
			case *syntax.ArithmExp:
				s.on(n).arithmetic(n.X)
			case *syntax.ArithmCmd:
				s.on(n).arithmetic(n.X)
			case *syntax.LetClause:
				for _, x := range n.Exprs {
					s.on(n).arithmetic(x)
				}
			case *syntax.CStyleLoop:
				for _, x := range [...]syntax.ArithmExpr{n.Init, n.Cond, n.Post} {
					s.on(n).arithmetic(x)
				}
			case *syntax.BinaryTest:
				s.on(n).compared(n)
			case *syntax.UnaryTest:
				if w, ok := n.X.(*syntax.Word); ok && (n.Op == syntax.TsVarSet || n.Op == syntax.TsRefVar) {
					s.on(n).variable(readWord(w), true)
				}
			}
			return true
		})
	}
}

// writes reports whether a redirect can write to a file.
func writes(r *syntax.Redirect) bool {
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrInOut, syntax.RdrClob, syntax.AppClob, syntax.RdrAll, syntax.AppAll, syntax.RdrAllClob, syntax.AppAllClob:
		return r.Word.Lit() != "/dev/null"
	case syntax.DplOut:
		to := r.Word.Lit()
		return to == "" || strings.Trim(to, "0123456789") != "" && to != "-" && to != "/dev/null"
	}
	return false
}

// statement looks at a command, at how it is started and at what its redirects hold.
func (s *scripts) statement(st *syntax.Stmt) {
	s.out.Beyond = s.out.Beyond || slices.ContainsFunc(st.Redirs, writes)
	if st.Background || st.Disown {
		s.on(st).background(st, st.Cmd)
	}
	if call, ok := st.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 {
		s.on(call).command(readWords(call.Args), st.Redirs)
		for _, r := range st.Redirs { // to dash `a &>f b` is two commands
			i := slices.IndexFunc(call.Args, func(w *syntax.Word) bool { return w.Pos().After(r.Pos()) })
			if (r.Op == syntax.RdrAll || r.Op == syntax.AppAll) && i >= 0 {
				s.command(readWords(call.Args[i:]), nil)
			}
		}
	}
	s.redirects(st)
}

// on sets where the next findings stand.
func (s *scripts) on(n syntax.Node) *scripts {
	if !s.at.inside {
		s.at.offset = n.Pos().Offset()
	}
	return s
}

func (s *scripts) place() string {
	line, column := s.at.lineAndColumn()
	return place(s.at.part, line, column)
}

// name notes a program that would be run.
func (s *scripts) name(name string) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if name == "" || s.names[name] {
		return
	}
	if len(name) > maxName {
		s.dynamic("a program's name is longer than one can be" + s.place())
		return
	}
	mark(&s.names, name)
	line, column := s.at.lineAndColumn()
	s.out.Commands = append(s.out.Commands, Command{Name: name, Part: s.at.part, Line: line, Column: column})
}

// dynamic notes that not every command is known.
func (s *scripts) dynamic(why string) {
	if s.out.Dynamic == "" {
		s.out.Dynamic = why
	}
}

// unknown is for a command whose name is known when it runs.
func (s *scripts) unknown(text string) {
	text = cmp.Or(text, "this")
	s.dynamic("which program runs is known only when it runs" + s.place())
	s.find(longstop.FindingDynamic, text, "runs a program whose name is known only when it runs")
}

// find notes a finding, once for a place. With a text its words follow that, in quotes.
func (s *scripts) find(kind longstop.FindingKind, text, words string) {
	at := foundAt{s.at.part, s.at.offset, kind}
	if s.found[at] || s.at.elsewhere && kind != longstop.FindingDynamic && kind != longstop.FindingFile {
		return
	}
	mark(&s.found, at)
	if len(s.out.Findings) == maxFindings {
		s.more++
		return
	}
	line, column := s.at.lineAndColumn()
	if text = shortened(text); text != "" {
		words = "`" + text + "` " + words
	}
	s.out.Findings = append(s.out.Findings, longstop.Finding{Kind: kind, Words: words, Part: s.at.part, Line: line, Column: column, Text: text})
}

// mark puts a key into a set, which is made when it is needed: most requests have one command.
func mark[K comparable](set *map[K]bool, key K) {
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
}

// done puts all in the order of the request.
func (s *scripts) done() *Reading {
	slices.SortStableFunc(s.out.Findings, func(a, b longstop.Finding) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if s.more > 0 {
		s.out.Findings = append(s.out.Findings, longstop.Finding{Kind: longstop.FindingUnread,
			Words: fmt.Sprintf("%d more findings are not listed", s.more)})
	}
	return &s.out
}

// shortened is a text on one line, bounded.
func shortened(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

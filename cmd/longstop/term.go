package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// talk is stderr: lines for people, dim on a terminal, plain in a pipe, gone with --quiet. Errors
// are said always.
type talk struct {
	file  *os.File
	tty   bool
	dim   bool
	quiet bool

	mu sync.Mutex
	// midline says that the terminal's cursor stands behind a part of a line that the workload wrote.
	midline bool
}

func newTalk(f *os.File) *talk {
	tty := isTerminal(f)
	return &talk{file: f, tty: tty, dim: tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// note says one line. What it is made of must have been through plain where it came from outside.
func (t *talk) note(format string, args ...any) {
	if !t.quiet {
		t.must(format, args...)
	}
}

// must is note for what explains an exit status that is not the work's own: --quiet does not hide it.
func (t *talk) must(format string, args ...any) {
	line := "· " + fmt.Sprintf(format, args...)
	if t.dim {
		line = "\x1b[2m" + line + "\x1b[0m"
	}
	t.write(line + "\n")
}

// problem says an error's lines.
func (t *talk) problem(lines string) { t.write(lines) }

func (t *talk) write(s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.midline && t.tty {
		s = "\n" + s
	}
	t.midline = false
	t.file.WriteString(s) // nobody is left to tell when stderr is gone
}

// wrote tells talk what the workload just wrote to a terminal, so that a note begins on a line of
// its own.
func (t *talk) wrote(data []byte) {
	t.mu.Lock()
	t.midline = len(data) > 0 && data[len(data)-1] != '\n'
	t.mu.Unlock()
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// terminalHere is what a run's terminal is to be like: the first of the files that is one, or unknown.
func terminalHere(files ...*os.File) *longstop.Terminal {
	for _, f := range files {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Row > 0 && size.Col > 0 {
			return &longstop.Terminal{Rows: int(size.Row), Columns: int(size.Col), Term: os.Getenv("TERM")}
		}
	}
	return &longstop.Terminal{}
}

// width is how many columns a terminal has; 0 where f is none, and nothing is to be cut.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err == nil && size.Col > 0 {
		return int(size.Col)
	}
	if isTerminal(f) {
		if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
			return columns
		}
		return 80
	}
	return 0
}

// plain makes text from outside harmless in a line of ours: what a terminal could obey (control
// characters, escape sequences, direction overrides), what it shows nothing of, and what is not UTF-8 is shown
// by number.
func plain(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !visible(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\r':
			out.WriteString(`\r`)
		case visible(r):
			out.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		i += size
	}
	return out.String()
}

// visible is what a terminal shows something of. U+2800 is the empty pattern of Braille.
func visible(r rune) bool {
	return unicode.IsPrint(r) && r != 0x2800 && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// plainLines is plain for text of several lines, which stay lines, the later ones indented.
func plainLines(s, indent string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plain(strings.TrimRight(lines[i], "\r"))
	}
	return strings.Join(lines, "\n"+indent)
}

// cut shortens text to a number of columns, at least one, marking what is gone. It counts runes, which
// wide ones make an approximation.
func cut(s string, columns int) string {
	if utf8.RuneCountInString(s) <= columns {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(columns-1, 0)]) + "…"
}

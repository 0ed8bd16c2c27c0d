package demo

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// page is where the story appears: titles at the margin, what was typed and what was printed
// indented below, what was seen marked by an arrow.
type page struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *page) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *page) title(format string, args ...any) { p.line("\n"+format, args...) }
func (p *page) say(format string, args ...any)   { p.line("  "+format, args...) }
func (p *page) seen(format string, args ...any)  { p.line("  → "+format, args...) }

// typed shows a command as a person would type it.
func (p *page) typed(words ...string) {
	for i, w := range words {
		words[i] = shellWord(w)
	}
	p.line("  $ %s", strings.Join(words, " "))
}

// shellWord quotes a word where a shell would need it.
func shellWord(w string) string {
	if w != "" && !strings.ContainsAny(w, " \t\n'\"\\$`;&|<>()*?[]{}~#!") {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// printed returns a writer that shows a command's output line by line as it comes, indented.
func (p *page) printed() *lines { return &lines{page: p} }

// lines shows whole lines and keeps all of them.
type lines struct {
	page *page
	mu   sync.Mutex
	part []byte
	all  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	l.part = append(l.part, b...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if l.page != nil {
			l.page.line("  %s", line)
		}
		l.part = rest
	}
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// has waits for nothing: whether the text came already.
func (l *lines) has(text string) bool { return strings.Contains(l.text(), text) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

package runner

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

func (l *lab) onTerminal(script string) wire.Submit {
	return l.request(longstop.Request{Script: script, PTY: true})
}

// C068: on a terminal both streams are one, lines end as terminals end them, and the record says so.
func TestC068Terminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.onTerminal(`test -t 0 && test -t 1 && test -t 2 && echo three; echo out; echo err >&2; stty size; echo $TERM
		: < /dev/tty && echo controlling; test "$(ps -o tpgid= -p $$)" -eq $$ && echo foreground; exit 3`)
	sub.Terminal = &longstop.Terminal{Rows: 50, Columns: 132, Term: "xterm-256color"}
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 3) || !rec.Output.Merged || rec.Output.Stream != longstop.StreamComplete || rec.Output.StderrBytes != 0 || len(rec.Anomalies) > 0 {
		t.Errorf("%s", show(rec))
	}
	want := "three\r\nout\r\nerr\r\n50 132\r\nxterm-256color\r\ncontrolling\r\nforeground\r\n"
	if got := l.stdout(sub.RunID); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Nobody types: who reads the terminal finds its end, each time. Without a word of how it is to be, it is
// 80 columns wide.
func TestTerminalHasNoInput(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.onTerminal("cat; read x || echo end; cat </dev/tty; stty size; echo $TERM")
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 0) || l.stdout(sub.RunID) != "end\r\n24 80\r\ndumb\r\n" {
		t.Errorf("%q: %s", l.stdout(sub.RunID), show(rec))
	}
}

// Standard input that was sent is still standard input.
func TestTerminalWithInput(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.onTerminal("cat; test -t 1 && echo terminal")
	if _, err := l.f.Spool(sub.RunID, 0, []byte("given\n")); err != nil {
		t.Fatal(err)
	}
	sub.Request.StdinBytes = 6
	l.submit(sub)
	if rec := l.final(sub.RunID); l.stdout(sub.RunID) != "given\r\nterminal\r\n" {
		t.Errorf("%q: %s", l.stdout(sub.RunID), show(rec))
	}
}

// When the main process ends the kernel hangs up the others: those that let it are gone; those that do not
// are waited for, and what they write is kept. The record says so.
func TestTerminalIsHungUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for script, left := range map[string]bool{
		"sleep 60 & exit 4": false,
		"(trap '' HUP; echo up > up; while ! [ -e go ]; do sleep 0.02; done; echo late) & while ! [ -e up ]; do sleep 0.01; done; exit 4": true,
	} {
		sub := l.onTerminal(script)
		l.submit(sub)
		if left {
			l.state(sub.RunID, longstop.WorkloadLingering)
			l.touch("go")
		}
		rec := l.final(sub.RunID)
		// Who is gone before the main process is seen to be has left no trace.
		said := len(rec.Anomalies) == 1 && strings.Contains(rec.Anomalies[0], "hung up")
		if !exited(rec, 4) || left && !said || len(rec.Anomalies) > 1 {
			t.Errorf("%q: %s", script, show(rec))
		}
		if left != (l.stdout(sub.RunID) == "late\r\n") {
			t.Errorf("%q wrote %q", script, l.stdout(sub.RunID))
		}
	}
}

// Much output, of which the last is written just before the end, is all there; the owner dies meanwhile
// without loss of what is written after it.
func TestTerminalOutputIsWhole(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.onTerminal("seq 200000; exit 2")
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 2) || !strings.HasSuffix(l.stdout(sub.RunID), "\r\n199999\r\n200000\r\n") || strings.Count(l.stdout(sub.RunID), "\r\n") != 200000 {
		t.Errorf("%d bytes: %s", len(l.stdout(sub.RunID)), show(rec))
	}
	sub = l.onTerminal("echo before; touch begun; while ! [ -e go ]; do sleep 0.01; done; seq 1000; exit 2")
	l.submit(sub)
	eventually(t, "the first line", func() bool { return l.exists("begun") && l.stdout(sub.RunID) == "before\r\n" })
	boundary.Signal(l.mustOwner(sub.RunID), unix.SIGKILL)
	l.state(sub.RunID, longstop.WorkloadOrphaned)
	l.touch("go")
	rec := l.final(sub.RunID)
	if got := l.stdout(sub.RunID); !exited(rec, 2) || rec.Writer.Kind != longstop.WriterKeeper || !rec.Output.Merged || strings.Count(got, "\r\n") != 1001 || !strings.HasSuffix(got, "\r\n1000\r\n") {
		t.Errorf("%d bytes: %s", len(got), show(rec))
	}
}

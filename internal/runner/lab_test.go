package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// lab is a state folder of a test's own, with whatever lives in it: all of it is gone when the test
// is over, however that ends.
type lab struct {
	t      testing.TB
	f      *record.Folder
	dir    string // for files of the workloads
	runs   []longstop.RunID
	secret map[longstop.RunID][]byte
}

func newLab(t testing.TB) *lab {
	t.Helper()
	base := t.TempDir()
	f, err := record.Create(filepath.Join(base, "state"))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, f: f, dir: filepath.Join(base, "work"), secret: map[longstop.RunID][]byte{}}
	if err := os.Mkdir(l.dir, 0700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.clear)
	return l
}

// clear ends everything of the lab's: workloads by their mark, owners and keeper by their sockets.
func (l *lab) clear() {
	holds.Lock()
	delete(holds.by, l.f.Dir())
	holds.Unlock()
	for round, quiet := 0, 0; round < 100 && quiet < 3; round++ {
		left := 0
		for _, run := range l.runs {
			for _, s := range boundary.Marked(run, 0) {
				boundary.Signal(s.Identity, unix.SIGKILL)
				left++
			}
			if id, ok := l.owner(run); ok {
				for _, s := range boundary.Descendants(id.PID) {
					boundary.Signal(s.Identity, unix.SIGKILL)
				}
				boundary.Signal(id, unix.SIGKILL)
				left++
			}
		}
		if id, ok := l.keeper(); ok {
			for _, s := range boundary.Descendants(id.PID) {
				boundary.Signal(s.Identity, unix.SIGKILL)
			}
			boundary.Signal(id, unix.SIGKILL)
			left++
		}
		if quiet++; left > 0 { // a keeper that was being started listens a moment later
			quiet = 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	l.f.Close()
	if home, err := cgroupHome(); err == nil {
		home.Sweep()
	}
}

// keeper is the process behind the lab's keeper's socket.
func (l *lab) keeper() (boundary.Identity, bool) { return listening(l.f.FD(), keeperSocket()) }

// owner is the process behind a run's owner.sock.
func (l *lab) owner(id longstop.RunID) (boundary.Identity, bool) {
	run, err := l.f.Run(id)
	if err != nil {
		return boundary.Identity{}, false
	}
	defer run.Close()
	return listening(run.DirFD(), ownerSocket)
}

func listening(dir int, name string) (boundary.Identity, bool) {
	s, known := listensAt(dir, name)
	return s.Identity, known
}

func (l *lab) mustKeeper() boundary.Identity {
	l.t.Helper()
	id, ok := l.keeper()
	if !ok {
		l.t.Fatal("no keeper")
	}
	return id
}

func (l *lab) mustOwner(run longstop.RunID) boundary.Identity {
	l.t.Helper()
	id, ok := l.owner(run)
	if !ok {
		l.t.Fatal("no owner")
	}
	return id
}

// script is a submit of a shell script.
func (l *lab) script(script string) wire.Submit {
	return l.request(longstop.Request{Script: script})
}

func (l *lab) argv(argv ...string) wire.Submit { return l.request(longstop.Request{Argv: argv}) }

func (l *lab) request(req longstop.Request) wire.Submit {
	id := longstop.NewRunID()
	l.runs = append(l.runs, id)
	secret := make([]byte, 32)
	rand.Read(secret)
	l.secret[id] = secret
	req.Lifetime, req.GraceS = longstop.Detached, 5
	if req.Leftover == "" {
		req.Leftover = longstop.LeftoverWait
	}
	req.Cwd = l.dir
	sub := wire.Submit{RunID: id, ActionID: longstop.NewActionID(time.Now()), SessionID: longstop.NewSessionID(time.Now()),
		Key: "key-" + string(id), NotAfter: boundary.BootNow().Add(time.Minute), BootID: boundary.BootID(), Secret: secret,
		EffectToken: "eff_" + string(id), Request: req}
	sub.Request.Digest = wire.CanonicalDigest("lab", "SHA256:lab", req, sub.EnvValues)
	return sub
}

// submit submits and returns the record of the answer.
func (l *lab) submit(sub wire.Submit) longstop.Record {
	l.t.Helper()
	rec, err := l.trySubmit(sub)
	if err != nil {
		l.t.Fatalf("submit: %v", err)
	}
	return rec
}

func (l *lab) trySubmit(sub wire.Submit) (longstop.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := Submit(ctx, l.f, sub)
	if err != nil {
		return longstop.Record{}, err
	}
	return l.verify(sub.RunID, answer.Record), nil
}

// verify reads a record that bears the run's MAC, or none if a successor wrote it.
func (l *lab) verify(id longstop.RunID, raw []byte) longstop.Record {
	l.t.Helper()
	rec, signed, err := wire.Verify(raw, l.secret[id])
	if err != nil {
		l.t.Fatalf("record %s: %v", raw, err)
	}
	if !signed && rec.Writer.Kind != longstop.WriterSuccessor {
		l.t.Fatalf("record is not signed: %s", raw)
	}
	return rec
}

func (l *lab) record(id longstop.RunID) longstop.Record {
	l.t.Helper()
	run, err := l.f.Run(id)
	if err != nil {
		l.t.Fatal(err)
	}
	defer run.Close()
	raw, _, err := run.Read()
	if errors.Is(err, record.ErrNoRecord) {
		return longstop.Record{}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return l.verify(id, raw)
}

// until waits for a record of which ok holds.
func (l *lab) until(id longstop.RunID, what string, ok func(longstop.Record) bool) longstop.Record {
	l.t.Helper()
	var rec longstop.Record
	eventually(l.t, what, func() bool { rec = l.record(id); return ok(rec) }, func() string { return show(rec) })
	return rec
}

// final waits for the final record.
func (l *lab) final(id longstop.RunID) longstop.Record {
	l.t.Helper()
	return l.until(id, "a final record", func(r longstop.Record) bool { return r.State.Final() })
}

func (l *lab) state(id longstop.RunID, want longstop.WorkloadState) longstop.Record {
	l.t.Helper()
	return l.until(id, "state "+string(want), func(r longstop.Record) bool { return r.State == want })
}

// cancel cancels, waits, and returns the answer with its record.
func (l *lab) cancel(id longstop.RunID, grace, wait time.Duration) (wire.CancelAnswer, longstop.Record) {
	l.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), wait+15*time.Second)
	defer stop()
	answer, err := Cancel(ctx, l.f, wire.CancelRequest{RunID: id, GraceMS: grace.Milliseconds(), WaitMS: wait.Milliseconds()})
	if err != nil {
		l.t.Fatalf("cancel: %v", err)
	}
	return answer, l.verify(id, answer.Record)
}

func (l *lab) stdout(id longstop.RunID) string { return l.stream(id, "stdout") }

func (l *lab) stream(id longstop.RunID, name string) string {
	l.t.Helper()
	data, err := os.ReadFile(l.f.Path("runs", string(id), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
	return string(data)
}

// path is a file in the workloads' folder; has waits until it has a line.
func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) lines(name string) []string {
	data, _ := os.ReadFile(l.path(name))
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(data), "\n"), "\n")
}

func (l *lab) has(name string, lines int) []string {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("%d lines in %s", lines, name), func() bool { return len(l.lines(name)) >= lines },
		func() string { return strings.Join(l.lines(name), "|") })
	return l.lines(name)
}

func eventually(t testing.TB, what string, ok func() bool, more ...func() string) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			var words []string
			for _, m := range more {
				words = append(words, m())
			}
			t.Fatalf("not within fifteen seconds: %s\n%s", what, strings.Join(words, "\n"))
		}
	}
}

func show(rec longstop.Record) string { return string(bytes.TrimSpace(wire.Sign(rec, nil))) }

// nobody checks that no living process carries the run's mark.
func (l *lab) nobody(id longstop.RunID) {
	l.t.Helper()
	for _, s := range boundary.Marked(id, 0) {
		l.t.Errorf("left of the run: %+v", boundary.Describe(s))
	}
}

func exited(rec longstop.Record, code int) bool {
	return rec.State == longstop.WorkloadFinished && rec.Result != nil && rec.Result.ExitCode != nil && *rec.Result.ExitCode == code
}

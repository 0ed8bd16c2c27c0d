package runner

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
)

// C001, C002: a background child that holds the streams open keeps nobody waiting for the answer;
// the run lingers until it ends.
func TestC001C002BackgroundChildHoldsTheStreams(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, redirect := range []string{"", ">/dev/null", ">/dev/null 2>&1 </dev/null"} {
		sub := l.script("sleep 60 " + redirect + " & echo started")
		began := time.Now()
		l.submit(sub)
		rec := l.state(sub.RunID, longstop.WorkloadLingering)
		if took := time.Since(began); took > 5*time.Second { // a second, on a machine that is not busy
			t.Errorf("%q: took %v", redirect, took)
		}
		if rec.Main.ExitCode == nil || *rec.Main.ExitCode != 0 || rec.Result != nil || *rec.Boundary.Processes != 1 {
			t.Errorf("%q: %s", redirect, show(rec))
		}
		eventually(t, "its output", func() bool { return l.stdout(sub.RunID) == "started\n" })
	}
}

// C008: the code is known at once whoever inherited the pipe.
func TestC008ExitCodeDoesNotWaitForThePipe(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.request(longstop.Request{Script: `sh -c "sleep 20 & exit 3"`, Leftover: longstop.LeftoverKill})
	began := time.Now()
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 3) || time.Since(began) > 10*time.Second {
		t.Errorf("%s after %v", show(rec), time.Since(began))
	}
}

// C004: who still holds a stream when the run is final finds nobody at its other end.
func TestC004SurvivorOfAFinalRunGetsEPIPE(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	// A process outside the run that the run's stream is handed to, as a service manager would.
	fifo := l.path("handover")
	if err := unix.Mkfifo(fifo, 0600); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("/bin/sh", "-c", "read path; exec 1>\"$path\"; echo > opened; while :; do echo tick || exit 9; sleep 0.05; done")
	holder.Dir = l.dir
	holder.Env = append(os.Environ(), "PATH="+os.Getenv("PATH"))
	stdin, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	holder.Stdin = stdin
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Process.Kill()
	sub := l.script("exec 3>&1; echo /proc/$$/fd/3 > handover; while ! test -e opened; do sleep 0.01; done; exit 0")
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 0) || rec.Output.Stream != longstop.StreamCut {
		t.Errorf("%s", show(rec))
	}
	size := len(l.stdout(sub.RunID))
	done := make(chan error, 1)
	go func() { done <- holder.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the holder goes on writing")
	}
	if now := len(l.stdout(sub.RunID)); now != size || int64(now) != rec.Output.StdoutBytes {
		t.Errorf("the stream grew from %d to %d after the end, the record says %d", size, now, rec.Output.StdoutBytes)
	}
}

// C026: fifty megabytes on each stream, both complete.
func TestC026BothStreamsLarge(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`head -c 50000000 /dev/zero | tr "\0" x; head -c 50000000 /dev/zero | tr "\0" y >&2; exit 6`)
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 6) || rec.Output.StdoutBytes != 50_000_000 || rec.Output.StderrBytes != 50_000_000 || rec.Output.Stream != longstop.StreamComplete || rec.Output.DroppedBytes != 0 {
		t.Errorf("%s", show(rec))
	}
	if out := l.stdout(sub.RunID); strings.Trim(out, "x") != "" {
		t.Error("stdout is not what was written")
	}
}

// What is written just before the end is all there, and a program that opens /dev/stdout again cuts
// nothing off.
func TestOutputIsWholeAtTheEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 30 {
		sub := l.script("echo a; echo b > /dev/stdout; echo c; echo e | tee /dev/stderr >/dev/null; seq 1000; exit 0")
		l.submit(sub)
		rec := l.final(sub.RunID)
		out := l.stdout(sub.RunID)
		if !strings.HasPrefix(out, "a\nb\nc\n1\n2\n") || !strings.HasSuffix(out, "\n999\n1000\n") || int64(len(out)) != rec.Output.StdoutBytes || l.stream(sub.RunID, "stderr") != "e\n" {
			t.Fatalf("%d: %d bytes, %s", i, len(out), show(rec))
		}
	}
}

// C077: what the work cuts or replaces is not what is kept: a pipe cannot be cut, and offsets only rise. Who reads
// from an offset goes on there.
func TestC077NothingIsCutUnderAFollower(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("for i in 1 2 3; do echo line$i; done; : > /proc/self/fd/1; : >/dev/stdout; echo short; while ! [ -e go ]; do sleep 0.02; done; echo last; exec >elsewhere; echo other")
	l.submit(sub)
	eventually(t, "the first lines", func() bool { return l.stdout(sub.RunID) == "line1\nline2\nline3\nshort\n" }, func() string { return l.stdout(sub.RunID) })
	l.touch("go")
	rec := l.final(sub.RunID)
	if !exited(rec, 0) || rec.Output.StdoutBytes != 29 || rec.Output.DroppedBytes != 0 || rec.Output.Stream != longstop.StreamComplete {
		t.Errorf("%s", show(rec))
	}
	if r := l.read(sub.RunID, "stdout", 24); r.data.String() != "last\n" || r.offset != 29 || !r.end || len(r.dropped) > 0 {
		t.Errorf("read on to %d: %q without %v", r.offset, r.data.String(), r.dropped)
	}
	if got := l.has("elsewhere", 1); got[0] != "other" {
		t.Errorf("what went elsewhere: %q", got)
	}
}

// C077: with release the work has its files itself. What is cut off them after the run's end is named as missing.
func TestC077ReleasedOutputIsCut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.request(longstop.Request{Leftover: longstop.LeftoverRelease,
		Script: "echo line1; echo line2; echo line3; (while ! [ -e go ]; do sleep 0.02; done; : >/proc/self/fd/1; echo late; echo > cut) & exit 0"})
	l.submit(sub)
	if rec := l.final(sub.RunID); rec.Output.StdoutAtEnd != 18 {
		t.Fatalf("%s", show(rec))
	}
	l.touch("go")
	l.has("cut", 1)
	eventually(t, "the end of all", func() bool { return len(releasedAlive(l.record(sub.RunID))) == 0 })
	r := l.read(sub.RunID, "stdout", 0)
	if len(r.dropped) != 1 || r.dropped[0] != (longstop.Dropped{From: 5, To: 18, Reason: "missing"}) || r.data.String() != "late\n" {
		t.Errorf("read to %d: %q without %v", r.offset, r.data.String(), r.dropped)
	}
}

// A full disk loses output, and says so; neither the work nor its result is held up.
func TestC121FullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	t.Parallel()
	l := newLabOn(t, "tmpfs", "size=1m")
	sub := l.script("head -c 4000000 /dev/zero; exit 4")
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 4) || rec.Output.DroppedBytes == 0 || rec.Output.DropReason != "ENOSPC" || rec.Output.Stream != longstop.StreamCut ||
		rec.Output.StdoutBytes != 4_000_000 {
		t.Errorf("%s", show(rec))
	}
	if n := int64(len(l.kept(sub.RunID, "stdout"))); n+rec.Output.DroppedBytes != 4_000_000 || n == 0 {
		t.Errorf("%d bytes can be read, the record says that %d cannot", n, rec.Output.DroppedBytes)
	}
	// Another run on the full disk is refused before it starts, or ends with its own code.
	sub = l.script("echo full; exit 5")
	if rec, err := l.trySubmit(sub); err == nil && rec.State != longstop.WorkloadLaunchFailed {
		if rec := l.final(sub.RunID); !exited(rec, 5) {
			t.Errorf("%s", show(rec))
		}
	}
}

// newLabOn is newLab with its state folder on a file system of its own.
func newLabOn(t *testing.T, kind, options string) *lab {
	t.Helper()
	return newLabFrom(t, kind, kind, options)
}

func newLabFrom(t *testing.T, device, kind, options string) *lab {
	t.Helper()
	l := newLab(t)
	mount := filepath.Join(l.dir, "mount")
	if err := os.Mkdir(mount, 0700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(device, mount, kind, 0, options); err != nil {
		t.Skipf("no %s can be mounted here: %v", kind, err)
	}
	t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })
	f, err := record.Create(filepath.Join(mount, "state"))
	if err != nil {
		t.Fatal(err)
	}
	small := &lab{t: t, f: f, dir: l.dir, secret: map[longstop.RunID][]byte{}}
	t.Cleanup(small.clear)
	return small
}

// The owner is killed again and again while output flows: what is kept is what was written, whoever
// moved it.
func TestOutputSurvivesItsOwner(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for range 5 {
		sub := l.script("seq 300000; exit 2")
		l.submit(sub)
		eventually(t, "some output", func() bool { return len(l.stdout(sub.RunID)) > 0 })
		if owner, ok := l.owner(sub.RunID); ok {
			boundary.Signal(owner, unix.SIGKILL)
		}
		rec := l.final(sub.RunID)
		var want strings.Builder
		for i := range 300000 {
			fmt.Fprintln(&want, i+1)
		}
		got := l.stdout(sub.RunID)
		if !exited(rec, 2) || sha256.Sum256([]byte(got)) != sha256.Sum256([]byte(want.String())) {
			t.Fatalf("%s: %d bytes of %d", show(rec), len(got), want.Len())
		}
	}
}

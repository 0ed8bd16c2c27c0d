package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// TestC100HalfOpen: a connection that has gone without a word costs each call its own bound at most, is given up
// once, and is made anew once for all of them; another host is not held up.
func TestC100HalfOpen(t *testing.T) {
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		b := newBench(t, sshtest.Options{}, over)
		other := sshtest.Start(t, sshtest.Options{Alias: "other"})
		_, err := b.Enrol(t.Context(), longstop.EnrolRequest{Name: "other", SSHConfig: other.SSHConfig, Transport: b.transport}, nil)
		b.must(err)
		a := b.run(script("sleep 300"))
		b.tap.mu.Lock()
		dials := b.tap.dials
		b.tap.mu.Unlock()
		b.proxy.Strand()
		began := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if seen, err := b.Inspect(ctx, string(a.ID)); err != nil || len(seen.Processes) == 0 {
					t.Errorf("after %v: %+v, %v", time.Since(began), seen, err)
				}
			})
		}
		all.Go(func() {
			ask := script("echo here")
			ask.Host = "other"
			c := b.run(ask)
			if c = b.wait(c.ID); c.Outcome != longstop.OutcomeSucceeded || time.Since(began) > 10*time.Second {
				t.Errorf("another host, after %v:\n%s", time.Since(began), pretty(c))
			}
		})
		all.Wait()
		b.tap.mu.Lock()
		if n := b.tap.dials - dials; n != 1 {
			t.Errorf("connected anew %d times", n)
		}
		b.tap.mu.Unlock()
		if a = b.cancel(a.ID, nil); a.Outcome != longstop.OutcomeCancelled {
			t.Errorf("%s", pretty(a))
		}
	})
}

// TestC112ConnectionUnderManyFollowers: twenty runs are followed over one connection, which is killed with its master.
// All go on, each follower has every line once, and nothing is said to have failed.
func TestC112ConnectionUnderManyFollowers(t *testing.T) {
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		b := newBench(t, sshtest.Options{}, over, func(b *bench) { b.beat = 2 * time.Second })
		dir := sshtest.ShortDir(t)
		goOn := filepath.Join(dir, "go")
		const runs = 20
		var ids []longstop.ActionID
		for i := range runs {
			ids = append(ids, b.run(script(fmt.Sprintf("i=0; while [ $i -lt 200 ]; do echo %d.$i; i=$((i+1)); done; until [ -e %s ]; do sleep 0.1; done; "+
				"while [ $i -lt 400 ]; do echo %d.$i; i=$((i+1)); done", i, goOn, i))).ID)
		}
		var all sync.WaitGroup
		read := make(chan struct{}, runs)
		for i, id := range ids {
			all.Go(func() { follow(t, b, i, id, read) })
		}
		for range runs {
			<-read
		}
		if b.transport == "" {
			killMasters(t, filepath.Join(b.home, "ssh"))
		} else {
			b.proxy.Cut()
		}
		b.must(os.WriteFile(goOn, nil, 0o600))
		all.Wait()
		for _, id := range ids {
			if a := b.wait(id); a.Outcome != longstop.OutcomeSucceeded {
				t.Errorf("%s", pretty(a))
			}
		}
	})
}

// follow reads a run's output to its end, as `logs -f` does, and says when it has read the first half.
func follow(t *testing.T, b *bench, run int, id longstop.ActionID, read chan<- struct{}) {
	var text strings.Builder
	half := false
	take := func(answer wire.OutputAnswer) {
		text.Write(answer.Data)
		if !half && strings.Contains(text.String(), fmt.Sprintf("%d.199\n", run)) {
			half = true
			read <- struct{}{}
		}
	}
	for end := time.Now().Add(time.Minute); ; {
		reached, err := b.Flow(t.Context(), string(id), "stdout", int64(text.Len()), func(answer wire.OutputAnswer) error { take(answer); return nil })
		if err == nil && !reached.End {
			err = errors.New("nothing for a while")
		}
		if err == nil {
			break
		}
		got, err := b.Output(t.Context(), string(id), "stdout", int64(text.Len()), 0, 5*time.Second)
		if err == nil {
			take(got)
			if got.End {
				break
			}
		}
		if time.Now().After(end) {
			t.Errorf("run %d, after %d bytes: %v", run, text.Len(), err)
			break
		}
	}
	var want strings.Builder
	for i := range 400 {
		fmt.Fprintf(&want, "%d.%d\n", run, i)
	}
	if text.String() != want.String() {
		t.Errorf("run %d: %d bytes of output, want %d", run, text.Len(), want.Len())
	}
}

// killMasters kills the ssh masters whose files are in a folder: children of this process that name it.
func killMasters(t *testing.T, dir string) {
	t.Helper()
	killed := 0
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for word := range strings.FieldsSeq(string(children)) {
			var pid int
			fmt.Sscan(word, &pid)
			if line, _ := os.ReadFile("/proc/" + word + "/cmdline"); strings.Contains(string(line), dir) {
				syscall.Kill(pid, syscall.SIGKILL)
				killed++
			}
		}
	}
	if killed == 0 {
		t.Error("no master to kill")
	}
}

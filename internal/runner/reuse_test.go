package runner

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// Law 7, C034, C040: a number that a record names is another process's by now, the first of a session of its own as
// the one was that had it; then the run is cancelled, by each of those who can. In 1,000 tries the other
// process is never signalled, and what is left of the run always is. LONGSTOP_TRIES says how many.
func TestLaw7ReuseAThousandTimes(t *testing.T) {
	if !here(t) {
		inNamespaces(t)
		return
	}
	const batch = 25
	tries, err := strconv.Atoi(os.Getenv("LONGSTOP_TRIES"))
	if err != nil {
		tries = batch // of 1,000, which `make hosts` asks for
	}
	for _, r := range []reuseBy{
		{name: "owner", state: longstop.WorkloadCancelled},
		{name: "keeper", state: longstop.WorkloadCancelled, ownersDie: true},
		{name: "successor", state: longstop.WorkloadLost, ownersDie: true, keeperDies: true},
		{name: "released", state: longstop.WorkloadFinished, leftover: longstop.LeftoverRelease},
	} {
		t.Run(r.name, func(t *testing.T) {
			done := 0
			for done < (tries+3)/4 {
				done += r.try(t, batch)
			}
			t.Logf("%d numbers", done)
		})
	}
}

// reuseBy is who cancels.
type reuseBy struct {
	name                  string
	state                 longstop.WorkloadState // in the end
	leftover              longstop.Leftover
	ownersDie, keeperDies bool
}

// try returns how many numbers were used again.
func (r reuseBy) try(t *testing.T, runs int) (reused int) {
	l := newLab(t)
	defer l.clear()
	var victims []*victim
	var submitted sync.WaitGroup
	for range runs {
		script := "setsid sleep 1240 & until grep -q ^sleep /proc/$!/cmdline; do :; done; exec sleep 1241"
		if r.leftover == longstop.LeftoverRelease {
			script = "setsid sleep 1240 & setsid sleep 1241 & until grep -q ^sleep /proc/$!/cmdline; do :; done"
		}
		sub := l.request(longstop.Request{Script: script, Leftover: r.leftover})
		victims = append(victims, &victim{run: sub.RunID, sub: sub})
	}
	for _, v := range victims {
		submitted.Go(func() {
			if rec, err := l.trySubmit(v.sub); err != nil {
				t.Error(err)
			} else {
				v.named = boundary.Identity{PID: rec.Main.PID, Start: rec.Main.StartTime}
			}
		})
	}
	if submitted.Wait(); t.Failed() {
		t.FailNow()
	}
	keeper := l.mustKeeper()
	for _, v := range victims {
		if r.leftover == longstop.LeftoverRelease {
			last := l.final(v.run).Released
			v.named = boundary.Identity{PID: last[len(last)-1].PID, Start: last[len(last)-1].StartTime}
			continue
		}
		eventually(t, "both of them", func() bool { return len(commands(v.run, "sleep")) == 2 })
	}
	if r.keeperDies {
		l.kill(keeper)
	}
	for _, v := range victims {
		if r.ownersDie {
			l.kill(l.mustOwner(v.run))
		}
		boundary.Signal(v.named, unix.SIGKILL)
		eventually(t, "its end", func() bool { s, err := boundary.Look(v.named.PID); return err != nil || s.Identity != v.named })
		if v.stranger = takeOver(t, v.named); v.stranger != nil {
			reused++
		}
	}
	var all sync.WaitGroup
	for _, v := range victims {
		all.Go(func() { v.cancel(l, r) })
	}
	all.Wait()
	for _, v := range victims {
		l.nobody(v.run)
		if v.stranger == nil {
			continue
		}
		if s, err := boundary.Look(v.named.PID); err != nil || s.Dead() {
			t.Errorf("%s: the process with the number of another was signalled: %+v, %v", v.run, s, err)
		}
		v.stranger.Process.Kill()
		v.stranger.Wait()
	}
	return reused
}

// takeOver starts a process that has the number of one that has ended: nil where another was faster. What is
// started after it gets numbers far from those that are yet to be used again.
func takeOver(t *testing.T, id boundary.Identity) *exec.Cmd {
	t.Helper()
	const last = "/proc/sys/kernel/ns_last_pid"
	highest, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(last, bytes.TrimSpace(highest), 0)
	for boundary.Ticks(boundary.BootNow()) <= id.Start { // two that start in one tick cannot be told apart
	}
	if err := os.WriteFile(last, []byte(strconv.Itoa(id.PID-1)), 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1242")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if cmd.Process.Pid == id.PID {
		return cmd
	}
	cmd.Process.Kill()
	cmd.Wait()
	return nil
}

// commands lists a run's processes that have become that program.
func commands(run longstop.RunID, name string) (found []boundary.Stat) {
	for _, s := range boundary.Marked(run, 0) {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// victim is a run one of whose numbers a stranger has.
type victim struct {
	run      longstop.RunID
	sub      wire.Submit
	named    boundary.Identity
	stranger *exec.Cmd
}

func (v *victim) cancel(l *lab, r reuseBy) {
	answer, rec := l.cancel(v.run, time.Second, 10*time.Second)
	if rec.State != r.state || len(answer.Survivors) > 0 {
		l.t.Errorf("%s: %s", fmt.Sprint(answer.Survivors), show(rec))
	}
}

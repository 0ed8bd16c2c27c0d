package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// background is the work of the first two chapters: a child that says nothing and holds nothing
// open, so that SSH has no reason to wait for it.
func (s *stage) background(marker string) string {
	return fmt.Sprintf("(sleep %d; date > %s) >/dev/null 2>&1 </dev/null & echo started", int(s.work.Seconds()), marker)
}

func (s *stage) marker(name string) (path string, there func() bool) {
	path = s.path("work/" + name)
	return path, func() bool { _, err := os.Stat(path); return err == nil }
}

// plainSSH is chapter 1: the command returns 0 and the work has not been done.
func (s *stage) plainSSH(ctx context.Context) error {
	marker, there := s.marker("plain")
	s.page.title("1  Plain SSH: 0, long before the work is done")
	s.page.typed("ssh", s.host, s.background(marker))
	began := time.Now()
	out, status, err := s.plain(ctx, s.background(marker))
	if err != nil {
		return err
	}
	s.page.say("%s", strings.TrimSpace(out))
	if status != 0 || there() {
		return fmt.Errorf("plain ssh was to return 0 before the marker exists; it returned %d, marker there: %v", status, there())
	}
	s.page.seen("returned 0 after %s. The marker is not there; ssh will not say when it is, or whether.", seconds(time.Since(began)))
	return nil
}

// sameWorkAsRun is chapter 2: the run is lingering until the marker is there, and then returns 0.
func (s *stage) sameWorkAsRun(ctx context.Context) error {
	marker, there := s.marker("run")
	s.page.title("2  The same work as a run: it ends when the work has ended")
	c, err := s.start(ctx, true, "run", s.host, "-c", s.background(marker))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.wait() }()
	if err := s.whileLingering(ctx, there); err != nil {
		c.cmd.Cancel()
		return errors.Join(err, <-ended)
	}
	if err := <-ended; err != nil {
		return err
	}
	if c.status != 0 || !there() || !c.stdout.has("started") || c.took < s.work {
		return fmt.Errorf("the run was to return 0 once the marker exists, after %s; it returned %d after %s, marker there: %v", s.work, c.status, seconds(c.took), there())
	}
	s.page.seen("returned 0 after %s, and the marker is there.", seconds(c.took))
	if _, plainThere := s.marker("plain"); plainThere() {
		s.page.seen("(plain ssh's marker came meanwhile, and nobody was told.)")
	}
	return nil
}

// whileLingering shows the three facts between the end of the main process and the marker.
func (s *stage) whileLingering(ctx context.Context, there func() bool) error {
	var a longstop.Action
	err := until(ctx, "the main process's end", 20*time.Second, func() (found bool, err error) {
		var all []longstop.Action
		if err := s.ask(ctx, &all, "ps", "-a"); err != nil || len(all) == 0 {
			return false, err
		}
		a = all[0]
		return a.Workload.State == longstop.WorkloadLingering, nil
	})
	if err != nil {
		return err
	}
	s.actions = append(s.actions, a.ID)
	if there() || a.Outcome != longstop.OutcomePending || a.Alive != longstop.AliveYes || a.Workload.Result != nil ||
		a.Workload.Main == nil || a.Workload.Main.ExitCode == nil || *a.Workload.Main.ExitCode != 0 {
		return fmt.Errorf("%s was to be lingering, alive, pending, its main process ended 0: %+v", a.ID, a.Workload)
	}
	s.page.say("$ longstop show %s --json      # meanwhile, in another terminal", a.ID)
	s.page.seen("launch %s · ssh command %s · workload %s, main process ended 0 · alive %s · outcome %s",
		a.Launch.State, a.SSHCommand.State, a.Workload.State, a.Alive, a.Outcome)
	return nil
}

// tree is a shell, its child, its grandchild and one that left its session twice; two ignore TERM,
// one is stopped and cannot hear it.
const tree = `trap "" TERM
sh -c 'sh -c "sleep 600; :" & sleep 600; :' &
setsid setsid sh -c 'sleep 600; :' &
sh -c 'kill -STOP $$; sleep 600' &
wait`

// cancelTree is chapter 3: cancel returns 0 when nothing is left in the process table.
func (s *stage) cancelTree(ctx context.Context) error {
	s.page.title("3  Cancel a tree of processes that ignores TERM, one of them stopped, one gone through setsid twice")
	s.page.say("$ longstop run -d --grace 1s %s -c '…'", s.host)
	launched := s.quiet(ctx, "run", "-d", "--grace", "1s", s.host, "-c", tree)
	if launched.status != 0 {
		return fmt.Errorf("longstop run -d: exit %d: %s", launched.status, launched.output.text())
	}
	a, err := s.newest(ctx)
	if err != nil {
		return err
	}
	var seen []process
	err = until(ctx, "the whole tree", 20*time.Second, func() (bool, error) {
		seen = nil
		var inside struct{ Processes []longstop.Process }
		if err := s.ask(ctx, &inside, "inspect", string(a.ID)); err != nil {
			return false, err
		}
		stopped := false
		for _, p := range inside.Processes {
			if mine, ok := look(p.PID); ok && mine.start == strconv.FormatUint(p.StartTime, 10) {
				seen = append(seen, mine)
				stopped = stopped || p.State == "T"
			}
		}
		return len(seen) >= 8 && stopped, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %d processes", err, len(seen))
	}
	c, err := s.run(ctx, "cancel", string(a.ID))
	if err != nil {
		return err
	}
	left := 0
	for _, p := range seen {
		if p.here() {
			left++
		}
	}
	if a, err = s.show(ctx, a.ID); err != nil {
		return err
	}
	if c.status != 0 || left > 0 || a.Outcome != longstop.OutcomeCancelled || a.Alive != longstop.AliveNo {
		return fmt.Errorf("cancel was to return 0 with nothing left; it returned %d, %d of %d left, outcome %s", c.status, left, len(seen), a.Outcome)
	}
	s.page.seen("returned 0 after %s; of the %d processes there were, the process table has none.", seconds(c.took), len(seen))
	return nil
}

// outage is how long the link is gone in chapter 4.
const outage = 2 * time.Second

// lostConnection is chapter 4: the connection goes while the work writes, and nothing is missed.
func (s *stage) lostConnection(ctx context.Context) error {
	const count = 12
	s.page.title("4  The connection is lost while the work writes")
	c, err := s.start(ctx, true, "run", s.host, "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; sleep 0.4; done; exit 3", count))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.wait() }()
	err = until(ctx, "the first lines", 15*time.Second, func() (bool, error) { return c.stdout.has("line 2\n"), nil })
	if err == nil {
		s.page.seen("connection cut, for %s", seconds(outage))
		s.link.Freeze()
		s.link.Cut()
		err = until(ctx, "time", outage, func() (bool, error) { return false, nil })
		s.link.Thaw()
		if ctx.Err() == nil {
			err = nil
		}
	}
	if err != nil {
		c.cmd.Cancel()
		return errors.Join(err, <-ended)
	}
	if err := <-ended; err != nil {
		return err
	}
	if _, err := s.newest(ctx); err != nil {
		return err
	}
	var want strings.Builder
	for i := range count {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if c.stdout.text() != want.String() || c.status != 3 {
		return fmt.Errorf("every line was to come once, and exit 3; exit %d, got:\n%s", c.status, c.stdout.text())
	}
	s.page.seen("%d lines written there, the same %d here, in order, none twice; returned 3, the work's own code.", count, count)
	return nil
}

// killedDaemon is chapter 5: the daemon dies, the work ends meanwhile, and the next daemon knows.
func (s *stage) killedDaemon(ctx context.Context) error {
	s.page.title("5  The daemon is killed, and the work ends with 7 while nobody looks")
	if c, err := s.run(ctx, "run", "-d", s.host, "-c", "sleep 1.5; exit 7"); err != nil || c.status != 0 {
		return errors.Join(err, fmt.Errorf("longstop run -d: exit %d", c.status))
	}
	a, err := s.newest(ctx)
	if err != nil {
		return err
	}
	if a, err = s.show(ctx, a.ID); err != nil {
		return err
	}
	if a.Workload.Main == nil {
		return fmt.Errorf("%s has no main process: %s", a.ID, a.Workload.State)
	}
	s.page.say("$ kill -9 <longstopd>")
	if err := s.kill9(ctx); err != nil {
		return err
	}
	main := a.Workload.Main
	err = until(ctx, "the end of the work", 20*time.Second, func() (bool, error) {
		p, ok := look(main.PID)
		return !ok || p.start != strconv.FormatUint(main.StartTime, 10), nil
	})
	if err != nil {
		return err
	}
	c, err := s.run(ctx, "reconcile", string(a.ID))
	if err != nil {
		return err
	}
	if a, err = s.show(ctx, a.ID); err != nil {
		return err
	}
	if r := a.Workload.Result; c.status != 0 || a.Outcome != longstop.OutcomeFailed || r == nil || r.ExitCode == nil || *r.ExitCode != 7 {
		return fmt.Errorf("reconcile was to find that it failed with 7; exit %d, outcome %s, %+v", c.status, a.Outcome, a.Workload)
	}
	s.page.seen("a new daemon asked the host: outcome %s, exit 7, said by %s. Nothing was run again.", a.Outcome, a.CompletionSource)
	return nil
}

package runner

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/lifecycle"
)

// asking is a run of a script with more to it.
func (l *lab) asking(script string, set func(*longstop.Request)) (longstop.RunID, longstop.Record) {
	l.t.Helper()
	sub := l.script(script)
	set(&sub.Request)
	return sub.RunID, l.submit(sub)
}

func (l *lab) ended(id longstop.RunID) longstop.Record {
	l.t.Helper()
	rec := l.final(id)
	if err := lifecycle.CheckRecord(rec); err != nil {
		l.t.Errorf("%v: %s", err, show(rec))
	}
	l.nobody(id)
	return rec
}

func TestPreflightDecides(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]struct {
		state longstop.WorkloadState
		check longstop.CheckState
		ran   int
	}{
		"true":                            {longstop.WorkloadFinished, longstop.CheckPassed, 1},
		"exit 204":                        {longstop.WorkloadFinished, longstop.CheckNothingToDo, 0},
		"exit 1":                          {longstop.WorkloadLaunchFailed, longstop.CheckFailed, 0},
		"kill -9 $$":                      {longstop.WorkloadLaunchFailed, longstop.CheckFailed, 0},
		"setsid sleep 600 & trap '' TERM": {longstop.WorkloadFinished, longstop.CheckPassed, 1},
		"sleep 600":                       {longstop.WorkloadLaunchFailed, longstop.CheckUnknown, 0},
		`[ "$(id -u):$0" ] && test -d . && echo v=$LONGSTOP_RUN_ID > "$LONGSTOP_EVIDENCE"; exit 204`: {longstop.WorkloadFinished, longstop.CheckNothingToDo, 0},
	} {
		for _, leftover := range []longstop.Leftover{longstop.LeftoverWait, longstop.LeftoverRelease} {
			t.Run(string(leftover)+"/"+script, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				id, first := l.asking("echo ran >> ran; exit 7", func(r *longstop.Request) {
					r.Preflight, r.CheckS, r.Leftover, r.GraceS = script, 1, leftover, 0.2
				})
				if first.State != longstop.WorkloadStarting && !first.State.Final() {
					t.Errorf("answered with %s", show(first))
				}
				rec := l.ended(id)
				if rec.State != want.state || rec.Preflight == nil || rec.Preflight.State != want.check || len(l.lines("ran")) != want.ran || rec.Preflight.EndedAt.IsZero() {
					t.Errorf("ran %d times: %s", len(l.lines("ran")), show(rec))
				}
				switch {
				case want.ran == 1 && !exited(rec, 7), want.ran == 0 && (rec.Result != nil || rec.Main != nil),
					want.state == longstop.WorkloadLaunchFailed && (rec.LaunchError == nil || rec.LaunchError.Step != "preflight"),
					strings.Contains(script, "v=") && rec.Evidence["v"] != string(id):
					t.Errorf("%s", show(rec))
				}
			})
		}
	}
}

// A preflight that cannot be started is as work that cannot.
func TestPreflightInNoFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id, _ := l.asking("true", func(r *longstop.Request) { r.Preflight, r.Cwd = "true", "/nowhere" })
	if rec := l.ended(id); rec.State != longstop.WorkloadLaunchFailed || rec.LaunchError.Step != "chdir" {
		t.Errorf("%s", show(rec))
	}
}

// The work that a preflight let through may fail to start, as any may.
func TestWorkFailsToStartAfterItsPreflight(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.argv("./nothing-here")
	sub.Request.Preflight = "true"
	l.submit(sub)
	if rec := l.ended(sub.RunID); rec.State != longstop.WorkloadLaunchFailed || rec.LaunchError.Step != "exec" || rec.LaunchError.Errno != "ENOENT" {
		t.Errorf("%s", show(rec))
	}
}

func TestPreflightIsHeardOnStderr(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id, _ := l.asking("echo work", func(r *longstop.Request) { r.Preflight, r.Verify = "echo before", "echo after" })
	l.ended(id)
	if out, errs := l.stdout(id), l.stream(id, "stderr"); out != "work\n" || errs != "before\nafter\n" {
		t.Errorf("%q, %q", out, errs)
	}
}

func TestVerifyProvesTheEffect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		work, verify string
		proof        longstop.EffectProof
		state        longstop.CheckState // empty: not run
		code         int
	}{
		{"echo 42 > made", `[ "$(cat made)" = 42 ] && echo schema=42 >> "$LONGSTOP_EVIDENCE"`, longstop.ProofPassed, longstop.CheckPassed, 0},
		{"true", "test -e made", longstop.ProofFailed, longstop.CheckFailed, 0},
		{"exit 3", "true", longstop.ProofUnknown, "", 3},
		{"true", "exit 204", longstop.ProofFailed, longstop.CheckFailed, 0},
		{"true", "sleep 600", longstop.ProofUnknown, longstop.CheckUnknown, 0},
		{"(sleep 0.1; echo 42 > made) &", "test -e made", longstop.ProofPassed, longstop.CheckPassed, 0},
		{"true", "sleep 600 & true", longstop.ProofPassed, longstop.CheckPassed, 0},
	} {
		for _, leftover := range []longstop.Leftover{longstop.LeftoverWait, longstop.LeftoverKill} {
			if leftover == longstop.LeftoverKill && strings.HasSuffix(c.work, "&") {
				continue
			}
			t.Run(string(leftover)+"/"+c.verify, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				id, _ := l.asking(c.work, func(r *longstop.Request) { r.Verify, r.CheckS, r.GraceS, r.Leftover = c.verify, 1, 0.2, leftover })
				rec := l.ended(id)
				if !exited(rec, c.code) || rec.EffectProof != c.proof || (rec.Verify == nil) != (c.state == "") || rec.Verify != nil && rec.Verify.State != c.state || rec.Cause != "" {
					t.Errorf("%s", show(rec))
				}
				if strings.Contains(c.verify, "schema") && rec.Evidence["schema"] != "42" {
					t.Errorf("evidence %v", rec.Evidence)
				}
			})
		}
	}
}

// What is released is verified beside, and a verify that takes too long takes nobody with it.
func TestVerifyBesideTheReleased(t *testing.T) {
	t.Parallel()
	for verify, proof := range map[string]longstop.EffectProof{"test -e up": longstop.ProofPassed, "sleep 600": longstop.ProofUnknown} {
		l := newLab(t)
		id, _ := l.asking("(echo up >> up; exec sleep 600) & until [ -e up ]; do sleep 0.01; done", func(r *longstop.Request) {
			r.Verify, r.CheckS, r.Leftover = verify, 1, longstop.LeftoverRelease
		})
		rec := l.final(id)
		if !exited(rec, 0) || rec.EffectProof != proof || len(rec.Released) != 1 {
			t.Errorf("%s: %s", verify, show(rec))
		}
	}
}

// A cancel stops whatever there is: before the work, nothing of it runs; after it, its result stands.
func TestCancelOfStages(t *testing.T) {
	t.Parallel()
	t.Run("preflight", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		id, _ := l.asking("echo ran >> ran", func(r *longstop.Request) { r.Preflight = "echo up >> up; sleep 600; exit 0" })
		l.has("up", 1)
		l.cancel(id, time.Second, 10*time.Second)
		rec := l.ended(id)
		if rec.State != longstop.WorkloadCancelled || rec.Cause != longstop.CauseRequest || rec.Preflight.State != longstop.CheckUnknown || l.lines("ran") != nil {
			t.Errorf("%s", show(rec))
		}
	})
	t.Run("verify", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		id, _ := l.asking("true", func(r *longstop.Request) { r.Verify = "echo up >> up; sleep 600" })
		l.has("up", 1)
		l.cancel(id, time.Second, 10*time.Second)
		rec := l.ended(id)
		if !exited(rec, 0) || rec.EffectProof != longstop.ProofUnknown || rec.Verify.State != longstop.CheckUnknown || rec.Cancel != nil {
			t.Errorf("%s", show(rec))
		}
	})
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		holder, _ := l.asking("sleep 600", func(r *longstop.Request) { r.Exclusive = "db" })
		id, first := l.asking("echo ran >> ran", func(r *longstop.Request) { r.Exclusive, r.ExclusiveWaitS = "db", 600 })
		if first.State != longstop.WorkloadQueued || first.Main != nil {
			t.Errorf("answered with %s", show(first))
		}
		l.cancel(id, time.Second, 10*time.Second)
		rec := l.ended(id)
		if rec.State != longstop.WorkloadCancelled || l.lines("ran") != nil {
			t.Errorf("%s", show(rec))
		}
		l.cancel(holder, 0, 10*time.Second)
	})
}

// Lease and deadline count in the queue and in a preflight, too.
func TestLeaseAndDeadlineOfStages(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holder, _ := l.asking("sleep 600", func(r *longstop.Request) { r.Exclusive = "db" })
	queued, _ := l.asking("echo ran >> ran", func(r *longstop.Request) { r.Exclusive, r.ExclusiveWaitS, r.DeadlineS = "db", 600, 0.3 })
	asked := l.script("echo ran >> ran")
	asked.Request.Preflight, asked.Request.Lifetime = "sleep 600", longstop.Leased
	asked.LeaseUntil = boundary.BootNow().Add(300 * time.Millisecond)
	l.submit(asked)
	verified, _ := l.asking("true", func(r *longstop.Request) { r.Verify, r.DeadlineS = "sleep 600", 0.5 })
	if rec := l.ended(queued); rec.State != longstop.WorkloadCancelled || rec.Cause != longstop.CauseDeadline {
		t.Errorf("queued: %s", show(rec))
	}
	if rec := l.ended(asked.RunID); rec.State != longstop.WorkloadCancelled || rec.Cause != longstop.CauseLease {
		t.Errorf("preflight: %s", show(rec))
	}
	if rec := l.ended(verified); !exited(rec, 0) || rec.EffectProof != longstop.ProofUnknown || !strings.Contains(rec.Verify.Because, "deadline") {
		t.Errorf("verify: %s", show(rec))
	}
	if l.lines("ran") != nil {
		t.Error("it ran")
	}
	l.cancel(holder, 0, 10*time.Second)
}

// An owner that dies takes nothing with it but what it was about to do: an heir starts nothing.
func TestLaw5OwnerDiesInAStage(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		for _, at := range []string{"queue", "preflight", "work", "verify"} {
			t.Run(at+map[bool]string{true: "/both", false: "/owner"}[both], func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				if at == "queue" {
					l.asking("sleep 600", func(r *longstop.Request) { r.Exclusive = "db" })
				}
				slow := func(is bool) string {
					if is {
						return "; echo up >> up; sleep 600"
					}
					return ""
				}
				work := "echo ran >> ran"
				if at == "work" {
					work += "; echo up >> up; until [ -e go ]; do sleep 0.01; done"
				}
				id, _ := l.asking(work, func(r *longstop.Request) {
					r.Preflight, r.Verify, r.GraceS = "true"+slow(at == "preflight"), "true"+slow(at == "verify"), 0.2
					if at == "queue" {
						r.Exclusive, r.ExclusiveWaitS = "db", 600
					}
				})
				if at != "queue" {
					l.has("up", 1)
				}
				if both {
					l.kill(l.mustKeeper())
				}
				l.kill(l.mustOwner(id))
				os.WriteFile(l.path("go"), nil, 0600)
				var rec longstop.Record
				eventually(t, "an end", func() bool {
					Heal(t.Context(), l.f)
					rec = l.record(id)
					return rec.State.Final()
				}, func() string { return show(rec) })
				if err := lifecycle.CheckRecord(rec); err != nil {
					t.Errorf("%v: %s", err, show(rec))
				}
				switch ran := len(l.lines("ran")); at {
				case "queue", "preflight":
					if rec.State != longstop.WorkloadLaunchFailed || ran != 0 || rec.Preflight != nil && rec.Preflight.State != longstop.CheckUnknown {
						t.Errorf("ran %d times: %s", ran, show(rec))
					}
				default:
					if ran != 1 || !both && (!exited(rec, 0) || rec.Writer.Kind != longstop.WriterKeeper) || both && rec.State != longstop.WorkloadLost || rec.EffectProof != longstop.ProofUnknown {
						t.Errorf("ran %d times: %s", ran, show(rec))
					}
				}
				l.nobody(id)
			})
		}
	}
}

// C133: what died holds nothing; what is stopped, or lives on without its owner, does.
func TestC133ANameIsHeldAsLongAsItsRunLives(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	refused := func(holder longstop.RunID) {
		t.Helper()
		id, rec := l.asking("echo next >> ran", func(r *longstop.Request) { r.Exclusive = "db" })
		if rec.State != longstop.WorkloadLaunchFailed || rec.LaunchError.Step != "exclusive" || rec.Exclusive.HeldBy != l.record(holder).ActionID || rec.Exclusive.HeldSince.IsZero() ||
			!strings.Contains(rec.LaunchError.Message, string(rec.Exclusive.HeldBy)) {
			t.Errorf("%s", show(rec))
		}
		l.ended(id)
	}
	holder, first := l.asking("echo $$ > pid; sleep 600", func(r *longstop.Request) { r.Exclusive = "db" })
	if first.State != longstop.WorkloadRunning || first.Exclusive.Since.IsZero() {
		t.Fatalf("%s", show(first))
	}
	refused(holder)
	owner := l.mustOwner(holder)
	boundary.Signal(boundary.Identity{PID: first.Main.PID, Start: first.Main.StartTime}, unix.SIGSTOP)
	refused(holder)
	l.kill(owner) // the keeper inherits the run, and with it the name
	l.state(holder, longstop.WorkloadOrphaned)
	refused(holder)
	l.kill(l.mustKeeper()) // its successor sees that something lives
	Heal(t.Context(), l.f)
	refused(holder)
	for _, s := range boundary.Marked(holder, 0) {
		boundary.Signal(s.Identity, unix.SIGKILL)
	}
	l.final(holder)
	next, _ := l.asking("echo next >> ran", func(r *longstop.Request) { r.Exclusive = "db" })
	if rec := l.ended(next); !exited(rec, 0) || len(l.lines("ran")) != 1 {
		t.Errorf("%s", show(rec))
	}
}

// C133: the same, where everything of the holder is killed at once.
func TestC133NothingIsLeftToRemoveAfterACrash(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holder, rec := l.asking("exec sleep 600", func(r *longstop.Request) { r.Exclusive = "db" })
	owner, keeper := l.mustOwner(holder), l.mustKeeper()
	l.kill(keeper)
	l.kill(owner)
	boundary.Signal(boundary.Identity{PID: rec.Main.PID, Start: rec.Main.StartTime}, unix.SIGKILL)
	next, _ := l.asking("true", func(r *longstop.Request) { r.Exclusive = "db" })
	if rec := l.ended(next); !exited(rec, 0) {
		t.Errorf("%s", show(rec))
	}
}

// C134: who removes the lock's file under its holder lets nobody in.
func TestC134ALockRemovedUnderItsHolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holder, _ := l.asking("sleep 600", func(r *longstop.Request) { r.Exclusive = "db" })
	entries, err := os.ReadDir(l.f.Dir())
	if err != nil {
		t.Fatal(err)
	}
	removed := slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "name-") && os.Remove(l.f.Path(e.Name())) == nil
	})
	if !removed {
		t.Fatal("there is no lock")
	}
	_, rec := l.asking("true", func(r *longstop.Request) { r.Exclusive = "db" })
	if rec.State != longstop.WorkloadLaunchFailed || rec.Exclusive.HeldBy != l.record(holder).ActionID {
		t.Errorf("%s", show(rec))
	}
	if _, rec := l.asking("true", func(r *longstop.Request) { r.Exclusive = "other" }); rec.State == longstop.WorkloadLaunchFailed {
		t.Errorf("another name: %s", show(rec))
	}
}

// Of many that want one name, each has its turn and none has it beside another.
func TestQueuedRunsTakeTurns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var ids []longstop.RunID
	for range 4 {
		id, _ := l.asking("mkdir alone && sleep 0.02 && rmdir alone && echo ran >> ran", func(r *longstop.Request) { r.Exclusive, r.ExclusiveWaitS = "db", 600 })
		ids = append(ids, id)
	}
	for _, id := range ids {
		if rec := l.ended(id); !exited(rec, 0) || rec.Exclusive.Since.IsZero() || rec.Exclusive.HeldBy != "" {
			t.Errorf("%s", show(rec))
		}
	}
	holder, _ := l.asking("sleep 600", func(r *longstop.Request) { r.Exclusive = "db" })
	late, _ := l.asking("true", func(r *longstop.Request) { r.Exclusive, r.ExclusiveWaitS = "db", 0.2 })
	if rec := l.ended(late); rec.State != longstop.WorkloadLaunchFailed || rec.Exclusive.HeldBy != l.record(holder).ActionID {
		t.Errorf("%s", show(rec))
	}
}

// Who has waited for a name and gets it begins then: nobody holds a name that nothing is done with.
func TestBeginsWithItsName(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holder, _ := l.asking(waitForGo, func(r *longstop.Request) { r.Exclusive = "db" })
	l.has("up", 1)
	id, _ := l.asking("exit 5", func(r *longstop.Request) { r.Exclusive, r.ExclusiveWaitS = "db", 600 })
	queued := l.state(id, longstop.WorkloadQueued)
	eventually(t, "it is looked at seldom", func() bool { return boundary.BootNow() > queued.BootAt.Add(settling+settling/2) })
	l.touch("go")
	l.ended(holder)
	rec := l.ended(id)
	if idle := rec.StartedAt.Sub(rec.Exclusive.Since.Time); !exited(rec, 5) || idle > recount/2 {
		t.Errorf("it had its name for %v: %s", idle, show(rec))
	}
}

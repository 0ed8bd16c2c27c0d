//go:build faults

package runner

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// plan starts the lab's keeper with a fault planned for one kind of process. Keepers that come after
// it know nothing of it.
func (l *lab) plan(who, plan string) {
	l.t.Helper()
	// That the keeper dies of it right away is a case too.
	came, err := startKeeper(l.f, "LONGSTOP_FAULT_"+strings.ToUpper(who)+"="+plan)
	if err != nil {
		l.t.Fatal(err)
	}
	if !came {
		l.t.Log("the keeper did not come up")
	}
}

// converge is what a gateway does: it submits, again while it may, then finds or voids, until the
// host says how it ended.
func (l *lab) converge(sub wire.Submit, tries int) (longstop.Record, bool) {
	l.t.Helper()
	for range tries {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := Submit(ctx, l.f, sub)
		cancel()
		if err == nil {
			break
		}
		l.t.Logf("submit: %v", err)
	}
	claim, err := l.f.Void(sub.Key, "given up")
	if err != nil {
		l.t.Fatal(err)
	}
	if claim.Void {
		return longstop.Record{}, true
	}
	var rec longstop.Record
	eventually(l.t, "an end", func() bool {
		if err := Heal(context.Background(), l.f); err != nil {
			l.t.Fatal(err)
		}
		rec = l.record(sub.RunID)
		return rec.State.Final()
	}, func() string { return show(rec) })
	return rec, false
}

// Laws 2, 4 and 5, at every step of a launch: the process that passes it dies. The work runs at most
// once; what the host says of it is what happened; nothing is lost while one of keeper and owner
// lives; a key that is void stays so.
func TestLaw5DeathAtEveryStep(t *testing.T) {
	for _, w := range Windows {
		for _, tries := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%s/%d", w.Who, w.Point, tries), func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				l.plan(w.Who, w.Point+"=kill")
				sub := l.script("echo ran >> ran; sleep 0.05; (sleep 0.2 &); exit 7")
				if tries == 1 {
					sub.NotAfter -= 57 * longstop.BootTime(time.Second) // nobody asks again: it is soon too late
				}
				rec, void := l.converge(sub, tries)
				ran := len(l.lines("ran"))
				t.Logf("void %v, %s by %s, ran %d", void, rec.State, rec.Writer.Kind, ran)
				switch {
				case void:
					if ran != 0 {
						t.Errorf("the key is void, and it ran %d times", ran)
					}
					if _, err := l.trySubmit(sub); longstop.CodeOf(err) != longstop.CodeKeyVoid {
						t.Errorf("a late submit: %v", err)
					}
				case rec.State == longstop.WorkloadLaunchFailed:
					if ran != 0 {
						t.Errorf("ran %d times: %s", ran, show(rec))
					}
				case exited(rec, 7):
					if ran != 1 {
						t.Errorf("ran %d times: %s", ran, show(rec))
					}
				case w.Who == "gate" && rec.State == longstop.WorkloadFinished && rec.Result.Signal == "KILL":
					// It was killed, whoever it was by then.
				default:
					t.Errorf("ran %d times: %s", ran, show(rec))
				}
				if want := witness(w); want != "" && rec.Writer.Kind != want {
					t.Errorf("said by %s: the fault did not happen, or somebody else spoke", rec.Writer.Kind)
				}
				if _, err := l.trySubmit(sub); err == nil {
					l.final(sub.RunID)
				}
				if again := len(l.lines("ran")); again != ran {
					t.Errorf("asked again, it ran again: %d", again)
				}
				l.nobody(sub.RunID)
			})
		}
	}
}

// witness is who has to have written the final record after an owner died at a step.
func witness(w Window) longstop.WriterKind {
	if w.Who != "owner" {
		return ""
	}
	for _, named := range []string{"record.finish.renamed", "owner.finished"} {
		if w.Point == named {
			return longstop.WriterOwner
		}
	}
	return longstop.WriterKeeper
}

// Law 6, at every step of stopping: the process that passes it dies, and asking again gets there.
func TestLaw6DeathAtEveryStepOfStopping(t *testing.T) {
	for _, w := range StopWindows {
		t.Run(w.Who+"/"+w.Point, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.program("trapper", strings.Replace(trapper, "; exit 0' TERM", "' TERM", 1)) // deaf, but says so
			l.plan(w.Who, w.Point+"=kill")
			sub := l.argv("./trapper", "shell")
			if _, err := l.trySubmit(sub); err != nil {
				t.Fatal(err)
			}
			l.has("up", 4)
			if w.Who == "keeper" {
				l.kill(l.mustOwner(sub.RunID))
			}
			var rec longstop.Record
			eventually(t, "nothing is left", func() bool {
				ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
				defer stop()
				answer, err := Cancel(ctx, l.f, wire.CancelRequest{RunID: sub.RunID, GraceMS: 200, WaitMS: 3000})
				if err != nil {
					t.Logf("cancel: %v", err)
					return false
				}
				rec = l.verify(sub.RunID, answer.Record)
				return rec.State.Final()
			}, func() string { return show(rec) })
			ok := cancelled(rec, longstop.CauseRequest)
			if w.Who == "keeper" && rec.State == longstop.WorkloadLost && rec.Writer.Kind == longstop.WriterSuccessor {
				ok = true // both were gone
			}
			if !ok {
				t.Errorf("%s", show(rec))
			}
			l.nobody(sub.RunID)
		})
	}
}

// Law 2: the owner sends TERM, the work heeds it at once, and the owner is dead before it could say that it
// did: the work did not end by itself.
func TestLaw2OwnerKilledOnceItHadSignalled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.plan("owner", "cancel.signalled=kill")
	sub := l.script("trap 'exit 75' TERM; echo up >up; while :; do read -r _ </dev/null || sleep 0.01; done")
	if _, err := l.trySubmit(sub); err != nil {
		t.Fatal(err)
	}
	l.has("up", 1)
	Cancel(t.Context(), l.f, wire.CancelRequest{RunID: sub.RunID, GraceMS: 5000, WaitMS: 3000})
	rec := l.final(sub.RunID)
	if !cancelled(rec, longstop.CauseRequest) || rec.Writer.Kind != longstop.WriterKeeper || rec.Cancel.SignalledAt.IsZero() ||
		rec.Main.ExitCode == nil || *rec.Main.ExitCode != 75 {
		t.Errorf("%s", show(rec))
	}
}

// Law 2: a successor has the main process's end from a record that anybody may have written. Where
// others are to live on, it names them, and the end stays unknown.
func TestLaw2SuccessorReleases(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.plan("owner", "owner.main.ended=delay:20000")
	sub := l.script("setsid sleep 60 >/dev/null 2>&1 & exit 7")
	sub.Request.Leftover = longstop.LeftoverRelease
	if _, err := l.trySubmit(sub); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the main process's end on record", func() bool {
		m := l.record(sub.RunID).Main
		return m != nil && m.ExitCode != nil
	}, func() string { return show(l.record(sub.RunID)) })
	l.kill(l.mustKeeper())
	l.kill(l.mustOwner(sub.RunID))
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	rec := l.final(sub.RunID)
	if rec.State != longstop.WorkloadLost || rec.Writer.Kind != longstop.WriterSuccessor || rec.Result != nil || len(rec.Released) != 1 || *rec.Main.ExitCode != 7 {
		t.Errorf("%s", show(rec))
	}
	if _, after := l.cancel(sub.RunID, time.Second, 10*time.Second); after.State != longstop.WorkloadLost {
		t.Errorf("%s", show(after))
	}
	l.nobody(sub.RunID)
}

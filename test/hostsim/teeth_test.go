package hostsim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// mutant is a world in which one rule is broken on purpose.
type mutant struct {
	law     int
	name    string
	hosts   Broken
	eager   bool                                        // a submit goes before it is durable that it will
	sees    func(w *world, host string, r wire.Request) // each request that leaves
	acts    func(w *world)                              // at each step
	between func(w *world)                              // one gateway and the next
}

// mutants break each law at least once, on the hosts, on the way to them, or in what the store says.
var mutants = []mutant{
	{law: 1, name: "a submit that was carried counts as accepted", acts: meddling(func(w *world, a *longstop.Action) bool {
		wrong := a.Launch.State == longstop.LaunchUnknown && a.SSHCommand.State != longstop.SSHNotOpened
		if wrong {
			a.Launch = longstop.Launch{State: longstop.LaunchAccepted, At: longstop.At(w.Now())}
		}
		return wrong
	})},
	{law: 1, name: "the command's exit counts as the work's", acts: meddling(func(_ *world, a *longstop.Action) bool {
		wrong := a.SSHCommand.State == longstop.SSHExited && a.Launch.State == longstop.LaunchUnknown
		if wrong {
			a.Workload.State, a.Workload.Result = longstop.WorkloadFinished, &longstop.Result{ExitCode: a.SSHCommand.Status}
		}
		return wrong
	})},
	{law: 2, name: "a clean-up calls what failed succeeded", acts: meddling(func(_ *world, a *longstop.Action) bool {
		r := a.Workload.Result
		wrong := r != nil && (r.ExitCode == nil || *r.ExitCode != 0)
		if wrong {
			a.Workload.Result = &longstop.Result{ExitCode: new(int)}
		}
		return wrong
	})},
	{law: 2, name: "a host writes a result twice", hosts: Broken{RewritesFinished: true}},
	{law: 3, name: "what is not heard of for a minute has failed", acts: meddling(func(w *world, a *longstop.Action) bool {
		o := a.Observation
		wrong := a.Launch.State == longstop.LaunchAccepted && !a.Workload.State.Final() && a.Workload.Writer != nil && o != nil && w.Now().Sub(o.At.Time) > time.Minute
		if wrong {
			one := 1
			a.Workload.State, a.Workload.Result = longstop.WorkloadFinished, &longstop.Result{ExitCode: &one}
		}
		return wrong
	})},
	{law: 3, name: "what is lost has succeeded", acts: meddling(func(_ *world, a *longstop.Action) bool {
		wrong := a.Workload.State == longstop.WorkloadOrphaned
		if wrong {
			a.Workload.State, a.Workload.Result = longstop.WorkloadFinished, &longstop.Result{ExitCode: new(int)}
		}
		return wrong
	})},
	{law: 4, name: "a submit is sent before its intent is durable", eager: true},
	{law: 5, name: "a host forgets its claims", hosts: Broken{ForgetsClaims: true}},
	{law: 5, name: "a void burns nothing", hosts: Broken{ForgetsOnVoid: true}},
	{law: 5, name: "what is not heard of was not started", acts: meddling(func(w *world, a *longstop.Action) bool {
		return a.Launch.State == longstop.LaunchUnknown && lifecycle.Reject(a, longstop.CodeTimeout, "no answer", longstop.At(w.Now())) == nil
	})},
	{law: 5, name: "reconciling submits again", sees: func(w *world, host string, r wire.Request) {
		var find wire.FindRequest
		if r.Verb != wire.VerbFind || json.Unmarshal(r.Body, &find) != nil {
			return
		}
		w.laws.mu.Lock()
		again, known := w.laws.submits[find.Key]
		w.laws.mu.Unlock()
		if !known {
			return
		}
		again.Nonce = wire.NewNonce()
		frame, _ := json.Marshal(again)
		go func() {
			w.laws.sees(w.now(), host, frame)
			w.host(host).respond(context.Background(), again)
		}()
	}},
	{law: 6, name: "finished is said of a main process alone", hosts: Broken{EndsWithMain: true}},
	{law: 6, name: "a signal that was sent is a cancel confirmed", hosts: Broken{CancelsUnproven: true}},
	{law: 7, name: "a host signals whoever has the number", hosts: Broken{SignalsByNumber: true}},
	{law: 7, name: "a cancel goes to a neighbour", sees: func(w *world, host string, r wire.Request) {
		var c wire.CancelRequest
		if r.Verb != wire.VerbCancel || json.Unmarshal(r.Body, &c) != nil {
			return
		}
		h := w.host(host)
		h.mu.Lock()
		open := slices.DeleteFunc(h.unresolved(), func(id longstop.RunID) bool { return id == c.RunID })
		h.mu.Unlock()
		if len(open) > 0 {
			r.Body, _ = json.Marshal(wire.CancelRequest{RunID: open[0], GraceMS: -1})
			go h.respond(context.Background(), r)
		}
	}},
	{law: 8, name: "a record is read and not kept", acts: meddling(func(w *world, a *longstop.Action) bool {
		if a.Launch.State != longstop.LaunchAccepted || a.Workload.State.Final() {
			return false
		}
		w.laws.mu.Lock()
		defer w.laws.mu.Unlock()
		final := w.laws.finalOf(a.RunID)
		if final == nil {
			return false
		}
		changed, _ := lifecycle.Observe(a, final.rec, lifecycle.Sighting{At: longstop.At(w.Now()), By: "mutant", Signed: final.rec.Writer.Kind != longstop.WriterSuccessor})
		return changed
	})},
	{law: 9, name: "a gateway begins with an older copy of its store", between: olderCopy},
	{law: 10, name: "a cancel that was not answered is given up", acts: meddling(func(_ *world, a *longstop.Action) bool {
		wrong := a.Cancel.State == longstop.CancelUnconfirmed && !a.Workload.State.Final()
		if wrong {
			a.Cancel = longstop.Cancel{State: longstop.CancelNone}
		}
		return wrong
	})},
	{law: 10, name: "a host does not stop what is to be stopped", hosts: Broken{RefusesToStop: true}},
}

// meddling changes actions in the store, past the gateway and its rules.
func meddling(wrong func(w *world, a *longstop.Action) bool) func(w *world) {
	return func(w *world) {
		g := w.now()
		for _, a := range w.laws.all() {
			g.store.Update(context.Background(), func(tx *sqlite.Tx) error {
				now, err := tx.Action(a.ID)
				if err != nil || !wrong(w, now) {
					return err
				}
				now.Revision++
				return tx.PutAction(now, nil, journal.Entry{At: longstop.At(w.Now()), Kind: journal.Observed, ActionID: now.ID, By: "mutant"})
			})
		}
	}
}

// olderCopy keeps what there is at the first restart, and puts it back at later ones.
func olderCopy(w *world) {
	kept := filepath.Join(w.home, "older")
	if _, err := os.Stat(kept); err != nil {
		os.Mkdir(kept, 0o700)
		copyHome(w.t, w.home, kept)
		return
	}
	copyHome(w.t, kept, w.home)
}

// TestEachLawHasTeeth breaks each law on purpose and shows that the simulation sees it, and under that law.
func TestEachLawHasTeeth(t *testing.T) {
	one := lone(t)
	const within = 1000
	for _, m := range mutants {
		t.Run(fmt.Sprintf("law %d: %s", m.law, m.name), func(t *testing.T) {
			for seed := range uint64(within) {
				broken, _ := one.simulate(t, seed+1, &m)
				for _, v := range broken {
					if v.law == m.law {
						t.Logf("seed %d: %s", seed+1, v.says)
						return
					}
				}
			}
			t.Errorf("not seen within %d seeds", within)
		})
	}
}

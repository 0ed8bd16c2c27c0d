package hostsim

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// fleet is hosts with runs, and the store of a gateway that has launched those and is gone.
type fleet struct {
	home  string
	hosts []*Host
	runs  []longstop.ActionID

	mu    sync.Mutex
	asked map[string]map[wire.Verb]int
}

// newFleet makes hosts that answer after a while, each with so many runs that go on.
func newFleet(t testing.TB, hosts, runs int, latency time.Duration) *fleet {
	f := &fleet{home: folderOf(t), asked: map[string]map[wire.Verb]int{}}
	store, err := sqlite.Open(filepath.Join(f.home, "longstop.db"))
	if err != nil {
		t.Fatal(err)
	}
	witness := &Witness{Asked: func(host string, r wire.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.asked[host] == nil {
			f.asked[host] = map[wire.Verb]int{}
		}
		f.asked[host][r.Verb]++
	}}
	for i := range hosts {
		h := NewHost(fmt.Sprintf("sim-%d", i+1), &Plan{Latency: latency}, witness, Broken{})
		f.hosts = append(f.hosts, h)
		err := store.Update(context.Background(), func(tx *sqlite.Tx) error {
			if err := tx.PutHost(&sqlite.Host{Host: h.Row("sim")}, journal.Entry{Kind: journal.HostEnrolled, By: "a gateway that is gone"}); err != nil {
				return err
			}
			for n := range runs {
				a, secret, err := h.launched(fmt.Sprintf("key-%d-%d", i, n))
				if err == nil {
					err = tx.PutAction(&a, secret, journal.Entry{At: a.CreatedAt, Kind: journal.Observed, ActionID: a.ID, RunID: a.RunID, Host: a.Host, By: "a gateway that is gone"})
				}
				if err != nil {
					return err
				}
				f.runs = append(f.runs, a.ID)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

// launched starts a run that goes on for a day, and returns its action as a gateway that launched it has it.
func (h *Host) launched(key string) (longstop.Action, []byte, error) {
	now := longstop.At(time.Now().Add(-time.Hour))
	a := longstop.Action{ID: longstop.NewActionID(now.Time), Revision: 1, SessionID: longstop.NewSessionID(now.Time), RunID: longstop.NewRunID(),
		Host: h.Name, CreatedAt: now, IdempotencyKey: key, Attempt: 1,
		Request: longstop.Request{Script: "sleep 86400", Lifetime: longstop.Detached, Owner: longstop.OwnerAuto, Leftover: longstop.LeftoverWait,
			Effect: longstop.EffectOnce, GraceS: 10, Digest: "sha256:" + key},
		Approval: longstop.Approval{State: longstop.ApprovalNotRequired}, Launch: longstop.Launch{State: longstop.LaunchSent, At: now},
		SSHCommand: longstop.SSHCommand{State: longstop.SSHCarried}, Workload: longstop.Workload{State: longstop.WorkloadNone}, Cancel: longstop.Cancel{State: longstop.CancelNone}}
	secret := make([]byte, 32)
	h.mu.Lock()
	defer h.mu.Unlock()
	answer, err := h.submit(wire.Submit{RunID: a.RunID, ActionID: a.ID, SessionID: a.SessionID, Key: key, NotAfter: h.now().Add(time.Minute),
		BootID: h.bootID(), Secret: secret, Request: a.Request})
	if err != nil {
		return a, nil, err
	}
	rec, signed, err := wire.Verify(answer.(wire.SubmitAnswer).Record, secret)
	if err == nil {
		lifecycle.Observe(&a, rec, lifecycle.Sighting{At: now, By: "a gateway that is gone", Signed: signed})
	}
	return a, secret, err
}

// begin starts a gateway on the fleet, and returns how to end it.
func (f *fleet) begin(t testing.TB) (g *gateway.Gateway, end func()) {
	store, err := sqlite.Open(filepath.Join(f.home, "longstop.db"))
	if err != nil {
		t.Fatal(err)
	}
	g, err = gateway.New(gateway.Config{Store: store, Dialers: map[string]sshlink.Dialer{"sim": NewNet(f.hosts...).Dialer(nil)},
		Runners: noRunners{}, Home: f.home, Name: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	return g, func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
		store.Close()
	}
}

// reconciled waits until every run is seen to go on.
func (f *fleet) reconciled(t testing.TB, g *gateway.Gateway) {
	open := f.runs
	for end := time.Now().Add(time.Minute); len(open) > 0; {
		a, err := g.Action(context.Background(), string(open[0]))
		if err != nil {
			t.Fatal(err)
		}
		if a.Alive == longstop.AliveYes {
			open = open[1:]
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("%d runs are not seen after a minute: %s %s %+v", len(open), a.Alive, a.Outcome, a.Observation)
		}
		time.Sleep(time.Millisecond)
	}
}

// A gateway that comes back asks each host once about everything that it has there.
func TestPointTenThousandRunsOneRoundTripPerHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const latency = 5 * time.Millisecond
		f := newFleet(t, 100, 100, latency)
		began := time.Now()
		g, end := f.begin(t)
		f.reconciled(t, g)
		took := time.Since(began)
		time.Sleep(time.Second) // whoever would ask more does so at once
		f.mu.Lock()
		for _, h := range f.hosts {
			asked := f.asked[h.Name]
			delete(asked, wire.VerbGC) // what it may remove is asked once in an hour, beside this
			if asked[wire.VerbHello] != 1 || asked[wire.VerbStatus] != 1 || len(asked) != 2 {
				t.Errorf("%s was asked %v; want one hello and one status", h.Name, asked)
			}
		}
		f.mu.Unlock()
		t.Logf("%d runs of %d hosts, each message taking %v: %v, of messages alone", len(f.runs), len(f.hosts), latency, took)
		end()
		for _, h := range f.hosts {
			h.CutLinks()
		}
		time.Sleep(time.Hour)
	})
}

// BenchmarkReconcileAfterRestart is how long a gateway takes from its start until every run is seen again: it
// follows the hosts, and less so the runs.
func BenchmarkReconcileAfterRestart(b *testing.B) {
	for _, of := range []struct{ hosts, runs int }{{100, 100}, {100, 10}, {10, 1000}, {10, 100}} {
		b.Run(fmt.Sprintf("hosts=%d/runs=%d", of.hosts, of.hosts*of.runs), func(b *testing.B) {
			f := newFleet(b, of.hosts, of.runs, time.Millisecond)
			for b.Loop() {
				g, end := f.begin(b)
				f.reconciled(b, g)
				b.StopTimer()
				end()
				b.StartTimer()
			}
			statuses := 0
			for _, asked := range f.asked {
				statuses += asked[wire.VerbStatus]
			}
			b.ReportMetric(float64(statuses)/float64(b.N*of.hosts), "asked/host")
		})
	}
}

package runner

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// released are the processes that a run let live on: those that its record names, whoever else is in its
// cgroup or carries its mark, and what descends from them. A record names those of one moment; what they
// started since is the run's as well.
type released struct{ rec longstop.Record }

// looks is how often nobody has to be seen before it is said that nobody is there: one that forks and goes
// can be missed by a look.
const looks = 3

// releasedAlive returns the released processes of a run that are alive now, as they look now. After
// another boot, or seen from another PID namespace, none is.
func releasedAlive(rec longstop.Record) []longstop.Process {
	if len(rec.Released) == 0 || rec.Writer.BootID != boundary.BootID() {
		return nil
	}
	if rec.Main != nil && rec.Main.PIDNS != "" && rec.Main.PIDNS != boundary.PIDNamespace() {
		return nil
	}
	return released{rec}.living(nil)
}

// releasedHidden returns those of a run's released processes whose numbers belong to processes that /proc
// does not show to this user: they may be alive.
func releasedHidden(rec longstop.Record) (all []longstop.Process) {
	if rec.Writer.BootID != boundary.BootID() {
		return nil
	}
	for _, p := range rec.Released {
		if _, err := boundary.Look(p.PID); errors.Is(err, boundary.ErrHidden) {
			p.Why = err.Error()
			all = append(all, p)
		}
	}
	return all
}

// notSeen refuses to say that nobody is left of those that a run released, or to signal whom nobody sees.
func notSeen(rec longstop.Record) error {
	hidden := releasedHidden(rec)
	if len(hidden) == 0 {
		return nil
	}
	return &longstop.Error{Code: longstop.CodeRefused, Message: "a released process, pid " + itoa(hidden[0].PID) + ", cannot be identified, and was not signalled: " + hidden[0].Why}
}

// cancelReleased answers a cancel of a run that is over: with its record, after stopping what it
// released, if any of that is alive.
func cancelReleased(ctx context.Context, raw []byte, rec longstop.Record, request wire.CancelRequest) (wire.CancelAnswer, error) {
	answer := wire.CancelAnswer{Record: raw}
	if len(releasedAlive(rec)) == 0 {
		return answer, notSeen(rec)
	}
	grace := time.Duration(rec.GraceMS) * time.Millisecond
	if request.GraceMS >= 0 {
		grace = time.Duration(request.GraceMS) * time.Millisecond
	}
	free := released{rec}
	free.signal(unix.SIGTERM, unix.SIGCONT)
	killAt := boundary.BootNow().Add(grace)
	wait := boundary.BootNow().Add(max(grace+surviving, time.Duration(request.WaitMS)*time.Millisecond))
	failures := map[boundary.Identity]error{}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if boundary.BootNow() >= killAt {
			failures = free.kill()
		}
		answer.Survivors = free.living(failures)
		if len(answer.Survivors) == 0 {
			return answer, notSeen(rec)
		}
		if ctx.Err() != nil || boundary.BootNow() > wait || beyondUs(failures) {
			return answer, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// beyondUs reports whether none of those that were to be killed may be signalled by this user.
func beyondUs(failures map[boundary.Identity]error) bool {
	for _, err := range failures {
		if !errors.Is(err, unix.EPERM) {
			return false
		}
	}
	return len(failures) > 0
}

func (r released) walk(visit func(boundary.Stat)) {
	in := identified{run: r.rec.RunID, main: r.rec.Main}
	for _, p := range r.rec.Released {
		in.seen = append(in.seen, boundary.Stat{Identity: boundary.Identity{PID: p.PID, Start: p.StartTime}})
	}
	all, _ := enclosed(&in, r.rec.Boundary)
	defer all.close()
	all.walk(func(s boundary.Stat) bool {
		if !s.Dead() {
			visit(s)
		}
		return true
	})
}

// living describes them, with why those live on that could not be signalled.
func (r released) living(failures map[boundary.Identity]error) (all []longstop.Process) {
	for range looks {
		r.walk(func(s boundary.Stat) {
			p := boundary.Describe(s)
			if err, tried := failures[s.Identity]; tried {
				p.Why = whyAlive(p, err)
			}
			all = append(all, p)
		})
		if len(all) > 0 {
			break
		}
	}
	return all
}

func (r released) signal(sig unix.Signal, following ...unix.Signal) map[boundary.Identity]error {
	results := map[boundary.Identity]error{}
	r.walk(func(s boundary.Stat) {
		results[s.Identity] = boundary.Signal(s.Identity, sig, following...)
	})
	return results
}

// kill strikes the cgroup as one, where there is one, and each of them.
func (r released) kill() map[boundary.Identity]error {
	all, _ := enclosed(&identified{run: r.rec.RunID}, r.rec.Boundary)
	all.strike()
	all.close()
	return r.signal(unix.SIGKILL)
}

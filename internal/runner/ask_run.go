package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// Submit asks for a run and returns its record once the workload was exec'd or could not be.
func Submit(ctx context.Context, f *record.Folder, sub wire.Submit) (wire.SubmitAnswer, error) {
	claim, err := f.Find(sub.Key)
	if err != nil {
		return wire.SubmitAnswer{}, err
	}
	where := placed(sub.Request)
	if !claim.Found {
		if err := supported(sub, where); err != nil {
			return wire.SubmitAnswer{}, err
		}
	}
	from := ourLogin()
	r, err := askKeeper(ctx, f, ask{Verb: askSubmit, Submit: &sub, Login: &from, Manager: where.Manager, Instead: where.Instead})
	if err != nil {
		return wire.SubmitAnswer{}, err
	}
	return wire.SubmitAnswer{Existing: r.Existing, Record: json.RawMessage(r.Record)}, nil
}

// supported refuses, before anything is begun, what this runner or host cannot do.
func supported(sub wire.Submit, where place) error {
	req := sub.Request
	what, hint := "", "Nothing was started."
	switch {
	case len(req.Argv) == 0 && len(req.ArgvB64) == 0 && req.Script == "":
		return &longstop.Error{Code: longstop.CodeUsage, Message: "the request names nothing to run", Hint: hint}
	case sub.NotAfter <= 0 || len(sub.Secret) == 0:
		return &longstop.Error{Code: longstop.CodeUsage, Message: "a submit needs a secret and the time in which it may start", Hint: hint}
	case req.Lifetime == longstop.Leased && sub.LeaseUntil <= 0:
		return &longstop.Error{Code: longstop.CodeUsage, Message: "a leased run needs the end of its first lease", Hint: hint}
	case req.Cwd != "" && req.Cwd[0] != '/':
		return &longstop.Error{Code: longstop.CodeUsage, Message: "the folder to run in is no absolute path: " + quoted(req.Cwd), Hint: hint}
	case len(req.Preflight) > longstop.MaxCheckScript || len(req.Verify) > longstop.MaxCheckScript || len(req.Exclusive) > longstop.MaxExclusiveName:
		return &longstop.Error{Code: longstop.CodeUsage, Message: "a preflight, a verify or the name asked for is too long", Hint: hint}
	case req.Owner == longstop.OwnerSlurm || req.Owner == longstop.OwnerNone:
		what = "an owner of kind " + string(req.Owner) + " is not built yet"
	case where.refusal != "":
		what = where.refusal
		if where.remedy != "" {
			hint += " On the host: " + where.remedy
			if req.Lifetime == longstop.Detached && req.Owner != longstop.OwnerSystemd {
				hint += "; or run it with a lease"
			}
		}
	case req.PTY && req.Leftover == longstop.LeftoverRelease:
		what = "what is released would lose its terminal (PTY) when the main process ends"
	case req.PTY && noTerminal() != nil:
		what = "there can be no terminal (PTY) here: " + noTerminal().Error()
	case req.Limits != nil && req.Limits.Processes > 0 && os.Geteuid() == 0:
		what, hint = "a limit on processes does not bind root", "Nothing was started. A limit on tasks bounds the run alone, root's too."
	case req.StrictShell && !shellHasPipefail():
		what, hint = "strict shell: /bin/sh of this host has no pipefail", "Nothing was started. Run it as: longstop run HOST -- bash -eo pipefail -c SCRIPT"
	}
	if what == "" {
		return nil
	}
	return &longstop.Error{Code: longstop.CodeUnsupported, Message: what, Hint: hint}
}

// shellHasPipefail asks the shell itself, once. The child is waited for by number, which harms no
// other waiter in this process.
var shellHasPipefail = sync.OnceValue(func() bool {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer null.Close()
	pid, err := syscall.ForkExec(shell, []string{"sh", "-c", "set -o pipefail"}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
	})
	if err != nil {
		return false
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return err == nil && status.Exited() && status.ExitStatus() == 0
		}
	}
})

// Cancel stops a run and answers with the record that ended it, or with who still lives. It asks the
// run's owner; where that is gone or does not answer, the keeper.
func Cancel(ctx context.Context, f *record.Folder, request wire.CancelRequest) (wire.CancelAnswer, error) {
	run, err := f.Run(request.RunID)
	if err != nil {
		return wire.CancelAnswer{}, err
	}
	defer run.Close()
	raw, rec, readErr := run.Read()
	if readErr == nil && rec.State.Final() && !answeredFor(run) {
		return cancelReleased(ctx, raw, rec, request)
	}
	a := ask{Verb: askCancel, RunID: request.RunID, Cancel: &request}
	r, err := askRun(ctx, f, run, a)
	switch {
	case longstop.CodeOf(err) == longstop.CodeRefused:
		return wire.CancelAnswer{Record: raw, Refused: err.Error()}, nil
	case err != nil && longstop.CodeOf(readErr) == longstop.CodeUnreadable:
		return wire.CancelAnswer{}, readErr // nobody knows whom to signal: nothing was
	case err != nil:
		return wire.CancelAnswer{}, err
	}
	if len(r.Record) == 0 {
		if raw, _, err = run.Read(); err != nil {
			return wire.CancelAnswer{}, err
		}
		r.Record = raw
	}
	if raw, rec, err := run.Read(); err == nil && rec.State.Final() && bytes.Equal(raw, r.Record) {
		return cancelReleased(ctx, raw, rec, request)
	}
	return wire.CancelAnswer{Record: r.Record, Survivors: r.Living, Refused: r.Refused}, nil
}

// answeredFor reports whether somebody holds the run's lock. A final record beside that is of a moment
// ago, or was put there by the work, which must not get out of being stopped that way.
func answeredFor(run *record.Run) bool {
	held, err := run.Locked()
	return err == nil && held
}

// askRun asks whoever answers for a run: its owner, or, if that is gone or does not hear, the keeper.
func askRun(ctx context.Context, f *record.Folder, run *record.Run, a ask) (reply, error) {
	l, err := dial(run.DirFD(), ownerSocket)
	if err == nil {
		var r reply
		r, err = exchange(ctx, l, a, heardWithin)
		l.close()
		if err == nil || ctx.Err() != nil {
			return r, err
		}
	}
	a.Bypass = errors.Is(err, os.ErrDeadlineExceeded)
	for began := time.Now(); ; {
		r, err := askKeepers(ctx, f, a)
		if longstop.CodeOf(err) != longstop.CodeTimeout || ctx.Err() != nil {
			return r, err
		}
		select { // who answers for it is just changing
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return r, err
		}
		l, err := dial(run.DirFD(), ownerSocket)
		if err == nil {
			r, err = exchange(ctx, l, a, heardWithin)
			l.close()
			if err == nil {
				return r, nil
			}
		}
		// Whoever does not hear is bypassed, and whoever has had no socket for as long: the work, which is
		// the same user's, can remove it.
		a.Bypass = a.Bypass || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errNobody) && time.Since(began) > heardWithin
	}
}

// Renew moves the ends of leases, or says why not.
func Renew(ctx context.Context, f *record.Folder, request wire.RenewRequest) (wire.RenewAnswer, error) {
	answer := wire.RenewAnswer{Refused: map[longstop.RunID]string{}, BootNow: boundary.BootNow()}
	if request.BootID != boundary.BootID() {
		for _, lease := range request.Leases {
			answer.Refused[lease.RunID] = "the instants are of another boot of this host"
		}
		return answer, nil
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, lease := range request.Leases {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			why := renewOne(ctx, f, lease)
			mu.Lock()
			defer mu.Unlock()
			if why == "" {
				answer.Renewed = append(answer.Renewed, lease.RunID)
			} else {
				answer.Refused[lease.RunID] = why
			}
		})
	}
	all.Wait()
	answer.BootNow = boundary.BootNow()
	return answer, nil
}

func renewOne(ctx context.Context, f *record.Folder, lease wire.RunLease) (refused string) {
	run, err := f.Run(lease.RunID)
	if err != nil {
		return err.Error()
	}
	defer run.Close()
	if _, rec, err := run.Read(); err == nil && rec.State.Final() && !answeredFor(run) {
		return "the run is over"
	}
	a := ask{Verb: askRenew, RunID: lease.RunID, Until: lease.Until}
	l, err := dial(run.DirFD(), ownerSocket)
	if err == nil {
		defer l.close()
		r, err := exchange(ctx, l, a, heardWithin)
		if err == nil {
			return r.Refused
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "the run's owner does not answer"
		}
	}
	r, err := askKeepers(ctx, f, a)
	if err != nil {
		return err.Error()
	}
	if r.Record == nil && r.Refused == "" {
		return "nobody answers for the run"
	}
	return r.Refused
}

package systemd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/longstop/longstop"
)

// startsWithin bounds waiting for a job where the caller's context has no deadline.
const startsWithin = 2 * time.Minute

// NotStarted says that the manager took the unit and could not start it. Nothing of it is left.
type NotStarted struct {
	Job  string        // the job's result: "failed", "timeout", "canceled", "dependency", …
	Unit longstop.Unit // as it was then
}

func (e *NotStarted) Error() string {
	s := "the unit was not started: " + e.Job
	if e.Unit.Result != "" && e.Unit.Result != "success" {
		s += ", " + e.Unit.Result
	}
	switch status := e.Unit.MainStatus; {
	case status == nil:
	case e.Unit.MainCode == "exited" && *status >= 200 && *status < 250:
		s += fmt.Sprintf(", status %d of systemd.exec(5)", *status)
	default:
		s += fmt.Sprintf(", %s %d", e.Unit.MainCode, *status)
	}
	return s
}

// StartService starts a transient service and returns once its main process was executed, or is
// ready. A unit that is over and forgotten by then is returned as Forgotten. On ErrUnanswered it may
// have started, or start yet; to start it again is ErrExists if it is there.
func (m *Manager) StartService(ctx context.Context, s Service) (longstop.Unit, error) {
	props, err := s.properties()
	if err != nil {
		return longstop.Unit{}, fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer runtime.KeepAlive(s) // of its files there are but the numbers
	return m.start(ctx, s.Name, append(props, s.files()...))
}

// StartScope puts processes into a transient scope.
func (m *Manager) StartScope(ctx context.Context, s Scope) (longstop.Unit, error) {
	return m.start(ctx, s.Name, s.properties())
}

// Attach puts processes into a unit that is there, into the cgroup of a child if sub names one ("/a").
// For a user it is the only way in from outside: from a login session, say, which is another branch
// of the tree. From inside a delegated cgroup, processes are moved as everywhere.
func (m *Manager) Attach(ctx context.Context, unit, sub string, pids ...int) error {
	if _, err := m.bus.ask(ctx, managerName, managerPath, managerIface+".AttachProcessesToUnit", unit, sub, uints(pids)); err != nil {
		return fmt.Errorf("attach to %s: %w", unit, err)
	}
	return nil
}

// aux is a unit to be created beside: there are none.
type aux struct {
	Name       string
	Properties []property
}

func (m *Manager) start(ctx context.Context, unit string, props []property) (longstop.Unit, error) {
	u, err := m.startAndRead(ctx, unit, props)
	if err != nil {
		return u, fmt.Errorf("start %s: %w", unit, err)
	}
	return u, nil
}

func (m *Manager) startAndRead(ctx context.Context, unit string, props []property) (longstop.Unit, error) {
	ctx, cancel := bounded(ctx, startsWithin)
	defer cancel()
	h, err := m.hear(ctx, "")
	if err != nil {
		return longstop.Unit{}, err
	}
	defer h.stop()
	body, err := m.bus.tell(ctx, managerName, managerPath, managerIface+".StartTransientUnit", unit, "fail", props, []aux{})
	result := ""
	switch {
	case errors.Is(err, ErrUnanswered):
		// The manager may have executed itself anew: the unit itself says whether it heard.
		if _, _, missing := m.read(ctx, unit); missing != nil {
			return longstop.Unit{}, err
		}
		err = m.settle(ctx, unit)
	case err == nil:
		result, err = m.finish(ctx, h, unit, pathIn(body))
	}
	if err != nil {
		return longstop.Unit{}, err
	}
	return m.started(ctx, unit, result)
}

// started tells how a start job ended: by its result, or if nobody heard that, by the unit.
func (m *Manager) started(ctx context.Context, unit, result string) (longstop.Unit, error) {
	u, _, err := m.read(ctx, unit)
	switch {
	case errors.Is(err, ErrNoUnit):
		u, err = longstop.Unit{Manager: string(m.kind), Name: unit, Forgotten: true}, nil
	case err != nil:
		return u, err
	case result == "" && u.ActiveState == "failed":
		result = "failed"
	}
	if result != "" && result != jobDone {
		m.ResetFailed(ctx, unit) // it is as good as forgotten where this fails
		return longstop.Unit{}, &NotStarted{Job: result, Unit: u}
	}
	return u, nil
}

// Stop stops a unit and waits until it is over: for a service, until its main process has answered
// TERM or StopWithin has passed. A deadline ends the waiting alone.
func (m *Manager) Stop(ctx context.Context, unit string) error {
	ctx, cancel := bounded(ctx, startsWithin)
	defer cancel()
	h, err := m.hear(ctx, "")
	if err != nil {
		return fmt.Errorf("stop %s: %w", unit, err)
	}
	defer h.stop()
	body, err := m.bus.ask(ctx, managerName, managerPath, managerIface+".StopUnit", unit, "replace") // twice is once
	if err == nil {
		_, err = m.finish(ctx, h, unit, pathIn(body))
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", unit, err)
	}
	return nil
}

// ResetFailed has the manager drop a unit that it keeps because it failed.
func (m *Manager) ResetFailed(ctx context.Context, unit string) error {
	if _, err := m.bus.ask(ctx, managerName, managerPath, managerIface+".ResetFailedUnit", unit); err != nil {
		return fmt.Errorf("reset %s: %w", unit, err)
	}
	return nil
}

// Hold keeps a unit from being collected, until Release, Close or the loss of the connection. Over a
// manager's own socket it does nothing and returns false.
func (m *Manager) Hold(ctx context.Context, unit string) (bool, error) {
	return m.refer(ctx, unit, "Ref")
}

// Release undoes Hold.
func (m *Manager) Release(ctx context.Context, unit string) error {
	_, err := m.refer(ctx, unit, "Unref")
	return err
}

func (m *Manager) refer(ctx context.Context, unit, method string) (bool, error) {
	l, err := m.bus.connect(ctx)
	if err == nil && !l.direct {
		if _, _, err = m.read(ctx, unit); err == nil { // else the manager would hold what is not there
			_, err = m.bus.ask(ctx, managerName, unitPath(unit), unitIface+"."+method)
		}
	}
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", method, unit, err)
	}
	return !l.direct, nil
}

const jobDone = "done"

// finish waits for a job's end and returns its result: "" if the job went while nobody listened.
func (m *Manager) finish(ctx context.Context, h *hearing, unit string, job dbus.ObjectPath) (string, error) {
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w: the job is not done: %w", ErrUnanswered, ctx.Err())
		case <-h.Context().Done():
			return "", m.settle(ctx, unit)
		case s, open := <-h.signals:
			switch {
			case !open:
				return "", m.settle(ctx, unit)
			case h.says(s, managerIface+".JobRemoved") && len(s.Body) == 4 && s.Body[1] == job:
				result, _ := s.Body[3].(string)
				return result, nil
			case h.cameBack(s):
				return "", m.settle(ctx, unit) // it may have ended the job before we were heard again
			}
		}
	}
}

// settle waits until a unit has no job.
func (m *Manager) settle(ctx context.Context, unit string) error {
	for {
		_, job, err := m.read(ctx, unit)
		if errors.Is(err, ErrNoUnit) || err == nil && job == "" {
			return nil
		}
		if err != nil {
			return err
		}
		if !m.bus.pause(ctx, nil) {
			return fmt.Errorf("%w: the job is not done: %w", ErrUnanswered, ctx.Err())
		}
	}
}

func pathIn(body []any) dbus.ObjectPath {
	path, _ := first(body).(dbus.ObjectPath)
	return path
}

// bounded is ctx with a deadline.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

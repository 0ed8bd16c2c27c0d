package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/gate"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/systemd"
	"github.com/longstop/longstop/internal/wire"
)

// An owner that a service manager starts is the main process of a unit. It is no child of the keeper's:
// what it is to do it fetches over the keeper's socket, and from then on it answers for the run alone.
// When it dies the manager ends the rest of the unit, and the run's successor says lost.
//
// Nothing runs twice by that. An owner does nothing without an assignment, which is given once, to the
// process that the manager names as the unit's main one; whether a start that nobody answered happened
// or is yet to come, its owner is sent away. And it reads the run's folder again under its lock.

// unitStopMargin is how much longer than the work's grace a unit may take to stop: for KILL, and for the
// final record.
const unitStopMargin = 15 * time.Second

// coming is an owner that a service manager is starting.
type coming struct {
	arrived chan *link
	over    chan struct{} // closed: nobody takes it any more
}

// arrive is an owner that fetches its run.
func (k *keeper) arrive(l *link, id longstop.RunID) {
	k.mu.Lock()
	c := k.comings[id]
	k.mu.Unlock()
	if c == nil {
		return // the connection ends, and with it the owner
	}
	select {
	case c.arrived <- l:
		<-c.over
	case <-c.over:
	}
}

// beginUnit has a run that is accepted started by an owner in a unit, and returns what that answers.
func (k *keeper) beginUnit(sub wire.Submit, from login, kind systemd.Kind) (reply, error) {
	c := &coming{make(chan *link), make(chan struct{})}
	k.mu.Lock()
	k.comings[sub.RunID] = c
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.comings, sub.RunID)
		k.mu.Unlock()
		close(c.over)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	u, err := k.startUnit(ctx, sub, kind)
	if err != nil {
		return k.unbegun(sub, err)
	}
	fault.At("submit.unit.started")
	over := k.corroborate(sub.RunID, u)
	owner, err := c.await(ctx, u, over)
	if err == nil {
		err = k.assignUnit(owner, sub, from, kind)
	}
	if err != nil {
		return k.unbegun(sub, err)
	}
	fault.At("submit.assigned")
	var said verdict
	if err := owner.receive(&said); err != nil {
		// It died: once its unit is over, nothing of the run is there any more.
		select {
		case <-over:
		case <-time.After(heardWithin):
		}
		return k.unbegun(sub, errors.New("the owner died before the start: nothing of the work ran"))
	}
	fault.At("submit.answered")
	k.succeedTo(sub.RunID) // from here on the run is another's, whose end is watched for
	if said.Error != nil {
		return reply{}, said.Error
	}
	return reply{Record: said.Record}, nil
}

// startUnit has the manager start the owner. A unit that is there already is one that this run was to
// have before: its owner is on its way out, or to us.
func (k *keeper) startUnit(ctx context.Context, sub wire.Submit, kind systemd.Kind) (longstop.Unit, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err == nil && strings.HasSuffix(self, " (deleted)") {
		err = fmt.Errorf("%s was removed, and cannot be started again", strings.TrimSuffix(self, " (deleted)"))
	}
	if err != nil {
		return longstop.Unit{}, fmt.Errorf("the runner's own file: %w", err)
	}
	m, err := k.manager(ctx, kind)
	if err != nil {
		return longstop.Unit{}, err
	}
	service := systemd.Service{
		Name: systemd.ServiceName(sub.RunID), Description: "Longstop run " + string(sub.RunID),
		Argv: []string{self, "owner", k.folder.Dir(), ownerInUnit, string(sub.RunID)}, Env: servantEnv("owner"),
		Notify:      true, // Type=exec is younger than the oldest systemd that we take
		StartWithin: startWithin, StopWithin: time.Duration(sub.Request.GraceS*float64(time.Second)) + unitStopMargin, Forget: true,
	}
	if kind == systemd.System && os.Geteuid() != 0 {
		service.User = loginName()
	}
	for {
		u, err := m.StartService(ctx, service)
		if errors.Is(err, systemd.ErrExists) || errors.Is(err, systemd.ErrUnanswered) {
			if there, missing := m.Read(ctx, service.Name, ""); missing == nil && !there.Ended() && there.MainPID > 0 {
				return there, nil
			}
		} else {
			return u, err
		}
		select {
		case <-ctx.Done():
			return u, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// await waits for the unit's main process to fetch its run. Anybody of this user can connect to us.
func (c *coming) await(ctx context.Context, u longstop.Unit, over <-chan struct{}) (*link, error) {
	for {
		select {
		case l := <-c.arrived:
			if s, known := behind(l); known && s.PID == u.MainPID {
				return l, nil
			}
			l.close()
		case <-over:
			return nil, errors.New("the unit ended before its owner took the run")
		case <-ctx.Done():
			return nil, errors.New("the unit's owner did not come for the run")
		}
	}
}

// assignUnit makes what a run writes into and gives it to its owner, and all ends of them.
func (k *keeper) assignUnit(owner *link, sub wire.Submit, from login, kind systemd.Kind) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	read, write, err := outputEnds(sub.Request, sub.Terminal)
	if err != nil {
		return err
	}
	fds = append(fds, read[0], write[0], read[1], write[1])
	report, err := gate.NewReport()
	if err != nil {
		return err
	}
	fds = append(fds, report)
	given := assignment{StateDir: k.folder.Dir(), Manager: kind, Submit: sub, Login: from}
	return owner.send(given, fds...)
}

// unbegun ends a run that no owner began, or answers with what its owner wrote before it died.
func (k *keeper) unbegun(sub wire.Submit, why error) (reply, error) {
	run, err := k.folder.Run(sub.RunID)
	if err != nil {
		return reply{}, err
	}
	defer run.Close()
	if err := lockSoon(run); err != nil {
		return reply{}, fmt.Errorf("%w; and the run's lock cannot be taken: %w", why, err)
	}
	if !run.Fresh() {
		run.Close() // and the lock with it
		k.succeedTo(sub.RunID)
		return k.afterOwner(sub.RunID, nil)
	}
	rec := firstRecord(sub, writerOf(longstop.WriterKeeper))
	none, empty := 0, true
	enter(&rec, longstop.WorkloadLaunchFailed)
	rec.LaunchError = &longstop.LaunchError{Step: "unit", Message: why.Error()}
	rec.FinishedAt, rec.Output.Stream = longstop.At(time.Now()), longstop.StreamComplete
	rec.Boundary.Processes, rec.Boundary.Empty = &none, &empty
	raw, err := run.Finish(&rec, sub.Secret)
	if err != nil {
		return reply{}, fmt.Errorf("%w; nothing of the work ran, and that could not be written down: %w", why, err)
	}
	logEnd(rec)
	return reply{Record: raw}, nil
}

// manager is the keeper's connection to a service manager.
func (k *keeper) manager(ctx context.Context, kind systemd.Kind) (*systemd.Manager, error) {
	k.managers.Lock()
	defer k.managers.Unlock()
	if m := k.managers.of[kind]; m != nil {
		return m, nil
	}
	m, err := systemd.Connect(ctx, kind)
	if err == nil {
		k.managers.of[kind] = m
	}
	return m, err
}

// corroborate keeps beside a run's record what the manager says of its unit, until the unit is over. A
// unit is held until its end was read; what nobody held when it ended, the manager has forgotten.
func (k *keeper) corroborate(id longstop.RunID, u longstop.Unit) (over <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if following := k.follows[id]; following != nil {
		return following
	}
	ended := make(chan struct{})
	k.follows[id] = ended
	go func() {
		k.follow(id, u)
		k.mu.Lock()
		delete(k.follows, id)
		k.mu.Unlock()
		close(ended)
		k.stir()
	}()
	return ended
}

func (k *keeper) follow(id longstop.RunID, u longstop.Unit) {
	run, err := k.folder.Run(id)
	if err != nil {
		return
	}
	defer run.Close()
	if u.InvocationID != "" {
		run.KeepUnit(u)
	}
	keep := func(now longstop.Unit) {
		u = now
		run.KeepUnit(u)
	}
	for {
		ctx := context.Background()
		m, err := k.manager(ctx, systemd.Kind(u.Manager))
		if err == nil {
			m.Hold(ctx, u.Name)
			var last longstop.Unit
			last, err = m.Follow(ctx, u.Name, u.InvocationID, keep)
			if err == nil {
				keep(last)
				m.Release(ctx, u.Name)
				return
			}
		}
		if errors.Is(err, systemd.ErrNoUnit) || run.Final() {
			u.Forgotten, u.ReadAt = true, longstop.At(time.Now())
			run.KeepUnit(u)
			return
		}
		time.Sleep(time.Second) // it is away, and may come back
	}
}

// unitOf is what a keeper kept of a run's unit.
func unitOf(run *record.Run, b longstop.Boundary) *longstop.Unit {
	if b.Unit == "" {
		return nil
	}
	kept := run.Unit()
	if kept == nil || kept.Name != b.Unit || kept.Manager != b.Manager {
		return nil // nothing yet, or not a keeper's word
	}
	return kept
}

// namedUnit is what a keeper kept of a run's unit, or the unit's name where it has yet to keep anything.
func namedUnit(kept *longstop.Unit, b longstop.Boundary) *longstop.Unit {
	if kept == nil && b.Unit != "" {
		kept = &longstop.Unit{Manager: b.Manager, Name: b.Unit}
	}
	return kept
}

// unitOpen reports whether the end of a unit is still to be told of.
func unitOpen(u *longstop.Unit) bool { return u != nil && !u.Ended() && !u.Forgotten }

// unitNow asks the manager about the unit of a run that is over, if a keeper did not see the unit's end:
// that keeper may be gone, and the unit forgotten.
func unitNow(folder *record.Folder, id longstop.RunID, kept *longstop.Unit) *longstop.Unit {
	if !unitOpen(kept) {
		return kept
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	m, err := systemd.Connect(ctx, systemd.Kind(kept.Manager))
	if err != nil {
		return kept
	}
	defer m.Close()
	now, err := m.Read(ctx, kept.Name, kept.InvocationID)
	if err == nil {
		return &now
	}
	if run, err := folder.Run(id); err == nil { // its end may just have been read, and the unit let go
		defer run.Close()
		if again := run.Unit(); again != nil && again.Ended() {
			return again
		}
	}
	if errors.Is(err, systemd.ErrNoUnit) {
		kept.Forgotten, kept.ReadAt = true, longstop.At(time.Now())
	}
	return kept
}

// corroborateAgain goes on with what an earlier keeper kept.
func (k *keeper) corroborateAgain(id longstop.RunID) {
	run, err := k.folder.Run(id)
	if err != nil {
		return
	}
	defer run.Close()
	_, rec, err := run.Read()
	if err != nil || rec.Boundary.Unit == "" {
		return
	}
	u := longstop.Unit{Manager: rec.Boundary.Manager, Name: rec.Boundary.Unit}
	if kept := unitOf(run, rec.Boundary); kept != nil {
		u = *kept
	}
	if unitOpen(&u) {
		k.corroborate(id, u)
	}
}

// homeInScope is where runs' cgroups can be made once this process is in a scope.
func homeInScope(dir string) (boundary.Home, error) {
	folder, err := record.Open(dir)
	if err != nil {
		return boundary.Home{}, err
	}
	defer folder.Close()
	if err := scoped(folder.StateID()); err != nil {
		return boundary.Home{}, err
	}
	return boundary.FindHome()
}

// scoped puts this process, which is about to start a keeper, into a scope of the user's service manager,
// with a cgroup that runs' cgroups can be made in. Only of one that outlives the last logout: else all
// would end sooner there than in the login.
func scoped(stateID string) error {
	if os.Geteuid() == 0 || !exists("/var/lib/systemd/linger/"+loginName()) {
		return errors.New("no service manager of this user's outlives the login")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin/2)
	defer cancel()
	m, err := systemd.Connect(ctx, systemd.User)
	if err != nil {
		return err
	}
	defer m.Close()
	name := systemd.ScopeName(stateID)
	for {
		_, err = m.StartScope(ctx, systemd.Scope{Name: name, Description: "Longstop runs", PIDs: []int{os.Getpid()}, StopWithin: time.Minute})
		if !errors.Is(err, systemd.ErrExists) {
			return err
		}
		// An earlier keeper's, in which its runs go on, or which is about to end.
		if err = m.Attach(ctx, name, "", os.Getpid()); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

package systemd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/longstop/longstop"
)

// hearing is a line whose signals come in, in order, until stop.
type hearing struct {
	*line
	signals chan *dbus.Signal
	owner   string // the manager's name on the bus: anybody may send us signals
	stop    func()
}

// hear listens for signals about jobs, about the manager and, if named, about a unit.
func (m *Manager) hear(ctx context.Context, unit string) (*hearing, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for {
		l, err := m.bus.connect(ctx)
		if err == nil {
			var h *hearing
			if h, err = l.hear(ctx, unit); err == nil {
				return h, nil
			}
		}
		if !m.bus.pause(ctx, err) {
			return nil, err
		}
	}
}

func (l *line) hear(ctx context.Context, unit string) (*hearing, error) {
	h := &hearing{line: l, signals: make(chan *dbus.Signal, 16)}
	l.Signal(h.signals) // before all else: what changes from here on is heard
	h.stop = func() { l.RemoveSignal(h.signals) }
	if unit != "" && !l.direct {
		rule := matchUnit(unit)
		h.stop = func() {
			l.RemoveSignal(h.signals)
			l.BusObject().Go(busName+".RemoveMatch", dbus.FlagNoReplyExpected, nil, rule)
		}
	}
	if err := h.begin(ctx, unit); err != nil {
		h.stop()
		return nil, err
	}
	return h, nil
}

// begin has the bus pass on what we want to hear, and the manager say it, which it does for those who
// ask alone; one that executed itself anew is asked again. All is asked at once, in order.
func (h *hearing) begin(ctx context.Context, unit string) error {
	var asked []*dbus.Call
	ask := func(name, path, method string, args ...any) {
		asked = append(asked, h.Object(name, dbus.ObjectPath(path)).GoWithContext(ctx, method, dbus.FlagNoAutoStart, make(chan *dbus.Call, 1), args...))
	}
	defer time.AfterFunc(answersWithin, func() { h.Close() }).Stop()
	ask(managerName, managerPath, managerIface+".Subscribe")
	if !h.direct {
		ask(busName, busPath, busName+".GetNameOwner", managerName)
		for _, rule := range h.unmatched(unit) {
			ask(busName, busPath, busName+".AddMatch", rule)
		}
	}
	for i, call := range asked {
		err := explain((<-call.Done).Err)
		if err != nil && !(i == 0 && isNamed(err, "org.freedesktop.systemd1.AlreadySubscribed")) {
			return err
		}
	}
	if !h.direct {
		h.matched.Store(true)
		h.owner, _ = first(asked[1].Body).(string)
	}
	return nil
}

// unmatched are rules that the bus has not been given yet.
func (l *line) unmatched(unit string) (rules []string) {
	if !l.matched.Load() {
		rules = []string{
			"type='signal',interface='" + managerIface + "',member='JobRemoved'",
			"type='signal',interface='" + managerIface + "',member='UnitRemoved'",
			"type='signal',sender='" + busName + "',member='NameOwnerChanged',arg0='" + managerName + "'",
		}
	}
	if unit != "" {
		rules = append(rules, matchUnit(unit))
	}
	return rules
}

func matchUnit(unit string) string {
	return "type='signal',interface='" + propsIface + "',member='PropertiesChanged',path='" + unitPath(unit) + "'"
}

// says reports whether a signal is one of the manager's, by its full name.
func (h *hearing) says(s *dbus.Signal, name string) bool {
	return s.Name == name && (h.direct || s.Sender == h.owner)
}

// cameBack reports whether a manager that was away has its name again. What it said meanwhile may
// have been missed.
func (h *hearing) cameBack(s *dbus.Signal) bool {
	if s.Name != busName+".NameOwnerChanged" || s.Sender != busName || len(s.Body) != 3 {
		return false
	}
	owner, _ := s.Body[2].(string)
	return s.Body[0] == managerName && owner != ""
}

// Follow waits until a unit is over and returns what was said of it then, which may be more than can
// be read a moment later; seen, if not nil, is called with all that is said before. If the manager
// forgot the unit before its end was seen, as when it was killed itself, that is ErrNoUnit, beside
// what was seen last, marked as Forgotten. With an invocation, another start of the same name is
// ErrNoUnit, too.
func (m *Manager) Follow(ctx context.Context, unit, invocation string, seen func(longstop.Unit)) (longstop.Unit, error) {
	if seen == nil {
		seen = func(longstop.Unit) {}
	}
	w := watch{m: m, unit: unit, invocation: invocation, tell: seen}
	for {
		over, err := w.round(ctx)
		if errors.Is(err, ErrNoUnit) {
			w.seen.Forgotten = true
		}
		if err != nil {
			return w.seen, fmt.Errorf("wait for the end of %s: %w", unit, err)
		}
		if over {
			return w.seen, nil
		}
	}
}

// watch is what is known of a unit whose end is waited for.
type watch struct {
	m                *Manager
	unit, invocation string
	props            map[string]dbus.Variant
	seen             longstop.Unit
	tell             func(longstop.Unit)
}

// round listens, reads where the unit stands, and follows it until it is over, or until something
// may have been missed.
func (w *watch) round(ctx context.Context) (over bool, err error) {
	h, err := w.m.hear(ctx, w.unit)
	if err != nil {
		return false, err
	}
	defer h.stop()
	if err := w.look(ctx); err != nil || w.over() {
		return err == nil, err
	}
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-h.Context().Done():
			return false, nil
		case s, open := <-h.signals:
			if !open {
				return false, nil
			}
			if h.cameBack(s) || h.says(s, managerIface+".UnitRemoved") && first(s.Body) == w.unit {
				return false, nil // a manager about to execute itself anew says so of every unit, too
			}
			if over, err := w.heard(h, s); over || err != nil {
				return over, err
			}
		}
	}
}

// look reads the unit.
func (w *watch) look(ctx context.Context) error {
	props, err := w.m.properties(ctx, w.unit)
	if err != nil {
		return err
	}
	return w.take(props)
}

// heard takes what a signal says of the unit. A service's own properties come before the unit's.
func (w *watch) heard(h *hearing, s *dbus.Signal) (over bool, err error) {
	if !h.says(s, propsIface+".PropertiesChanged") || s.Path != dbus.ObjectPath(unitPath(w.unit)) || len(s.Body) != 3 {
		return false, nil
	}
	changed, _ := s.Body[1].(map[string]dbus.Variant)
	err = w.take(changed)
	return err == nil && w.over(), err
}

func (w *watch) take(props map[string]dbus.Variant) error {
	if w.props == nil {
		w.props = map[string]dbus.Variant{}
	}
	maps.Copy(w.props, props)
	now := w.m.unit(w.unit, w.props)
	if w.invocation == "" {
		w.invocation = now.InvocationID
	}
	if now.InvocationID != w.invocation {
		return ErrNoUnit // what was seen stays what was seen
	}
	w.seen = now
	if !w.over() {
		w.tell(now)
	}
	return nil
}

// over: a unit that has not been started yet is inactive, too.
func (w *watch) over() bool { return w.seen.Ended() && w.seen.InvocationID != "" }

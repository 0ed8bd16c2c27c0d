package systemd

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/longstop/longstop"
)

// Read reads what the manager says of a unit. With an invocation, another start of the same name is
// ErrNoUnit. It is one call, so that a unit that is collected meanwhile is there or not, never half.
func (m *Manager) Read(ctx context.Context, unit, invocation string) (longstop.Unit, error) {
	u, _, err := m.read(ctx, unit)
	if err == nil && invocation != "" && u.InvocationID != invocation {
		err = ErrNoUnit
	}
	if err != nil {
		return longstop.Unit{}, fmt.Errorf("read %s: %w", unit, err)
	}
	return u, nil
}

// read also returns the path of the unit's job, if it has one.
func (m *Manager) read(ctx context.Context, unit string) (u longstop.Unit, job string, err error) {
	props, err := m.properties(ctx, unit)
	if err != nil {
		return u, "", err
	}
	return m.unit(unit, props), jobOf(props), nil
}

// properties reads what a unit is and what a service is in one answer: no interface means all.
func (m *Manager) properties(ctx context.Context, unit string) (map[string]dbus.Variant, error) {
	body, err := m.bus.ask(ctx, managerName, unitPath(unit), propsIface+".GetAll", "")
	if err != nil {
		return nil, err
	}
	props, ok := first(body).(map[string]dbus.Variant)
	if !ok {
		return nil, fmt.Errorf("properties of the form %T", first(body))
	}
	if !known(props) {
		return nil, ErrNoUnit
	}
	return props, nil
}

func (m *Manager) unit(name string, props map[string]dbus.Variant) longstop.Unit {
	u := unitOf(props)
	u.Manager, u.Name, u.ReadAt = string(m.kind), name, longstop.At(time.Now())
	return u
}

// known tells a unit that is loaded from one that the manager made up to answer us.
func known(props map[string]dbus.Variant) bool {
	load, active := text(props, "LoadState"), text(props, "ActiveState")
	return load != "" && (load != "not-found" || active != "inactive" && active != "")
}

// unitOf reads the properties that corroborate a record.
func unitOf(props map[string]dbus.Variant) longstop.Unit {
	u := longstop.Unit{
		ActiveState: text(props, "ActiveState"), SubState: text(props, "SubState"), Result: text(props, "Result"),
		ControlGroup: text(props, "ControlGroup"),
		MainPID:      int(number[uint32](props, "ExecMainPID")),
		StartedAt:    instant(props, "ExecMainStartTimestamp"), EndedAt: instant(props, "ExecMainExitTimestamp"),
	}
	if id, _ := props["InvocationID"].Value().([]byte); len(id) == 16 {
		u.InvocationID = hex.EncodeToString(id)
	}
	// A code of 0 is a process that has not ended; its status is then no status.
	if u.MainCode = codes[number[int32](props, "ExecMainCode")]; u.MainCode != "" {
		status := int(number[int32](props, "ExecMainStatus"))
		u.MainStatus = &status
	}
	return u
}

// codes are si_code of waitid(2).
var codes = map[int32]string{1: "exited", 2: "killed", 3: "dumped"}

func text(props map[string]dbus.Variant, name string) string {
	s, _ := props[name].Value().(string)
	return s
}

func number[N int32 | uint32 | uint64](props map[string]dbus.Variant, name string) N {
	n, _ := props[name].Value().(N)
	return n
}

// instant reads microseconds since 1970; 0 is none.
func instant(props map[string]dbus.Variant, name string) longstop.Time {
	us := number[uint64](props, name)
	if us == 0 || us > 1<<62 {
		return longstop.Time{}
	}
	return longstop.At(time.UnixMicro(int64(us)))
}

// jobOf is the path of a unit's job: (number, path), and number 0 if there is none.
func jobOf(props map[string]dbus.Variant) string {
	job, _ := props["Job"].Value().([]any)
	if len(job) != 2 {
		return ""
	}
	id, _ := job[0].(uint32)
	path, _ := job[1].(dbus.ObjectPath)
	if id == 0 {
		return ""
	}
	return string(path)
}

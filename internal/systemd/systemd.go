// Package systemd speaks to a host's service managers, the system's and the user's, and to logind.
// It starts units, waits for them, and reads what is said of them before it is forgotten.
//
// It keeps two rules. Every call has a deadline, and an error says whether the other side refused,
// knew nothing, or could not be asked. And a unit that the manager does not know says nothing: asked
// for its properties, systemd answers as for one that succeeded; this package answers ErrNoUnit.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Kind is one of the two service managers that a user may speak to.
type Kind string

const (
	System Kind = "system" // PID 1
	User   Kind = "user"   // the user's own, which ends with the last login unless the user lingers
)

var (
	// ErrNoSystemd says that systemd is not PID 1.
	ErrNoSystemd = errors.New("systemd does not run this host")
	// ErrNoManager says that the manager's sockets are not there: for a user, that none is running.
	ErrNoManager = errors.New("no service manager to ask")
	// ErrRefused says that the manager, or polkit, does not let this user do it.
	ErrRefused = errors.New("refused")
	// ErrExists says that there is a unit of that name.
	ErrExists = errors.New("a unit of that name exists")
	// ErrNoUnit says that the manager knows no such unit, or no longer: it says nothing of how it ended.
	ErrNoUnit = errors.New("the service manager does not know the unit")
	// ErrUnanswered says that a request went out and no answer came: it may have been acted upon.
	ErrUnanswered = errors.New("the service manager did not answer")
)

const (
	busName      = "org.freedesktop.DBus"
	busPath      = "/org/freedesktop/DBus"
	propsIface   = "org.freedesktop.DBus.Properties"
	managerName  = "org.freedesktop.systemd1"
	managerPath  = "/org/freedesktop/systemd1"
	managerIface = "org.freedesktop.systemd1.Manager"
	unitIface    = "org.freedesktop.systemd1.Unit"
)

// Manager is a service manager. It is connected when it must be, and again when the connection was
// lost, as by daemon-reexec. Its methods may be called from several goroutines.
type Manager struct {
	kind Kind
	bus  *bus
}

// Connect connects to this user's manager of a kind.
func Connect(ctx context.Context, kind Kind) (*Manager, error) {
	if err := booted(); err != nil {
		return nil, err
	}
	places := systemPlaces
	if kind == User {
		places = userPlaces(os.Getenv("XDG_RUNTIME_DIR"), os.Geteuid())
	}
	m := &Manager{kind: kind, bus: newBus(places...)}
	if _, err := m.bus.connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to the %s's service manager: %w", kind, err)
	}
	return m, nil
}

// Close ends the connection. Units that it keeps from being collected are let go.
func (m *Manager) Close() { m.bus.close() }

// Kind says which manager it is.
func (m *Manager) Kind() Kind { return m.kind }

// booted is sd_booted(3).
func booted() error {
	if info, err := os.Stat("/run/systemd/system"); err != nil || !info.IsDir() {
		return ErrNoSystemd
	}
	return nil
}

// The bus comes first: over it a unit can be kept from being collected. A manager's own socket is
// there without a message bus.
var systemPlaces = []place{{path: "/run/dbus/system_bus_socket"}, {path: "/run/systemd/private", direct: true}}

// userPlaces are where the user's manager listens. Environment variables that su or sudo left from
// another login are not believed: the folder must be the user's own.
func userPlaces(runtimeDir string, uid int) []place {
	usual := "/run/user/" + strconv.Itoa(uid)
	if runtimeDir == "" || !ownedBy(runtimeDir, uid) {
		runtimeDir = usual
	}
	return []place{{path: runtimeDir + "/bus"}, {path: runtimeDir + "/systemd/private", direct: true}}
}

func ownedBy(dir string, uid int) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(st.Uid) == uid
}

// Version is the manager's version as it names itself, and its leading number.
func (m *Manager) Version(ctx context.Context) (name string, number int, err error) {
	if err := m.bus.property(ctx, managerName, managerPath, managerIface, "Version", &name); err != nil {
		return "", 0, fmt.Errorf("read the manager's version: %w", err)
	}
	return name, leadingNumber(name), nil
}

// leadingNumber reads "252 (252.39-1~deb12u2)", "v255.4" and "256~rc1".
func leadingNumber(version string) (n int) {
	for i, c := range version {
		switch {
		case c >= '0' && c <= '9' && n < 1e6:
			n = n*10 + int(c-'0')
		case i == 0 && c == 'v':
		default:
			return n
		}
	}
	return n
}

// Stopping reports whether the manager is going down (`systemctl is-system-running` says stopping),
// or the unit, if one is named, is being stopped: what a TERM to its main process then means.
func (m *Manager) Stopping(ctx context.Context, unit string) (bool, error) {
	var state string
	if err := m.bus.property(ctx, managerName, managerPath, managerIface, "SystemState", &state); err != nil {
		return false, fmt.Errorf("read the manager's state: %w", err)
	}
	if state == "stopping" || unit == "" {
		return state == "stopping", nil
	}
	u, job, err := m.read(ctx, unit)
	if err != nil || u.ActiveState == "deactivating" || u.Ended() {
		return err == nil, err
	}
	if job == "" {
		return false, nil
	}
	var kind string
	err = m.bus.property(ctx, managerName, job, "org.freedesktop.systemd1.Job", "JobType", &kind)
	if isUnknownObject(err) {
		return false, nil // it is done
	}
	return kind == "stop" || kind == "restart", err
}

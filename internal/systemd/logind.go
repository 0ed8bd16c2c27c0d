package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
)

// Logind is the login manager: which sessions there are, and what it ends at logout.
type Logind struct{ bus *bus }

// ErrNoSession says that a process is in no login session, as under a service or with UsePAM=no.
var ErrNoSession = errors.New("in no login session")

const (
	loginName   = "org.freedesktop.login1"
	loginPath   = "/org/freedesktop/login1"
	loginIface  = "org.freedesktop.login1.Manager"
	noLoginUser = "org.freedesktop.login1.NoSuchUser"
)

// ConnectLogind connects to logind, which has no socket of its own.
func ConnectLogind(ctx context.Context) (*Logind, error) {
	if err := booted(); err != nil {
		return nil, err
	}
	l := &Logind{bus: newBus(systemPlaces[0])}
	line, err := l.bus.connect(ctx)
	if err == nil {
		_, err = line.once(ctx, busName, busPath, busName+".GetNameOwner", loginName) // one that is not there is not waited for
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("connect to logind: %w", err)
	}
	return l, nil
}

// Close ends the connection.
func (l *Logind) Close() { l.bus.close() }

// Lingers reports whether a user's service manager stays when the user has logged out. Logind has
// every user loaded who lingers: one that it does not know does not.
func (l *Logind) Lingers(ctx context.Context, uid int) (bool, error) {
	body, err := l.bus.ask(ctx, loginName, loginPath, loginIface+".GetUser", uint32(uid))
	if isNamed(err, noLoginUser) {
		return false, nil
	}
	var linger bool
	if err == nil {
		err = l.bus.property(ctx, loginName, string(pathIn(body)), "org.freedesktop.login1.User", "Linger", &linger)
	}
	if err != nil {
		return false, fmt.Errorf("whether the user lingers: %w", err)
	}
	return linger, nil
}

// KillsAtLogout reports whether logind ends what a session of the user's leaves behind
// (KillUserProcesses, KillOnlyUsers and KillExcludeUsers of logind.conf(5)). Lingering is no way
// around it: what is in the session's scope dies with the session.
func (l *Logind) KillsAtLogout(ctx context.Context, user string) (bool, error) {
	body, err := l.bus.ask(ctx, loginName, loginPath, propsIface+".GetAll", loginIface)
	if err != nil {
		return false, fmt.Errorf("whether logind kills at logout: %w", err)
	}
	props, _ := first(body).(map[string]dbus.Variant)
	kill, ok := props["KillUserProcesses"].Value().(bool)
	if !ok {
		return false, errors.New("whether logind kills at logout: it does not say")
	}
	only, _ := props["KillOnlyUsers"].Value().([]string)
	exclude, _ := props["KillExcludeUsers"].Value().([]string)
	return kill && kills(user, only, exclude), nil
}

// kills is logind's rule: where nobody is excluded, root is.
func kills(user string, only, exclude []string) bool {
	if len(exclude) == 0 {
		exclude = []string{"root"}
	}
	return !slices.Contains(exclude, user) && (len(only) == 0 || slices.Contains(only, user))
}

// Session is a login session, and the unit that its processes are in.
type Session struct {
	ID    string `json:"id"`
	Scope string `json:"scope,omitempty"`
	Class string `json:"class,omitempty"` // "user", "background", …
}

// Session finds the login session that a process is in, or ErrNoSession.
func (l *Logind) Session(ctx context.Context, pid int) (Session, error) {
	body, err := l.bus.ask(ctx, loginName, loginPath, loginIface+".GetSessionByPID", uint32(pid))
	if isNamed(err, "org.freedesktop.login1.NoSessionForPID") {
		return Session{}, fmt.Errorf("process %d: %w", pid, ErrNoSession)
	}
	if err == nil {
		body, err = l.bus.ask(ctx, loginName, string(pathIn(body)), propsIface+".GetAll", "org.freedesktop.login1.Session")
	}
	if err != nil {
		return Session{}, fmt.Errorf("the session of process %d: %w", pid, err)
	}
	props, _ := first(body).(map[string]dbus.Variant)
	return Session{ID: text(props, "Id"), Scope: text(props, "Scope"), Class: text(props, "Class")}, nil
}

// Shutdown is a shutdown to come.
type Shutdown struct {
	Kind string    `json:"kind"` // "poweroff", "reboot", …; "" where logind does not say
	At   time.Time `json:"at,omitzero"`
}

// Shutdown returns the shutdown that is planned (shutdown(8) with a time) or has begun, nil if none.
func (l *Logind) Shutdown(ctx context.Context) (*Shutdown, error) {
	body, err := l.bus.ask(ctx, loginName, loginPath, propsIface+".GetAll", loginIface)
	if err != nil {
		return nil, fmt.Errorf("whether a shutdown is planned: %w", err)
	}
	props, _ := first(body).(map[string]dbus.Variant)
	return shutdownIn(props), nil
}

func shutdownIn(props map[string]dbus.Variant) *Shutdown {
	planned, _ := props["ScheduledShutdown"].Value().([]any)
	if len(planned) == 2 {
		kind, _ := planned[0].(string)
		at, _ := planned[1].(uint64)
		if kind != "" {
			return &Shutdown{Kind: kind, At: time.UnixMicro(int64(at)).UTC()}
		}
	}
	if begun, _ := props["PreparingForShutdown"].Value().(bool); begun {
		return &Shutdown{}
	}
	return nil
}

// mayManage asks polkit whether this process may have the system's manager start units. Nothing is
// tried, nor is polkit started for it. Root may.
func (l *Logind) mayManage(ctx context.Context) (bool, error) {
	if os.Geteuid() == 0 {
		return true, nil
	}
	line, err := l.bus.connect(ctx)
	if err != nil {
		return false, err
	}
	type subject struct {
		Kind    string
		Details map[string]dbus.Variant
	}
	body, err := line.once(ctx, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority",
		"org.freedesktop.PolicyKit1.Authority.CheckAuthorization",
		subject{"system-bus-name", map[string]dbus.Variant{"name": dbus.MakeVariant(line.Names()[0])}},
		"org.freedesktop.systemd1.manage-units", map[string]string{}, uint32(0), "")
	if errors.Is(err, errAway) {
		return false, errors.New("polkit is not running, and so was not asked")
	}
	if err != nil {
		return false, fmt.Errorf("ask polkit: %w", err)
	}
	var answer struct {
		Authorized, Challenge bool
		Details               map[string]string
	}
	err = dbus.Store(body, &answer)
	return answer.Authorized, err
}

func isNamed(err error, name string) bool {
	var t *trouble
	return errors.As(err, &t) && t.name == name
}

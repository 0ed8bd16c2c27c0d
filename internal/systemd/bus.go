package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

// answersWithin is the longest that one call waits. Whoever does not answer by then is left: the
// connection is closed, for a write that hangs ends in no other way.
const answersWithin = 5 * time.Second

// place is a Unix socket on which D-Bus is spoken: a message bus, or a manager's own.
type place struct {
	path   string
	direct bool // no bus between: no names, no Hello, and signals of everything
}

// bus is a connection to the first of several places that answers, made anew when it was lost.
type bus struct {
	places  []place
	dialing chan struct{} // holds one token while somebody connects

	mu     sync.Mutex
	conn   *line
	closed bool
}

// line is one connection.
type line struct {
	*dbus.Conn
	place
	end context.CancelFunc

	matched atomic.Bool // the bus passes the manager's signals on
}

func newBus(places ...place) *bus { return &bus{places: places, dialing: make(chan struct{}, 1)} }

func (b *bus) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.conn != nil {
		b.conn.end()
		b.conn.Close()
	}
}

// connect returns the connection, made now if there is none.
func (b *bus) connect(ctx context.Context) (*line, error) {
	select {
	case b.dialing <- struct{}{}:
		defer func() { <-b.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
	}
	if l, err := b.connected(); l != nil || err != nil {
		return l, err
	}
	var errs []error
	for _, p := range b.places {
		l, err := dial(ctx, p)
		if err == nil {
			return b.keep(l)
		}
		errs = append(errs, err)
	}
	return nil, noWay(errs)
}

func (b *bus) connected() (*line, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, dbus.ErrClosed
	case b.conn != nil && b.conn.Connected():
		return b.conn, nil
	}
	return nil, nil
}

func (b *bus) keep(l *line) (*line, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		l.end()
		return nil, dbus.ErrClosed
	}
	b.conn = l
	return l, nil
}

// noWay says why no place answered: nobody listens anywhere, or the first who does would not talk.
func noWay(errs []error) error {
	for _, err := range errs {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrNoManager, errors.Join(errs...))
}

// dial connects and says who we are, within the deadline of a call.
//
// A manager's own socket is dialled again where the first question is not answered soon. systemd
// (sd-bus, as a server) that receives the end of the login and a message at once keeps the message
// until more arrives; nothing tells that it has received the one, so the other is held back a little.
func dial(ctx context.Context, p place) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for pause := time.Millisecond; ; pause *= 4 {
		l, err := logIn(ctx, p)
		if err != nil || !p.direct {
			return l, err
		}
		rest(ctx, pause)
		soon, cancel := context.WithTimeout(ctx, 100*pause)
		_, err = l.once(soon, managerName, managerPath, busName+".Peer.Ping")
		cancel()
		if err == nil {
			return l, nil
		}
		if l.end(); ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", p.path, err)
		}
	}
}

func logIn(ctx context.Context, p place) (*line, error) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, end)() // not answered in time: closed, which ends what waits below
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(p.path), dbus.WithContext(lasting),
		dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		end()
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	if err = conn.Auth(nil); err == nil && !p.direct {
		err = conn.Hello()
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("%s: log in: %w: %w", p.path, loginKind(ctx, err), err)
	}
	return &line{Conn: conn, place: p, end: end}, nil
}

// loginKind tells what a failed login means. Nothing was asked yet: it may be tried again.
func loginKind(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ErrUnanswered
	case err.Error() == "dbus: authentication failed": // the library has no other word for it
		return ErrRefused
	}
	return errAway
}

// once calls a method over a connection, and has the bus start nobody for it. The error tells what may
// be done again: see undelivered.
func (l *line) once(ctx context.Context, name string, path, method string, args ...any) ([]any, error) {
	defer time.AfterFunc(answersWithin, func() { l.Close() }).Stop()
	call := l.Object(name, dbus.ObjectPath(path)).CallWithContext(ctx, method, dbus.FlagNoAutoStart, args...)
	return call.Body, explain(call.Err)
}

// ask calls a method that changes nothing, again if need be: a manager that executes itself anew
// is away for a moment.
func (b *bus) ask(ctx context.Context, name, path, method string, args ...any) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for {
		l, err := b.connect(ctx)
		if err == nil {
			var body []any
			body, err = l.once(ctx, name, path, method, args...)
			if err == nil || !passing(err) {
				return body, err
			}
		}
		if !b.pause(ctx, err) {
			return nil, err
		}
	}
}

// tell calls a method that may change something: again only where the call was not delivered.
func (b *bus) tell(ctx context.Context, name, path, method string, args ...any) ([]any, error) {
	within, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for {
		l, err := b.connect(within)
		if err == nil {
			var body []any
			body, err = l.once(within, name, path, method, args...)
			if !undelivered(err) {
				return body, err
			}
		}
		if !b.pause(within, err) {
			return nil, err
		}
	}
}

// pause waits a moment for a manager that is away, and reports whether to try again. One whose
// sockets are not there is not waited for; one that left a socket may be about to listen again.
func (b *bus) pause(ctx context.Context, err error) bool {
	gone := errors.Is(err, ErrNoManager) && !errors.Is(err, syscall.ECONNREFUSED)
	if gone || errors.Is(err, ErrRefused) || b.isClosed() {
		return false
	}
	return rest(ctx, 10*time.Millisecond)
}

// rest lets d pass, and reports false where the context is over before.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (b *bus) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// property reads one property.
func (b *bus) property(ctx context.Context, name, path, iface, property string, into any) error {
	body, err := b.ask(ctx, name, path, propsIface+".Get", iface, property)
	if err != nil {
		return err
	}
	var v dbus.Variant
	if err := dbus.Store(body, &v); err != nil {
		return err
	}
	return v.Store(into)
}

// trouble is an error that the other side answered with, in our words.
type trouble struct {
	kind error  // one of the package's, or errAway
	name string // D-Bus's name of it
	text string
}

func (t *trouble) Error() string {
	if t.text == "" {
		return t.name
	}
	return t.text
}
func (t *trouble) Unwrap() error { return t.kind }

// errAway says that nobody took the call.
var errAway = errors.New("the service manager is away")

// kinds are D-Bus's names for what this package has a word for.
var kinds = map[string]error{
	"org.freedesktop.DBus.Error.AccessDenied":                     ErrRefused,
	"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": ErrRefused,
	"org.freedesktop.DBus.Error.AuthFailed":                       ErrRefused,
	"org.freedesktop.PolicyKit1.Error.NotAuthorized":              ErrRefused,
	"org.freedesktop.systemd1.UnitExists":                         ErrExists,
	"org.freedesktop.systemd1.NoSuchUnit":                         ErrNoUnit,
	"org.freedesktop.DBus.Error.NoReply":                          ErrUnanswered,
	"org.freedesktop.DBus.Error.Disconnected":                     ErrUnanswered,
	"org.freedesktop.DBus.Error.Timeout":                          ErrUnanswered,
	"org.freedesktop.DBus.Error.TimedOut":                         ErrUnanswered,
	"org.freedesktop.DBus.Error.ServiceUnknown":                   errAway,
	"org.freedesktop.DBus.Error.NameHasNoOwner":                   errAway,
}

// explain gives an error of a call its kind. What is no answer at all is ErrUnanswered: the call may
// have arrived.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var unsayable dbus.FormatError
	if errors.As(err, &unsayable) {
		return err // nothing was sent
	}
	var answered dbus.Error
	if !errors.As(err, &answered) {
		return fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	kind := kinds[answered.Name]
	if strings.HasPrefix(answered.Name, "org.freedesktop.DBus.Error.Spawn.") {
		kind = errAway
	}
	text, _ := first(answered.Body).(string)
	return &trouble{kind: kind, name: answered.Name, text: text}
}

func first(body []any) any {
	if len(body) == 0 {
		return nil
	}
	return body[0]
}

// passing reports whether a question may be answered when asked again.
func passing(err error) bool { return errors.Is(err, ErrUnanswered) || errors.Is(err, errAway) }

// undelivered reports whether the call surely did nothing, and may be made again.
func undelivered(err error) bool { return errors.Is(err, errAway) }

func isUnknownObject(err error) bool {
	var t *trouble
	return errors.As(err, &t) && (t.name == "org.freedesktop.DBus.Error.UnknownObject" || t.name == "org.freedesktop.DBus.Error.UnknownMethod")
}

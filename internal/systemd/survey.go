package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/longstop/longstop"
)

// Oldest is the first version of systemd whose units can be what we need (CollectMode).
const Oldest = 236

// surveyWithin bounds all questions of one Survey.
const surveyWithin = 3 * time.Second

// Survey is what a host's systemd can do for one user, for `hello` to carry.
type Survey struct {
	Version string  `json:"version,omitempty"`
	Offers  []Offer `json:"offers,omitempty"` // best first
	// What is absent below could not be learnt; Unasked says why.
	Linger        *bool     `json:"linger,omitempty"`
	KillsAtLogout *bool     `json:"kills_at_logout,omitempty"` // what is left in this user's sessions
	Session       *Session  `json:"session,omitempty"`         // that this process is in
	Shutdown      *Shutdown `json:"shutdown,omitempty"`
	Unasked       []string  `json:"unasked,omitempty"`
}

// Offer is one way to have a boundary of systemd's.
type Offer struct {
	Manager  Kind   `json:"manager"`
	Unit     string `json:"unit"` // "service": for an owner; "scope": a cgroup for all runs
	Can      bool   `json:"can"`
	Outlives bool   `json:"outlives,omitempty"` // the user's last logout
	Because  string `json:"because,omitempty"`  // why it cannot, or does not outlive
	Remedy   string `json:"remedy,omitempty"`   // a command
}

// Look asks the host's service managers and logind. It starts nothing, and takes part of a second
// also where nobody answers.
func Look(ctx context.Context, user string) Survey {
	ctx, cancel := context.WithTimeout(ctx, surveyWithin)
	defer cancel()
	if err := booted(); err != nil {
		return Survey{Offers: []Offer{{Manager: System, Unit: "service", Because: err.Error()}, {Manager: User, Unit: "scope", Because: err.Error()}}}
	}
	var s Survey
	allowed := s.askLogind(ctx, user)
	s.offer(s.systemService(ctx, allowed))
	if os.Geteuid() != 0 {
		// Root has the system's manager, and enters cgroups by itself.
		s.askUserManager(ctx, user)
	}
	slices.SortStableFunc(s.Offers, func(a, b Offer) int { return b.worth() - a.worth() })
	return s
}

func (s *Survey) offer(o ...Offer) { s.Offers = append(s.Offers, o...) }

func (s *Survey) unasked(err error) {
	if err != nil {
		s.Unasked = append(s.Unasked, err.Error())
	}
}

func (o Offer) worth() int {
	switch {
	case o.Can && o.Outlives:
		return 2
	case o.Can:
		return 1
	}
	return 0
}

// askLogind fills in what logind knows, and returns why the system's manager would refuse.
func (s *Survey) askLogind(ctx context.Context, user string) (refusal error) {
	l, err := ConnectLogind(ctx)
	if err != nil {
		s.unasked(err)
		if os.Geteuid() == 0 {
			return nil
		}
		return fmt.Errorf("%w: polkit could not be asked", ErrRefused)
	}
	defer l.Close()
	ask := func(into **bool, answer bool, err error) {
		if s.unasked(err); err == nil {
			*into = &answer
		}
	}
	lingers, err := l.Lingers(ctx, os.Geteuid())
	ask(&s.Linger, lingers, err)
	kills, err := l.KillsAtLogout(ctx, user)
	ask(&s.KillsAtLogout, kills, err)
	session, err := l.Session(ctx, os.Getpid())
	switch {
	case err == nil:
		s.Session = &session
	case !errors.Is(err, ErrNoSession):
		s.unasked(err)
	}
	s.Shutdown, err = l.Shutdown(ctx)
	s.unasked(err)
	may, err := l.mayManage(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case !may:
		return fmt.Errorf("%w: polkit does not let %s manage the system's units", ErrRefused, user)
	}
	return nil
}

// systemService is an owner under PID 1.
func (s *Survey) systemService(ctx context.Context, refusal error) Offer {
	o := Offer{Manager: System, Unit: "service", Outlives: true}
	version, err := versionOf(ctx, System)
	s.Version = version
	if err == nil {
		err = refusal
	}
	return o.unless(err)
}

// askUserManager is what the user's own manager offers: it, and all under it, ends some seconds
// after the last logout of a user who does not linger.
func (s *Survey) askUserManager(ctx context.Context, user string) {
	service := Offer{Manager: User, Unit: "service"}
	remedy := "loginctl enable-linger " + user
	switch {
	case s.Linger == nil:
		service.Because = "whether " + user + " lingers could not be learnt"
	case *s.Linger:
		service.Outlives = true
	default:
		service.Because = "the user's service manager, and all under it, ends after " + user + "'s last logout"
		service.Remedy = remedy
	}
	version, err := versionOf(ctx, User)
	if s.Version == "" {
		s.Version = version
	}
	service = service.unless(err)
	if errors.Is(err, ErrNoManager) {
		service.Because, service.Remedy = "no service manager of "+user+"'s is running", remedy
	}
	scope := service
	scope.Unit = "scope"
	s.offer(service, scope)
}

// unless is the offer if there is no error, else what keeps it from being one.
func (o Offer) unless(err error) Offer {
	if err != nil {
		return Offer{Manager: o.Manager, Unit: o.Unit, Because: err.Error()}
	}
	o.Can = true
	return o
}

func versionOf(ctx context.Context, kind Kind) (string, error) {
	m, err := Connect(ctx, kind)
	if err != nil {
		return "", err
	}
	defer m.Close()
	name, n, err := m.Version(ctx)
	if err == nil && n < Oldest {
		err = fmt.Errorf("systemd %d or newer is needed, this is %s", Oldest, name)
	}
	return name, err
}

// Boundary says in the words of hello what the best offer is for a kind of boundary: `systemd`, or for
// a user who enters no cgroup directly, `cgroup`. What ends with the last logout is none.
func (s Survey) Boundary(kind longstop.BoundaryKind) longstop.BoundaryOffer {
	unit := "service"
	if kind == longstop.BoundaryCgroup {
		unit = "scope"
	}
	b := longstop.BoundaryOffer{Kind: kind, Because: ErrNoSystemd.Error()}
	i := slices.IndexFunc(s.Offers, func(o Offer) bool { return o.Unit == unit })
	if i < 0 {
		return b
	}
	o := s.Offers[i]
	b.Can, b.Because, b.Remedy = o.Can && o.Outlives, o.Because, o.Remedy
	if b.Can {
		b.Manager = string(o.Manager)
	}
	return b
}

package runner

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/systemd"
)

// Which boundary a run gets, and who starts its owner: the keeper, or a service manager, whose unit
// then encloses the run and lives by its own lights, whatever becomes of the login.

// surveyed is what the host's systemd offers this user. It is asked at most every few seconds: a service
// manager's answer costs milliseconds, and a remedy is to be noticed soon.
var surveyed = func() func(fresh bool) systemd.Survey {
	var mu sync.Mutex
	var last systemd.Survey
	var asked time.Time
	return func(fresh bool) systemd.Survey {
		mu.Lock()
		defer mu.Unlock()
		if fresh || asked.IsZero() || time.Since(asked) > surveyHolds {
			last, asked = systemd.Look(context.Background(), loginName()), time.Now()
		}
		return last
	}
}()

const surveyHolds = 5 * time.Second

// offers are the boundaries that can be had here, best first, then those that cannot, with why.
func offers(s systemd.Survey) []longstop.BoundaryOffer {
	_, noHome := cgroupHome()
	_, noGroups := boundary.FindHierarchy()
	return offersOf(s, noHome, noGroups)
}

// offersOf: a unit's owner has its work in a cgroup, too, and so has everybody in a scope.
func offersOf(s systemd.Survey, noHome, noGroups error) []longstop.BoundaryOffer {
	unit, group := s.Boundary(longstop.BoundarySystemd), longstop.BoundaryOffer{Kind: longstop.BoundaryCgroup, Can: true}
	if noHome != nil {
		group = scopeOffer(s, noHome)
	}
	for _, o := range []*longstop.BoundaryOffer{&unit, &group} {
		if noGroups != nil {
			*o = longstop.BoundaryOffer{Kind: o.Kind, Because: noGroups.Error()}
		}
	}
	all := []longstop.BoundaryOffer{unit, group, {Kind: longstop.BoundaryTree, Can: true},
		{Kind: longstop.BoundarySlurm, Because: "not built in this release"}}
	slices.SortStableFunc(all, func(a, b longstop.BoundaryOffer) int {
		switch {
		case a.Can == b.Can:
			return 0
		case a.Can:
			return -1
		}
		return 1
	})
	return all
}

// scopeOffer is the cgroup of a user who enters none directly: in a scope of the user's service manager.
func scopeOffer(s systemd.Survey, noHome error) longstop.BoundaryOffer {
	for _, o := range s.Offers {
		if o.Unit == "scope" && s.Version != "" {
			b := s.Boundary(longstop.BoundaryCgroup)
			if !b.Can {
				b.Because = noHome.Error() + "; by way of a service manager: " + b.Because
			}
			return b
		}
	}
	return longstop.BoundaryOffer{Kind: longstop.BoundaryCgroup, Because: noHome.Error()}
}

// place is where a run is to be, or why it cannot be there. Manager is whose unit it is to be in; empty:
// its owner is the keeper's child. Instead is whose, should the keeper have no place for the cgroup that
// was asked for: it may have started before the user lingered.
type place struct {
	Manager systemd.Kind
	Instead systemd.Kind
	refusal string
	remedy  string
}

// placed finds a run's place. What would be refused is looked at anew first.
func placed(req longstop.Request) place {
	if req.Lifetime != longstop.Detached && req.BoundaryMin == "" && req.Owner != longstop.OwnerSystemd {
		return place{}
	}
	for _, fresh := range []bool{false, true} {
		s := surveyed(fresh)
		p := placeOf(req, s, offers(s), os.Geteuid() == 0)
		if p.refusal == "" || fresh {
			return p
		}
	}
	return place{}
}

// placeOf is the rule. A unit is taken where it was asked for, where no weaker boundary is enough, and
// for a detached run where it outlives the login; a short run should not pay for one.
func placeOf(req longstop.Request, s systemd.Survey, offers []longstop.BoundaryOffer, root bool) place {
	offer := map[longstop.BoundaryKind]longstop.BoundaryOffer{}
	for _, o := range offers {
		offer[o.Kind] = o
	}
	unit, group := offer[longstop.BoundarySystemd], offer[longstop.BoundaryCgroup]
	asked := req.Owner == longstop.OwnerSystemd || req.BoundaryMin == longstop.BoundarySystemd
	var p place
	switch least := offer[req.BoundaryMin]; {
	case asked && req.Owner == longstop.OwnerRunner:
		p.refusal = "an owner of the runner's own is in no unit of a service manager's"
	case asked && req.Leftover == longstop.LeftoverRelease:
		p.refusal = "what a unit's main process leaves behind ends with it: nothing can be released from there"
	case asked && !unit.Can:
		p.refusal, p.remedy = "it cannot be owned by way of systemd here: "+unit.Because, unit.Remedy
	case asked, req.BoundaryMin == longstop.BoundaryCgroup && !group.Can && unit.Can && mayUnit(req):
		p.Manager = systemd.Kind(unit.Manager)
	case req.BoundaryMin != "" && !least.Can:
		p.refusal, p.remedy = "a boundary of at least "+string(req.BoundaryMin)+" was asked for, which cannot be had here: "+least.Because, least.Remedy
		if least.Kind == "" {
			p.refusal = "this runner knows no boundary " + quoted(string(req.BoundaryMin))
		}
	case req.BoundaryMin == longstop.BoundaryCgroup && req.Lifetime != longstop.Detached && unit.Can && mayUnit(req):
		p.Instead = systemd.Kind(unit.Manager)
	case req.Lifetime != longstop.Detached:
	case unit.Can && mayUnit(req):
		p.Manager = systemd.Kind(unit.Manager)
	case s.KillsAtLogout != nil && *s.KillsAtLogout && !outlives(group, root):
		p.refusal, p.remedy = "a detached run would be killed when this user logs out (KillUserProcesses=yes in logind.conf(5)), "+
			"setsid or not: "+unit.Because, unit.Remedy
	}
	return p
}

// mayUnit reports whether the request leaves it to us to take a unit.
func mayUnit(req longstop.Request) bool {
	return (req.Owner == "" || req.Owner == longstop.OwnerAuto) && req.Leftover != longstop.LeftoverRelease
}

// outlives reports whether runs' cgroups are outside of any login: root's are at the top of the
// hierarchy, those of a scope under a manager that lingers.
func outlives(group longstop.BoundaryOffer, root bool) bool {
	return group.Can && (root || group.Manager != "")
}

// goingDown reports whether the host, or the unit that a run is in, is being stopped: what a TERM then
// means. Where no manager answers in half a second, it is whether logins are refused, which a shutdown
// does first (pam_nologin(8)). Anything else is no.
func goingDown(b longstop.Boundary) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	kind := systemd.System
	if b.Manager != "" {
		kind = systemd.Kind(b.Manager)
	}
	m, err := systemd.Connect(ctx, kind)
	if errors.Is(err, systemd.ErrNoSystemd) {
		return false
	}
	stopping := false
	if err == nil {
		defer m.Close()
		stopping, err = m.Stopping(ctx, b.Unit)
	}
	if err != nil && !errors.Is(err, systemd.ErrNoUnit) { // the bus goes down before those that are in no unit of systemd's do
		return exists("/run/nologin")
	}
	return stopping
}

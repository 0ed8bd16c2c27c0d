package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	home, noHome := cgroupHome()
	h, noGroups := boundary.FindHierarchy()
	all := offersOf(s, noHome, noGroups)
	for i := range all {
		if o := &all[i]; o.Can {
			o.Limits = holdable(o, home, h)
		}
	}
	return all
}

// holdable are the limits that a boundary can hold, and why not the others.
func holdable(o *longstop.BoundaryOffer, home boundary.Home, h boundary.Hierarchy) (all []longstop.LimitOffer) {
	for _, name := range []string{"open_files", "cpu_s", "file_bytes"} {
		all = append(all, longstop.LimitOffer{Name: name, Can: true})
	}
	processes := longstop.LimitOffer{Name: "processes", Can: os.Geteuid() != 0}
	if !processes.Can {
		processes.Because = "it does not bind root; tasks does"
	}
	all = append(all, processes)
	switch {
	case o.Kind == longstop.BoundaryTree:
		for _, name := range longstop.LimitsOfRun {
			all = append(all, longstop.LimitOffer{Name: name, Because: "a tree bounds each process by itself: a cgroup alone bounds them together"})
		}
		return all
	case o.Manager == string(systemd.System):
		return append(all, boundary.Holdable(h.Mount)...)
	case o.Manager == string(systemd.User):
		id := strconv.Itoa(os.Geteuid())
		return append(all, boundary.Holdable(filepath.Join(h.Mount, "user.slice", "user-"+id+".slice", "user@"+id+".service"))...)
	}
	return append(all, boundary.Holdable(filepath.Dir(home.Dir))...)
}

// holding takes the boundaries that cannot hold a limit on the whole run which is asked for as ones that
// cannot be had.
func holding(offers []longstop.BoundaryOffer, asked []string) []longstop.BoundaryOffer {
	all := slices.Clone(offers)
	for i := range all {
		for _, l := range all[i].Limits {
			if all[i].Can && !l.Can && slices.Contains(asked, l.Name) {
				all[i] = longstop.BoundaryOffer{Kind: all[i].Kind, Because: "no limit " + l.Name + ": " + l.Because, Remedy: l.Remedy}
			}
		}
	}
	return all
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
	if req.Lifetime != longstop.Detached && least(req) == "" {
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
	limits, needed := req.Limits.OfRun(), least(req)
	for _, o := range holding(offers, limits) {
		offer[o.Kind] = o
	}
	unit, group := offer[longstop.BoundarySystemd], offer[longstop.BoundaryCgroup]
	asked := req.Owner == longstop.OwnerSystemd || req.BoundaryMin == longstop.BoundarySystemd
	var p place
	switch least := offer[needed]; {
	case asked && req.Owner == longstop.OwnerRunner:
		p.refusal = "an owner of the runner's own is in no unit of a service manager's"
	case asked && req.Leftover == longstop.LeftoverRelease:
		p.refusal = "what a unit's main process leaves behind ends with it: nothing can be released from there"
	case asked && !unit.Can:
		p.refusal, p.remedy = "it cannot be owned by way of systemd here: "+unit.Because, unit.Remedy
	case asked, needed == longstop.BoundaryCgroup && !group.Can && unit.Can && mayUnit(req):
		p.Manager = systemd.Kind(unit.Manager)
	case needed != "" && !least.Can:
		p.refusal, p.remedy = "a boundary of at least "+string(needed)+" was asked for, which cannot be had here: "+least.Because, least.Remedy
		switch {
		case least.Kind == "":
			p.refusal = "this runner knows no boundary " + quoted(string(needed))
		case needed != req.BoundaryMin:
			p.refusal = "a limit on the whole run (" + strings.Join(limits, ", ") + ") needs a cgroup, which cannot be had here: " + least.Because
		}
	case needed == longstop.BoundaryCgroup && req.Lifetime != longstop.Detached && unit.Can && mayUnit(req):
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

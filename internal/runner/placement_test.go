package runner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/systemd"
)

func survey(kills bool, offers ...systemd.Offer) systemd.Survey {
	return systemd.Survey{Version: "252", KillsAtLogout: &kills, Offers: offers}
}

// Where a run is put, or why it cannot be, for what a host may offer.
func TestPlaces(t *testing.T) {
	t.Parallel()
	no := errors.New("no home")
	const remedy = "loginctl enable-linger deploy"
	system := systemd.Offer{Manager: systemd.System, Unit: "service", Can: true, Outlives: true}
	refused := systemd.Offer{Manager: systemd.System, Unit: "service", Because: "polkit does not let deploy"}
	stays := systemd.Offer{Manager: systemd.User, Unit: "service", Can: true, Outlives: true}
	dies := systemd.Offer{Manager: systemd.User, Unit: "service", Can: true, Because: "it ends with the last logout", Remedy: remedy}
	scope := func(o systemd.Offer) systemd.Offer { o.Unit = "scope"; return o }
	root, rootKills := survey(false, system), survey(true, system)
	lingers, lingersKills := survey(false, stays, scope(stays), refused), survey(true, stays, scope(stays), refused)
	plain, plainKills := survey(false, dies, scope(dies), refused), survey(true, dies, scope(dies), refused)
	none := systemd.Survey{Offers: []systemd.Offer{{Manager: systemd.System, Unit: "service", Because: "systemd does not run this host"}}}

	detached := longstop.Request{Lifetime: longstop.Detached, Owner: longstop.OwnerAuto}
	runner, release, asked := detached, detached, longstop.Request{Lifetime: longstop.Leased, Owner: longstop.OwnerSystemd}
	runner.Owner, release.Leftover = longstop.OwnerRunner, longstop.LeftoverRelease
	least := func(k longstop.BoundaryKind) longstop.Request {
		return longstop.Request{Lifetime: longstop.Leased, BoundaryMin: k}
	}
	askedRelease, askedBoth := asked, asked
	askedRelease.Leftover = longstop.LeftoverRelease
	askedBoth.Owner, askedBoth.BoundaryMin = longstop.OwnerRunner, longstop.BoundarySystemd

	for name, c := range map[string]struct {
		req     longstop.Request
		s       systemd.Survey
		noHome  error
		root    bool
		manager systemd.Kind
		instead systemd.Kind
		refusal string
		remedy  string
	}{
		"leased, asking for nothing":         {req: longstop.Request{Lifetime: longstop.Leased}, s: plainKills, noHome: no},
		"detached, root":                     {req: detached, s: root, root: true, manager: systemd.System},
		"detached, lingering":                {req: detached, s: lingersKills, noHome: no, manager: systemd.User},
		"detached, logout spares it":         {req: detached, s: plain, noHome: no},
		"detached, logout kills it":          {req: detached, s: plainKills, noHome: no, refusal: "would be killed", remedy: remedy},
		"detached, no systemd":               {req: detached, s: none, noHome: no},
		"detached, the runner's":             {req: runner, s: lingers, noHome: no},
		"detached, the runner's, in a scope": {req: runner, s: lingersKills, noHome: no},
		"detached, the runner's, root":       {req: runner, s: rootKills, root: true},
		"detached, the runner's, killed":     {req: runner, s: plainKills, noHome: no, refusal: "would be killed", remedy: remedy},
		"detached, to be released":           {req: release, s: lingers, noHome: no},
		"detached, to be released, root":     {req: release, s: root, root: true},
		"asked for, root":                    {req: asked, s: root, root: true, manager: systemd.System},
		"asked for, lingering":               {req: asked, s: lingers, noHome: no, manager: systemd.User},
		"asked for, would end at logout":     {req: asked, s: plain, noHome: no, refusal: "ends with the last logout", remedy: remedy},
		"asked for, no systemd":              {req: asked, s: none, noHome: no, refusal: "systemd does not run this host"},
		"asked for, to be released":          {req: askedRelease, s: root, root: true, refusal: "nothing can be released"},
		"asked for, and the runner's":        {req: askedBoth, s: root, root: true, refusal: "in no unit"},
		"at least systemd":                   {req: least(longstop.BoundarySystemd), s: root, root: true, manager: systemd.System},
		"at least a cgroup, root":            {req: least(longstop.BoundaryCgroup), s: root, root: true, instead: systemd.System},
		"at least a cgroup, in a scope":      {req: least(longstop.BoundaryCgroup), s: lingers, noHome: no, instead: systemd.User},
		"at least a cgroup, in a unit":       {req: least(longstop.BoundaryCgroup), s: survey(false, system), noHome: no, root: true, manager: systemd.System},
		"at least a cgroup, none":            {req: least(longstop.BoundaryCgroup), s: plain, noHome: no, refusal: "no home", remedy: remedy},
		"at least a tree":                    {req: least(longstop.BoundaryTree), s: none, noHome: no},
		"at least slurm":                     {req: least(longstop.BoundarySlurm), s: root, root: true, refusal: "not built"},
		"at least what is not known":         {req: least("vm"), s: root, root: true, refusal: "knows no boundary"},
	} {
		p := placeOf(c.req, c.s, offersOf(c.s, c.noHome, nil), c.root)
		if p.Manager != c.manager || p.Instead != c.instead || p.remedy != c.remedy || (p.refusal == "") != (c.refusal == "") || !strings.Contains(p.refusal, c.refusal) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if o := offersOf(root, nil, errors.New("no v2 hierarchy")); o[0].Kind != longstop.BoundaryTree || o[1].Because != "no v2 hierarchy" {
		t.Errorf("without the hierarchy: %+v", o)
	}
}

// Limits on the whole run need a boundary that holds them; auto takes one where there is one.
func TestPlacesOfLimitedRuns(t *testing.T) {
	t.Parallel()
	can := func(names ...string) (all []longstop.LimitOffer) {
		for _, name := range longstop.LimitsOfRun {
			o := longstop.LimitOffer{Name: name, Can: slices.Contains(names, name)}
			if !o.Can {
				o.Because, o.Remedy = "no controller for "+name, "boot it otherwise"
			}
			all = append(all, o)
		}
		return all
	}
	host := func(unit, group []longstop.LimitOffer) []longstop.BoundaryOffer {
		return []longstop.BoundaryOffer{{Kind: longstop.BoundarySystemd, Can: unit != nil, Manager: "system", Limits: unit},
			{Kind: longstop.BoundaryCgroup, Can: group != nil, Because: map[bool]string{true: "no home"}[group == nil], Limits: group},
			{Kind: longstop.BoundaryTree, Can: true, Limits: can()}}
	}
	all := can(longstop.LimitsOfRun[:]...)
	leased := longstop.Request{Lifetime: longstop.Leased, Limits: &longstop.Limits{MemoryBytes: 1 << 20, Tasks: 9}}
	detached, runners, least, asked := leased, leased, leased, leased
	detached.Lifetime, runners.Owner = longstop.Detached, longstop.OwnerRunner
	least.BoundaryMin, asked.Owner = longstop.BoundaryTree, longstop.OwnerSystemd
	for name, c := range map[string]struct {
		req     longstop.Request
		offers  []longstop.BoundaryOffer
		manager systemd.Kind
		instead systemd.Kind
		refusal string
	}{
		"leased, a cgroup":                    {req: leased, offers: host(nil, all)},
		"leased, both":                        {req: leased, offers: host(all, all), instead: systemd.System},
		"leased, the unit alone":              {req: leased, offers: host(all, nil), manager: systemd.System},
		"leased, the unit alone can":          {req: leased, offers: host(all, can("tasks")), manager: systemd.System},
		"leased, a tree is enough otherwise":  {req: least, offers: host(nil, all)},
		"leased, the runner's":                {req: runners, offers: host(all, can("tasks")), refusal: "no controller for memory_bytes"},
		"leased, neither":                     {req: leased, offers: host(can("tasks"), can("tasks")), refusal: "memory_bytes, tasks) needs a cgroup, which cannot be had here: no limit memory_bytes: no controller for"},
		"leased, no cgroup at all":            {req: leased, offers: host(nil, nil), refusal: "needs a cgroup, which cannot be had here: no home"},
		"detached, both":                      {req: detached, offers: host(all, all), manager: systemd.System},
		"detached, the cgroup alone can":      {req: detached, offers: host(can(), all)},
		"detached, neither":                   {req: detached, offers: host(can(), can()), refusal: "no controller for memory_bytes"},
		"asked for, and the cgroup alone can": {req: asked, offers: host(can(), all), refusal: "cannot be owned by way of systemd here: no limit memory_bytes"},
		"asked for":                           {req: asked, offers: host(all, can()), manager: systemd.System},
	} {
		p := placeOf(c.req, survey(false), c.offers, true)
		if p.Manager != c.manager || p.Instead != c.instead || (p.refusal == "") != (c.refusal == "") || !strings.Contains(p.refusal, c.refusal) ||
			strings.Contains(p.refusal, "no controller") != (p.remedy != "") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

package runner

import (
	"errors"
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

package api

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// agentsMay are the routes that an agent's token opens. A new route belongs here, or is people's: nothing
// that decides what agents may do (tokens, approvals, resolutions, policy, hosts, the gateway's life) ever does.
var agentsMay = []string{
	"GET /api/v1/status",
	"GET /api/v1/hosts",
	"POST /api/v1/hosts/{name}/check",
	"POST /api/v1/stdin",
	"GET /api/v1/actions",
	"POST /api/v1/actions",
	"GET /api/v1/actions/{id}",
	"GET /api/v1/actions/{id}/wait",
	"POST /api/v1/actions/{id}/retry", "POST /api/v1/actions/{id}/inquire", "POST /api/v1/actions/{id}/cancel",
	"POST /api/v1/actions/{id}/reconcile",
	"POST /api/v1/actions/{id}/waits",
	"GET /api/v1/journal",
	"GET /api/v1/approvals",
	"GET /api/v1/approvers",
	"GET /api/v1/policy", "POST /api/v1/policy/check", "POST /api/v1/policy/explain",
	"GET /api/v1/sessions", // its own
	"POST /api/v1/sessions",
	"GET /api/v1/sessions/{id}",
	"POST /api/v1/sessions/{id}/end",
}

// agentsMayOfTheirs are those that it opens of actions that were asked for with it.
var agentsMayOfTheirs = []string{
	"GET /api/v1/actions/{id}/inspect", "GET /api/v1/actions/{id}/follow", "GET /api/v1/actions/{id}/output", "GET /api/v1/actions/{id}/times", "GET /api/v1/actions/{id}/raw",
}

// Every route says whose it is, and those of people answer an agent's token with a refusal.
func TestPointRoutesThatAgentsMayUse(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.finish(0) // what follows it ends at once
	f.cancel = func(func(string)) error { return nil }
	f.enrol = func(func(string)) (longstop.Host, error) { return longstop.Host{}, nil }
	c, _ := serve(t, f)
	for _, r := range routes {
		want := people
		switch {
		case slices.Contains(agentsMay, r.pattern):
			want = all
		case slices.Contains(agentsMayOfTheirs, r.pattern):
			want = own
		}
		if r.open != want {
			t.Errorf("%s: the table says %d, this test %d", r.pattern, r.open, want)
		}
		method, path, _ := strings.Cut(regexp.MustCompile(`\{\w+\}`).ReplaceAllString(r.pattern, "0001"), " ")
		resp, body := raw(t, c, method, path, "", "Authorization", "Bearer lst_scout")
		if refused := resp.StatusCode == http.StatusForbidden && strings.Contains(body, string(longstop.CodeNotAllowed)); refused != (r.open != all) {
			t.Errorf("%s with an agent's token: %d %s", r.pattern, resp.StatusCode, body)
		}
	}
}

func TestPointAgentsReadWhatTheirWorkPrinted(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.finish(0)
	f.action.RequestedBy = longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout"}
	c, _ := serve(t, f)
	for _, pattern := range agentsMayOfTheirs {
		method, path, _ := strings.Cut(strings.ReplaceAll(pattern, "{id}", "0001"), " ")
		if resp, body := raw(t, c, method, path, "", "Authorization", "Bearer lst_scout"); resp.StatusCode == http.StatusForbidden {
			t.Errorf("%s of its own: %d %s", pattern, resp.StatusCode, body)
		}
	}
}

func TestPointTokenIsWhoAsks(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	c.Token = "lst_scout"
	run, err := c.Launch(t.Context(), longstop.RunRequest{Host: "h1", By: longstop.Requester{Kind: "operator", Name: "root", Via: "cli"}})
	if err != nil {
		t.Fatal(err)
	}
	run.Close()
	if len(f.peers) != 1 || f.peers[0].Kind != longstop.RequesterAgent || f.peers[0].Name != "scout" {
		t.Errorf("the gateway was told %+v", f.peers)
	}
	c.Token = "lst_other"
	if _, err := c.Hosts(t.Context()); longstop.CodeOf(err) != longstop.CodeTokenRefused {
		t.Errorf("an unknown token: %v", err)
	}
	for _, header := range []string{"", "Bearer ", "Basic bHN0", "lst_scout"} {
		if resp, _ := raw(t, c, "GET", "/api/v1/status", "", "Authorization", header); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: %d", header, resp.StatusCode)
		}
	}
}

// With the salt of an approver passphrases could be tried: no agent is given it.
func TestPointAgentsGetNoSalt(t *testing.T) {
	t.Parallel()
	f := newFake()
	one := longstop.Approver{Name: "anna", Kind: longstop.ProofPassphrase, PublicKey: []byte("key"), Salt: []byte("0123456789abcdef")}
	f.known = []longstop.KnownApprover{{Approver: one}}
	f.entries = []longstop.JournalEntry{{Index: 1, Kind: "approver_set", Body: one}, {Index: 2, Kind: "approver_removed", Body: one}, {Index: 3, Kind: "requested"}}
	c, _ := serve(t, f)
	salt := base64.StdEncoding.EncodeToString(one.Salt)
	for _, path := range []string{"/api/v1/approvers", "/api/v1/journal"} {
		if _, body := raw(t, c, "GET", path, ""); !strings.Contains(body, salt) {
			t.Errorf("people do not see all of %s: %s", path, body)
		}
		if resp, body := raw(t, c, "GET", path, "", "Authorization", "Bearer lst_scout"); resp.StatusCode != http.StatusOK || strings.Contains(body, salt) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

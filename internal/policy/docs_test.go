package policy

import (
	"os"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// The example of docs/policy.md is accepted, and does what it says.
func TestTheDocsExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	file, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("docs/policy.md has no example")
	}
	p := mustParse(t, file)
	ci := longstop.Requester{Kind: "agent", Name: "ci", Via: "cli"}
	for _, c := range []struct {
		host, script string
		by           longstop.Requester
		effect       longstop.Effect
		want         string
	}{
		{"lab-1", "sudo reboot", ci, "", "deny nobody switches hosts off"},
		{"web-1", "cd /srv && ./migrate.sh", ci, "", "deny agents do not migrate"},
		{"web-1", "curl x | sh", longstop.Requester{Kind: "operator"}, "", "deny nobody switches hosts off"},
		{"web-1", "tail -n 50 /var/log/syslog | grep -c error", ci, "read", "allow reading"},
		{"web-1", "make", ci, "", "ask agents in production"},
		{"lab-1", "make", ci, "", "allow the lab"},
		{"web-1", "make", longstop.Requester{Kind: "operator"}, "", "allow people"},
		{"other", "make", ci, "", "ask default"},
	} {
		r := longstop.Request{Script: c.script, Effect: c.effect}
		r.TakeDefaults()
		v := p.Decide(Question{Host: c.host, By: c.by, Request: r})
		if got := string(v.Decision) + " " + v.Rule; got != c.want {
			t.Errorf("%q on %s: %s, want %s", c.script, c.host, got, c.want)
		}
	}
	for kind := range strings.FieldsSeq("background detaches daemon terminal handed_over other_user other_host held_open file dynamic unread") {
		if !strings.Contains(string(page), "`"+kind+"`") {
			t.Errorf("the page does not name the kind %s", kind)
		}
	}
}

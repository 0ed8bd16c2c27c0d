package policy

import (
	"strings"
	"testing"
)

// A check says which rules decide nothing, and which rest on what callers say of themselves.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]string{
		"- {effect: read, decision: allow}":                                                                                                 "line 2, column 1: rule 1 rests on the caller's word: effect is what a caller says of the work, and nothing holds the work to it; name commands too",
		"- {name: r, effect: [read, idempotent], hosts: x, unreadable: false, decision: allow}":                                             "rule \"r\" rests on the caller's word",
		"- {effect: read, commands: ls, decision: allow}":                                                                                   "",
		"- {effect: read, decision: ask}":                                                                                                   "",
		"- {requester: {via: mcp}, decision: allow}":                                                                                        "via is what a client says of itself",
		"- {commands: ls, unreadable: true, decision: allow}":                                                                               "never matches",
		"- {commands: ls, unreadable: true, decision: deny}":                                                                                "",
		"- {hosts: web-*, decision: ask}\n- {hosts: [web-1, web-a*], commands: rm, decision: deny}":                                         "line 3, column 1: rule 2 is never reached: rule 1 (line 2) matches all that it does",
		"- {hosts: web-?, decision: ask}\n- {hosts: web-*, decision: deny}":                                                                 "",
		"- {hosts: web-1, decision: ask}\n- {decision: deny}":                                                                               "",
		"- {commands: [rm, ls], decision: deny}\n- {commands: ls, decision: allow}":                                                         "rule 2 is never reached",
		"- {commands: [rm, ls], decision: allow}\n- {commands: ls, decision: deny}":                                                         "",
		"- {commands: [rm, ls], decision: allow}\n- {commands: ls, decision: allow}":                                                        "rule 2 is never reached",
		"- {commands: ls, decision: deny}\n- {decision: deny, hosts: a}":                                                                    "",
		"- {unreadable: true, decision: ask}\n- {unreadable: true, hosts: a, decision: deny}":                                               "rule 2 is never reached",
		"- {unreadable: true, decision: ask}\n- {commands: a, decision: deny}":                                                              "",
		"- {requester: {kind: agent}, decision: ask}\n- {requester: {kind: agent, names: ci}, leftover: kill, owner: none, decision: deny}": "rule 2 is never reached",
		"- {requester: {kind: agent}, decision: ask}\n- {requester: {names: ci}, decision: deny}":                                           "",
	} {
		got := mustParse(t, "rules:\n"+rules+"\n").Warnings()
		if want == "" && got != nil || want != "" && (len(got) != 1 || !strings.Contains(got.Error(), want)) {
			t.Errorf("%s:\n got %v\nwant %s", rules, got, want)
		}
	}
}

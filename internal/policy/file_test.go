package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// Every error says where it is and what would be right there.
func TestErrorsOfAFile(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"a: [b\n":                              "2:1 this is not YAML: did not find expected ',' or ']'",
		"rules:\n\t- name: x":                  "2:1 this is not YAML: found character that cannot start any token",
		"default: deny: x":                     "1:14 this is not YAML: mapping values are not allowed in this context",
		"default: allow\n---\ndefault: deny\n": "3:1 a second YAML document begins; expected one document",
		"- allow":                              "1:1 here is a list; expected a policy with fields",
		"allow":                                "1:1 here is a value; expected a policy with fields",
		"defualt: deny":                        `1:1 a policy has no field "defualt"; expected one of default, groups, rules`,
		"default: deny\ndefault: allow":        `2:1 the field "default" is there already, at line 1; expected it once`,
		"default: maybe":                       `1:10 "maybe" is no decision; expected allow, ask or deny`,
		"default: [deny]":                      "1:10 here is a list; expected allow, ask or deny",
		"default:":                             "1:9 here is nothing; expected allow, ask or deny",
		"default: &d deny":                     "1:10 anchors and aliases are not read; expected it written out",
		"default: !!str deny":                  "1:10 the tag !!str is not read; expected it without the tag",
		"groups: [a]":                          "1:9 here is a list; expected groups of hosts, as in prod: [web-*, db-1]",
		"groups:\n  a: x\n  a: y":              `3:3 the group "a" is there already, at line 2; expected another name`,
		"groups: {a: []}":                      "1:13 the list is empty: it would match nothing; expected patterns of hosts",
		"groups: {a: [x, x]}":                  `1:17 "x" is there twice; expected it once`,
		"groups: {a: [{}]}":                    "1:14 here is a mapping; expected patterns of hosts",
		"groups: {a: ['web-[1]']}":             `1:14 the pattern "web-[1]" has "[", which means nothing here: * stands for any characters, ? for one`,
		`groups: {a: ["x\ty"]}`:                `1:14 the pattern "x\ty" has characters that no name has`,
		"groups: {a: ['']}":                    "1:14 an empty pattern matches nothing",
		"rules: deny":                          "1:8 here is a value; expected a list of rules",
		"rules: [deny]":                        "1:9 here is a value; expected a rule with fields",
		"rules:\n- {hosts: a}":                 "2:3 the rule decides nothing; expected decision: allow, ask or deny",
		"rules:\n- {decision: yes}":            `2:14 "yes" is no decision; expected allow, ask or deny`,
		"rules:\n- {decision: deny, host: a}":  `2:20 a rule has no field "host"; expected one of approval_ttl, commands, decision, effect, groups, hosts, leftover, lifetime, limits, name, owner, reason, requester, unreadable`,
		"rules:\n- {name: a, decision: deny, hosts: x}\n- {name: a, decision: deny}": `3:10 the name "a" is that of the rule at line 2; expected another name`,
		"rules:\n- {name: default, decision: deny}":                                  `2:10 a rule cannot be called "default"; expected another name, of at most 100 bytes`,
		"rules:\n- {name: '', decision: deny}":                                       "2:10 the text is empty; expected the name of the rule",
		"rules:\n- {decision: deny, groups: prod}":                                   `2:28 there is no group "prod"; expected a group that the file has: `,
		"groups: {a: x}\nrules:\n- {decision: deny, groups: [b]}":                    `3:29 there is no group "b"; expected a group that the file has: a`,
		"rules:\n- {decision: deny, requester: anna}":                                "2:31 here is a value; expected a requester with fields",
		"rules:\n- {decision: deny, requester: {kind: robot}}":                       `2:38 "robot" is not known; expected any of operator, agent`,
		"rules:\n- {decision: deny, requester: {via: [cli, ftp]}}":                   `2:43 "ftp" is not known; expected any of cli, http, mcp`,
		"rules:\n- {decision: deny, requester: {name: a}}":                           `2:32 a requester has no field "name"; expected one of kind, names, via`,
		"rules:\n- {decision: deny, effect: twice}":                                  `2:28 "twice" is not known; expected any of read, idempotent, once`,
		"rules:\n- {decision: deny, lifetime: long}":                                 `2:30 "long" is not known; expected any of leased, detached`,
		"rules:\n- {decision: deny, leftover: stay}":                                 `2:30 "stay" is not known; expected any of wait, kill, release`,
		"rules:\n- {decision: deny, owner: anna}":                                    `2:27 "anna" is not known; expected any of auto, runner, systemd, slurm, none`,
		"rules:\n- {decision: deny, commands: /bin/rm}":                              `2:30 the pattern "/bin/rm" has a folder or arguments; expected a program's name alone`,
		"rules:\n- {decision: deny, commands: 'rm -rf'}":                             `2:30 the pattern "rm -rf" has a folder or arguments; expected a program's name alone`,
		"rules:\n- {decision: deny, unreadable: maybe}":                              `2:32 "maybe" is neither; expected true or false`,
		"rules:\n- {decision: allow, limits: 3}":                                     "2:29 here is a value; expected limits with fields",
		"rules:\n- {decision: allow, limits: {deadline: long}}":                      `2:40 "long" is none of a second or more; expected a length of time, as in 90s, 10m or 6h`,
		"rules:\n- {decision: allow, limits: {deadline: -1h}}":                       `2:40 "-1h" is none of a second or more; expected a length of time, as in 90s, 10m or 6h`,
		"rules:\n- {decision: allow, limits: {per_host: 0}}":                         `2:40 "0" is none; expected a number from 1 to 1000000`,
		"rules:\n- {decision: allow, limits: {per_requester: many}}":                 `2:45 "many" is none; expected a number from 1 to 1000000`,
		"rules:\n- {decision: allow, limits: {output: 1K}}":                          `2:38 "1K" is none; expected a size of at least 64K, as in 512K, 10M or 2G`,
		"rules:\n- {decision: allow, limits: {output: 99999999999T}}":                `2:38 "99999999999T" is none; expected a size of at least 64K, as in 512K, 10M or 2G`,
		"rules:\n- {decision: allow, limits: {concurrency: 1}}":                      `2:30 limits has no field "concurrency"; expected one of deadline, output, per_host, per_requester`,
		"rules:\n- {decision: deny, limits: {per_host: 1}}":                          "2:28 limits mean nothing with deny; expected no limits",
		"rules:\n- {decision: allow, approval_ttl: 1h}":                              "2:35 approval_ttl means nothing with allow; expected it with ask alone",
		"rules:\n- decision: allow\n- {decision: deny, hosts: a}":                    "3:3 this rule is never reached: the one at line 2 matches every request; expected the rule for everything at the end",
		"rules:\n- {decision: deny, reason: " + strings.Repeat("x", 1001) + "}":      "2:28 the reason has 1001 bytes; expected at most 1000",
		strings.Repeat("#", longstop.MaxPolicy+1):                                    "1:1 the file has 1048577 bytes; expected at most 1048576",
		"default: maybe\ngroups: {a: []}\nrules:\n- {}":                              "1:10 \"maybe\" is no decision; expected allow, ask or deny\n2:13 the list is empty: it would match nothing; expected patterns of hosts\n4:3 the rule decides nothing; expected decision: allow, ask or deny",
	} {
		_, err := Parse([]byte(file))
		var errs Errors
		if !errors.As(err, &errs) {
			t.Errorf("%.200q: %v", file, err)
			continue
		}
		var got []string
		for _, one := range errs.Shown() {
			got = append(got, fmt.Sprintf("%d:%d %s", one.Line, one.Column, one.Message))
		}
		if got := strings.Join(got, "\n"); got != want {
			t.Errorf("%.200q:\n got %s\nwant %s", file, got, want)
		}
	}
}

func TestEmptyFilesAllow(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "# nothing yet\n", "---\n", "{}", "rules: []"} {
		p, err := Parse([]byte(file))
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		if v := p.Decide(Question{}); v.Decision != Allow || v.Rule != "default" {
			t.Errorf("%q: %+v", file, v)
		}
	}
}

func TestDigestIsOfTheText(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(""))
	if err != nil || p.Digest() != "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("of nothing: %v, %v", p.Digest(), err)
	}
	if none := (*Policy)(nil); none.Digest() != "" {
		t.Errorf("of no policy: %s", none.Digest())
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("default: ask\ngroups: {prod: [web-*]}\nrules:\n- {groups: prod, commands: [rm], decision: deny, reason: no}\n"))
	f.Add([]byte("rules:\n- decision: allow\n  limits: {deadline: 1h, per_host: 2, output: 10M}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, file []byte) {
		p, err := Parse(file)
		var errs Errors
		switch {
		case err == nil:
			if v := p.Decide(Question{Host: "web-1"}); v.Decision == "" || v.Rule == "" || v.Decision == Ask && v.ApprovalTTL <= 0 {
				t.Errorf("%q decides %+v", file, v)
			}
		case !errors.As(err, &errs) || len(errs) == 0:
			t.Errorf("%q: an error of another kind: %v", file, err)
		default:
			for _, e := range errs {
				if e.Line < 1 || e.Column < 1 || e.Message == "" {
					t.Errorf("%q: an error without its place: %+v", file, e)
				}
			}
		}
	})
}

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/longstop/longstop"
)

const (
	// DefaultApprovalTTL is how long an approval may be waited for where the rule does not say.
	DefaultApprovalTTL = time.Hour

	defaultRule = "default"
	maxErrors   = 20
)

// Policy is a file that was read without an error. It never changes.
type Policy struct {
	digest   string
	text     string
	fallback Decision
	rules    []rule
}

// Digest is "sha256:" and the hash of the file's bytes; empty for nil.
func (p *Policy) Digest() string {
	if p == nil {
		return ""
	}
	return p.digest
}

// Text is the file as it was given.
func (p *Policy) Text() string { return p.text }

// Parse reads a policy file. Its errors are Errors.
func Parse(text []byte) (*Policy, error) {
	sum := sha256.Sum256(text)
	p := &Policy{digest: "sha256:" + hex.EncodeToString(sum[:]), text: string(text), fallback: Allow}
	if len(text) > longstop.MaxPolicy {
		return nil, Errors{{Line: 1, Column: 1, Message: fmt.Sprintf("the file has %d bytes", len(text)), Expected: fmt.Sprintf("at most %d", longstop.MaxPolicy)}}
	}
	root, err := document(text)
	if err != nil {
		return nil, err
	}
	r := &reader{policy: p, groups: map[string][]pattern{}}
	if root != nil {
		r.file(root)
	}
	if len(r.errs) > 0 {
		slices.SortStableFunc(r.errs, func(a, b *Error) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		return nil, r.errs[:min(len(r.errs), maxErrors)]
	}
	return p, nil
}

// document is the root of the one YAML document in text, nil if that is empty.
func document(text []byte) (root *yaml.Node, err error) {
	var all []yaml.Node
	if err := yaml.Load(text, &all, yaml.WithAllDocuments()); err != nil {
		return nil, syntaxError(err)
	}
	switch {
	case len(all) == 0:
		return nil, nil
	case len(all) > 1:
		n := inner(&all[1])
		return nil, Errors{{Line: max(n.Line, 1), Column: max(n.Column, 1), Message: "a second YAML document begins", Expected: "one document"}}
	}
	root = inner(&all[0])
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

func inner(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return n.Content[0]
	}
	return n
}

func syntaxError(err error) error {
	e := &Error{Line: 1, Column: 1, Message: "this is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	if load := (*yaml.LoadError)(nil); errors.As(err, &load) {
		e.Line, e.Column = max(load.Mark.Line, 1), max(load.Mark.Column, 1)
		e.Message = "this is not YAML: " + load.Message
	}
	return Errors{e}
}

// reader reads the nodes of a file, and goes on after an error to find the others.
type reader struct {
	policy *Policy
	groups map[string][]pattern
	errs   Errors
}

func (r *reader) fail(n *yaml.Node, expected, format string, args ...any) {
	r.errs = append(r.errs, &Error{Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...), Expected: expected})
}

// fields reads a mapping, each of whose keys must be known and be there once.
func (r *reader) fields(n *yaml.Node, what string, known map[string]func(*yaml.Node)) {
	if !r.is(n, yaml.MappingNode, what+" with fields") {
		return
	}
	names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		read, ok := known[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !ok:
			r.fail(key, "one of "+names, "%s has no field %q", what, key.Value)
		case seen[key.Value] > 0:
			r.fail(key, "it once", "the field %q is there already, at line %d", key.Value, seen[key.Value])
		default:
			seen[key.Value] = key.Line
			read(n.Content[i+1])
		}
	}
}

var kindNames = map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a value", yaml.AliasNode: "an alias"}

// is reports whether a node is of a kind, without anchors and tags, which would make a file say other
// than what stands at a place.
func (r *reader) is(n *yaml.Node, kind yaml.Kind, expected string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.fail(n, "it written out", "anchors and aliases are not read")
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, "it without the tag", "the tag %s is not read", n.Tag)
	case n.Kind != kind, kind == yaml.ScalarNode && n.Tag == "!!null":
		got := kindNames[n.Kind]
		if n.Tag == "!!null" {
			got = "nothing"
		}
		r.fail(n, expected, "here is %s", got)
	default:
		return true
	}
	return false
}

func (r *reader) file(n *yaml.Node) {
	// Groups first, wherever they stand: rules name them.
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "groups" {
			r.readGroups(n.Content[i+1])
			break
		}
	}
	r.fields(n, "a policy", map[string]func(*yaml.Node){
		"groups":  func(*yaml.Node) {},
		"default": func(n *yaml.Node) { r.policy.fallback = r.decision(n) },
		"rules":   r.readRules,
	})
}

func (r *reader) readGroups(n *yaml.Node) {
	if !r.is(n, yaml.MappingNode, "groups of hosts, as in prod: [web-*, db-1]") {
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !r.is(key, yaml.ScalarNode, "the name of a group") {
			continue
		}
		if line := lines[key.Value]; line > 0 {
			r.fail(key, "another name", "the group %q is there already, at line %d", key.Value, line)
			continue
		}
		lines[key.Value] = key.Line
		r.groups[key.Value] = r.patterns(n.Content[i+1], "patterns of hosts")
	}
}

func (r *reader) readRules(n *yaml.Node) {
	if !r.is(n, yaml.SequenceNode, "a list of rules") {
		return
	}
	names, all := map[string]int{}, 0
	for i, item := range n.Content {
		rl := rule{name: "rule " + strconv.Itoa(i+1), line: item.Line}
		if all > 0 {
			r.fail(item, "the rule for everything at the end", "this rule is never reached: the one at line %d matches every request", all)
			all = 0
		}
		errs := len(r.errs)
		r.readRule(item, &rl, names)
		if len(r.errs) == errs && rl.matchesAll() {
			all = rl.line
		}
		r.policy.rules = append(r.policy.rules, rl)
	}
}

func (r *reader) readRule(n *yaml.Node, rl *rule, names map[string]int) {
	var decision, limits, ttl *yaml.Node
	r.fields(n, "a rule", map[string]func(*yaml.Node){
		"name":      func(n *yaml.Node) { r.name(n, rl, names) },
		"decision":  func(n *yaml.Node) { decision, rl.decision = n, r.decision(n) },
		"reason":    func(n *yaml.Node) { rl.reason = r.reason(n) },
		"hosts":     func(n *yaml.Node) { rl.hosts = append(rl.hosts, r.patterns(n, "patterns of hosts")...) },
		"groups":    func(n *yaml.Node) { rl.hosts = append(rl.hosts, r.members(n)...) },
		"requester": func(n *yaml.Node) { r.requester(n, rl) },
		"effect": func(n *yaml.Node) {
			rl.effect = oneOf(r, n, longstop.EffectRead, longstop.EffectIdempotent, longstop.EffectOnce)
		},
		"lifetime": func(n *yaml.Node) { rl.lifetime = oneOf(r, n, longstop.Leased, longstop.Detached) },
		"leftover": func(n *yaml.Node) {
			rl.leftover = oneOf(r, n, longstop.LeftoverWait, longstop.LeftoverKill, longstop.LeftoverRelease)
		},
		"owner": func(n *yaml.Node) {
			rl.owner = oneOf(r, n, longstop.OwnerAuto, longstop.OwnerRunner, longstop.OwnerSystemd, longstop.OwnerSlurm, longstop.OwnerNone)
		},
		"commands":     func(n *yaml.Node) { rl.commands = r.programs(n) },
		"unreadable":   func(n *yaml.Node) { rl.unreadable = r.boolean(n) },
		"limits":       func(n *yaml.Node) { limits = n; r.limits(n, rl) },
		"approval_ttl": func(n *yaml.Node) { ttl = n; rl.approvalTTL = r.duration(n) },
	})
	if n.Kind != yaml.MappingNode {
		return
	}
	switch {
	case decision == nil:
		r.fail(n, "decision: allow, ask or deny", "the rule decides nothing")
	case rl.decision == "":
	case limits != nil && rl.decision == Deny:
		r.fail(limits, "no limits", "limits mean nothing with deny")
	case ttl != nil && rl.decision != Ask:
		r.fail(ttl, "it with ask alone", "approval_ttl means nothing with %s", rl.decision)
	case rl.decision == Ask && rl.approvalTTL == 0:
		rl.approvalTTL = DefaultApprovalTTL
	}
}

func (r *reader) reason(n *yaml.Node) string {
	text := r.text(n, "words for those who meet the rule")
	if len(text) > 1000 {
		r.fail(n, "at most 1000", "the reason has %d bytes", len(text))
	}
	return text
}

func (r *reader) name(n *yaml.Node, rl *rule, names map[string]int) {
	text := r.text(n, "the name of the rule")
	switch line := names[text]; {
	case text == "":
		return
	case line > 0:
		r.fail(n, "another name", "the name %q is that of the rule at line %d", text, line)
		return
	case text == defaultRule || len(text) > 100:
		r.fail(n, "another name, of at most 100 bytes", "a rule cannot be called %.100q", text)
		return
	}
	names[text], rl.name = n.Line, text
}

func (r *reader) requester(n *yaml.Node, rl *rule) {
	r.fields(n, "a requester", map[string]func(*yaml.Node){
		"kind":  func(n *yaml.Node) { rl.kinds = oneOf(r, n, "operator", "agent") },
		"names": func(n *yaml.Node) { rl.names = r.patterns(n, "patterns of names") },
		"via":   func(n *yaml.Node) { rl.via = oneOf(r, n, "cli", "http", "mcp") },
	})
}

func (r *reader) limits(n *yaml.Node, rl *rule) {
	l := &rl.limits
	r.fields(n, "limits", map[string]func(*yaml.Node){
		"deadline":      func(n *yaml.Node) { l.Deadline = r.duration(n) },
		"per_host":      func(n *yaml.Node) { l.PerHost = r.count(n) },
		"per_requester": func(n *yaml.Node) { l.PerRequester = r.count(n) },
		"output":        func(n *yaml.Node) { l.Output = r.size(n) },
	})
}

func (r *reader) decision(n *yaml.Node) Decision {
	const expected = "allow, ask or deny"
	if !r.is(n, yaml.ScalarNode, expected) {
		return ""
	}
	d := Decision(n.Value)
	if d != Allow && d != Ask && d != Deny {
		r.fail(n, expected, "%q is no decision", n.Value)
		return ""
	}
	return d
}

func (r *reader) text(n *yaml.Node, expected string) string {
	if !r.is(n, yaml.ScalarNode, expected) {
		return ""
	}
	if strings.TrimSpace(n.Value) == "" {
		r.fail(n, expected, "the text is empty")
	}
	return n.Value
}

func (r *reader) boolean(n *yaml.Node) *bool {
	if r.is(n, yaml.ScalarNode, "true or false") {
		if yes := n.Value == "true"; yes || n.Value == "false" {
			return &yes
		}
		r.fail(n, "true or false", "%q is neither", n.Value)
	}
	return nil
}

func (r *reader) duration(n *yaml.Node) time.Duration {
	const expected = "a length of time, as in 90s, 10m or 6h"
	if !r.is(n, yaml.ScalarNode, expected) {
		return 0
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil || d < time.Second {
		r.fail(n, expected, "%q is none of a second or more", n.Value)
		return 0
	}
	return d
}

func (r *reader) count(n *yaml.Node) int {
	const expected = "a number from 1 to 1000000"
	if !r.is(n, yaml.ScalarNode, expected) {
		return 0
	}
	c, err := strconv.Atoi(n.Value)
	if err != nil || c < 1 || c > 1_000_000 {
		r.fail(n, expected, "%q is none", n.Value)
		return 0
	}
	return c
}

func (r *reader) size(n *yaml.Node) int64 {
	expected := fmt.Sprintf("a size of at least %dK, as in 512K, 10M or 2G", longstop.MinOutputMax>>10)
	if !r.is(n, yaml.ScalarNode, expected) {
		return 0
	}
	digits := strings.TrimRight(n.Value, "KMGT")
	shift, known := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[n.Value[len(digits):]]
	size, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || size < 1 || size > math.MaxInt64>>shift || size<<shift < longstop.MinOutputMax {
		r.fail(n, expected, "%q is none", n.Value)
		return 0
	}
	return size << shift
}

// list is the values of a list, or the one value that stands for it.
func (r *reader) list(n *yaml.Node, expected string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		if !r.is(n, yaml.ScalarNode, expected) {
			return nil
		}
		return []*yaml.Node{n}
	}
	if !r.is(n, yaml.SequenceNode, expected) {
		return nil
	}
	if len(n.Content) == 0 {
		r.fail(n, expected, "the list is empty: it would match nothing")
	}
	var items []*yaml.Node
	seen := map[string]bool{}
	for _, item := range n.Content {
		switch {
		case !r.is(item, yaml.ScalarNode, expected):
		case seen[item.Value]:
			r.fail(item, "it once", "%q is there twice", item.Value)
		default:
			seen[item.Value] = true
			items = append(items, item)
		}
	}
	return items
}

func (r *reader) patterns(n *yaml.Node, expected string) (all []pattern) {
	for _, item := range r.list(n, expected) {
		p, err := parsePattern(item.Value)
		if err != nil {
			r.fail(item, "", "%v", err)
			continue
		}
		all = append(all, p)
	}
	return all
}

// programs are patterns of programs' names, which have no folders: whoever runs one may write it either way.
func (r *reader) programs(n *yaml.Node) (all []pattern) {
	for _, p := range r.patterns(n, "patterns of programs' names") {
		if strings.ContainsAny(string(p), "/ ") {
			r.fail(n, "a program's name alone", "the pattern %q has a folder or arguments", string(p))
			continue
		}
		all = append(all, p)
	}
	return all
}

func (r *reader) members(n *yaml.Node) (all []pattern) {
	for _, item := range r.list(n, "names of groups") {
		members, known := r.groups[item.Value]
		if !known {
			r.fail(item, "a group that the file has: "+strings.Join(slices.Sorted(maps.Keys(r.groups)), ", "), "there is no group %q", item.Value)
			continue
		}
		all = append(all, members...)
	}
	return all
}

func oneOf[T ~string](r *reader, n *yaml.Node, words ...T) (all []T) {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	expected := "any of " + strings.Join(names, ", ")
	for _, item := range r.list(n, expected) {
		if !slices.Contains(words, T(item.Value)) {
			r.fail(item, expected, "%q is not known", item.Value)
			continue
		}
		all = append(all, T(item.Value))
	}
	return all
}

package runner

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// forced is a call as sshd makes it for a key with a forced command.
func (s *site) forced(original string, args ...string) *exec.Cmd {
	cmd := exec.Command(s.runner, append([]string{"forced"}, args...)...)
	cmd.Env = append(os.Environ(), originalCommand+"="+original)
	return cmd
}

// here are the options that bind a key to this site's state folder.
func (s *site) here(more ...string) []string {
	return append([]string{"--state-dir", s.f.Dir()}, more...)
}

func (s *site) callForced(request wire.Request, into any, args ...string) *longstop.Error {
	s.t.Helper()
	cmd := s.forced(wire.Command("/opt/longstop-runner", request.Verb), args...)
	return s.answer(request, runCommand(s.t, cmd, s.encode(request)), into)
}

// TestForcedRefusesCommands: whatever is not what a gateway sends is refused with one line, runs nothing
// and reads nothing.
func TestForcedRefusesCommands(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	marker := s.path("marker")
	for _, original := range []string{"id", "touch " + marker, "/bin/touch " + marker, "exec sh -c 'touch " + marker + "'", s.runner + " serve; touch " + marker,
		s.runner + " serve\ntouch " + marker, s.runner + " owner", s.runner + " keeper", s.runner + " version", s.runner + " forced", s.runner + " watch",
		s.runner + " submit --now", "/usr/lib/openssh/sftp-server", "\x1b]0;title\a", strings.Repeat("x", 100_000), ""} {
		r := runCommand(t, s.forced(original, s.here()...), []byte("touch "+marker+"\n"))
		if r.status != exitNoAnswer || len(r.stdout) > 0 || !bytes.HasPrefix(r.stderr, []byte(wire.ForcedRefusal)) || bytes.Count(r.stderr, []byte("\n")) != 1 ||
			len(r.stderr) > 1000 || bytes.ContainsAny(r.stderr, "\x1b\a") {
			t.Errorf("%.100q: exit %d, stdout %q, stderr %q", original, r.status, r.stdout, r.stderr)
		}
	}
	if exists(marker) {
		t.Error("a refused command ran")
	}
	shell := exec.Command(s.runner, "forced")
	if r := runCommand(t, shell, nil); r.status != exitNoAnswer || !bytes.HasPrefix(r.stderr, []byte(wire.ForcedRefusal+"a shell")) {
		t.Errorf("a login: exit %d, stderr %q", r.status, r.stderr)
	}
}

// TestForcedOptions: a line that says something else than it was meant to allows nothing.
func TestForcedOptions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, args := range [][]string{{"--allow"}, {"--allow", ""}, {"--allow", "serve"}, {"--allow", "status,owner"}, {"--allow", "status,,find"}, {"--allow", "status", "--read-only"},
		{"--read-only", "--read-only"}, {"--state-dir"}, {"--state-dir", "x"}, {"--state-dir", "/x/../y"}, {"--state-dir", "/x", "--state-dir", "/y"}, {"serve"}, {"--readonly"}} {
		r := runCommand(t, s.forced(s.runner+" serve", args...), nil)
		if r.status != exitNoAnswer || len(r.stdout) > 0 || !bytes.Contains(r.stderr, []byte("longstop-runner forced: ")) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, r.status, r.stdout, r.stderr)
		}
	}
}

// TestForcedCarries: with everything allowed, a run's whole life goes by it, and the work does not see
// what its gateway sent.
func TestForcedCarries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("echo got ${" + originalCommand + ":-nothing}; exit 7")
	var submitted wire.SubmitAnswer
	if err := s.callForced(s.ask(wire.VerbSubmit, sub), &submitted, s.here()...); err != nil {
		t.Fatal(err)
	}
	s.final(sub.RunID)
	c := s.serveBy(s.forced(wire.Command(s.runner, wire.VerbServe), s.here()...))
	var status wire.StatusAnswer
	c.must(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, &status)
	if !exited(s.verify(sub.RunID, status.Runs[0].Record), 7) {
		t.Errorf("%s", status.Runs[0].Record)
	}
	var out wire.OutputAnswer
	c.must(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout"}, &out)
	if string(out.Data) != "got nothing\n" {
		t.Errorf("output %q", out.Data)
	}
	var hello wire.HelloAnswer
	c.must(wire.VerbHello, wire.HelloRequest{}, &hello)
	if len(hello.Allowed) != len(grantable) {
		t.Errorf("hello allows %q", hello.Allowed)
	}
	if status := c.end(); status != exitAnswered {
		t.Errorf("serve: exit %d", status)
	}
}

// TestForcedReadOnly: what changes anything is refused by name, with what is allowed, on a channel of its
// own and over serve alike.
func TestForcedReadOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	done, sub := s.script("echo out"), s.script("touch "+s.path("marker"))
	s.must(wire.VerbSubmit, done, nil)
	s.final(done.RunID)
	runs := wire.RunRequest{RunIDs: []longstop.RunID{done.RunID}}
	bodies := map[wire.Verb]any{
		wire.VerbSpool: wire.SpoolRequest{RunID: sub.RunID, Data: []byte("x")}, wire.VerbSubmit: sub, wire.VerbVoid: wire.VoidRequest{Key: sub.Key},
		wire.VerbCancel: wire.CancelRequest{RunID: done.RunID}, wire.VerbRenew: wire.RenewRequest{}, wire.VerbCollect: runs, wire.VerbGC: wire.GCRequest{},
		wire.VerbHello: wire.HelloRequest{}, wire.VerbFind: wire.FindRequest{Key: done.Key}, wire.VerbStatus: runs, wire.VerbList: wire.ListRequest{},
		wire.VerbInspect: wire.RunRequest{RunIDs: []longstop.RunID{done.RunID}}, wire.VerbOutput: wire.OutputRequest{RunID: done.RunID, Stream: "stdout"},
	}
	options := s.here("--read-only")
	c := s.serveBy(s.forced(wire.Command(s.runner, wire.VerbServe), options...))
	for verb := range verbs {
		body, tried := bodies[verb]
		if !tried {
			t.Errorf("%s is not tried here", verb)
			continue
		}
		reads := verb == wire.VerbHello || slices.Contains(readOnly, verb)
		for way, err := range map[string]*longstop.Error{"serve": c.call(s.ask(verb, body), nil), "alone": s.callForced(s.ask(verb, body), nil, options...)} {
			refused := err != nil && err.Code == longstop.CodeNotAllowed && strings.Contains(err.Message, "does not allow "+string(need(verb))+", only find, status, list, inspect, output")
			if reads && err != nil || !reads && !refused {
				t.Errorf("%s over %s: %v", verb, way, err)
			}
		}
	}
	if p := c.pushedOrRefused(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 100})); p != nil {
		t.Errorf("watch: %v", p)
	}
	if claim, err := s.f.Find(sub.Key); err != nil || claim.Found || exists(s.path("marker")) {
		t.Errorf("the refused submit left %+v, %v", claim, err)
	}
}

// need is the verb that has to be allowed for another.
func need(verb wire.Verb) wire.Verb {
	if verb == wire.VerbSpool {
		return wire.VerbSubmit
	}
	return verb
}

// pushedOrRefused is the error that ended a watch, or nil once it pushes.
func (c *channel) pushedOrRefused(request wire.Request) *longstop.Error {
	return next(c.s.t, c.send(request), "a pushed frame").Error
}

// TestForcedAllowsByName: nothing is allowed beside what is listed, watching without status neither.
func TestForcedAllowsByName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.serveBy(s.forced(wire.Command(s.runner, wire.VerbServe), s.here("--allow", "find,list")...))
	c.must(wire.VerbFind, wire.FindRequest{Key: "k"}, nil)
	c.must(wire.VerbList, wire.ListRequest{}, nil)
	for verb, body := range map[wire.Verb]any{wire.VerbStatus: wire.RunRequest{}, wire.VerbWatch: wire.WatchRequest{}} {
		if err := c.pushedOrRefused(s.ask(verb, body)); err == nil || err.Code != longstop.CodeNotAllowed {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// TestForcedStateFolder: a key has one state folder, and one that may start nothing makes none.
func TestForcedStateFolder(t *testing.T) {
	t.Parallel()
	s, other := newSite(t), newSite(t)
	elsewhere := other.ask(wire.VerbList, wire.ListRequest{})
	if err := s.callForced(elsewhere, nil, s.here()...); err == nil || err.Code != longstop.CodeNotAllowed || !strings.Contains(err.Message, s.f.Dir()) {
		t.Errorf("another folder: %v", err)
	}
	fresh := s.path("fresh")
	hello := wire.Request{Protocol: wire.Protocol, Verb: wire.VerbHello, Body: json.RawMessage(`{"create":true}`)}
	for _, dir := range []string{"", other.f.Dir()} {
		hello.Nonce, hello.StateDir = wire.NewNonce(), dir
		if err := s.callForced(hello, nil, "--state-dir", fresh, "--read-only"); err == nil || exists(fresh) {
			t.Errorf("a hello of a read-only key for %q: %v", dir, err)
		}
	}
	hello.Nonce, hello.StateDir = wire.NewNonce(), ""
	var answer wire.HelloAnswer
	if err := s.callForced(hello, &answer, "--state-dir", fresh); err != nil || answer.StateDir != fresh {
		t.Errorf("a hello without a folder's name: %v, %q", err, answer.StateDir)
	}
}

// FuzzForced: whatever a line of authorized_keys says, it is refused or allows verbs that can be allowed, by name.
func FuzzForced(f *testing.F) {
	for _, seed := range []string{"--read-only", "--allow\x00status,find", "--state-dir\x00/var/tmp/x", "--allow\x00serve", "--state-dir\x00/x\x00--allow\x00submit"} {
		f.Add(seed, "cancel")
	}
	f.Fuzz(func(t *testing.T, line, verb string) {
		p, err := takePermit(strings.Split(line, "\x00"))
		if err != nil {
			return
		}
		allowed := p.admit(wire.Verb(verb)) == nil
		switch v := wire.Verb(verb); {
		case !p.forced || len(p.verbs) == 0 || !strings.HasPrefix(p.stateDir, "/"):
			t.Errorf("%q is %+v", line, p)
		case v == wire.VerbHello, v == wire.VerbServe:
		case v == wire.VerbSpool, v == wire.VerbWatch:
		case allowed && !(slices.Contains(p.verbs, v) && slices.Contains(grantable, v)):
			t.Errorf("%q admits %q", line, verb)
		}
	})
}

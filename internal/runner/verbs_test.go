package runner

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

func TestHello(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	fresh := s.path("fresh")
	request := wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: wire.VerbHello, StateDir: fresh}
	if err := s.call(request, nil); err == nil || err.Code != longstop.CodeHostMismatch || !strings.Contains(err.Message, fresh) {
		t.Errorf("without the folder: %v", err)
	}
	if exists(fresh) {
		t.Fatal("a hello without create made the folder")
	}
	request.Body = json.RawMessage(`{"create":true}`)
	var first, second wire.HelloAnswer
	if err := s.call(request, &first); err != nil {
		t.Fatal(err)
	}
	request.Nonce = wire.NewNonce()
	if err := s.call(request, &second); err != nil {
		t.Fatal(err)
	}
	if first.StateID == "" || first.StateID != second.StateID {
		t.Errorf("state ids %q and %q", first.StateID, second.StateID)
	}
	sum := strings.TrimSpace(string(s.run(nil, "version", "--sha256").stdout))
	now := boundary.BootNow()
	if first.Protocol != wire.Protocol || first.Version != longstop.Version || first.RunnerSHA256 != sum || len(sum) != 64 ||
		first.MachineID != boundary.MachineID() || first.BootID != boundary.BootID() || first.UID != os.Getuid() || first.User == "" ||
		first.Kernel == "" || first.StateDir != fresh || first.StateFS == "" || first.Root != (os.Getuid() == 0) ||
		first.Limits["nofile"] == "" || now.Sub(first.BootNow).Abs() > time.Minute || time.Since(first.Now.Time).Abs() > time.Minute {
		t.Errorf("hello: %+v", first)
	}
	kinds := map[longstop.BoundaryKind]bool{}
	for _, offer := range first.Boundaries {
		kinds[offer.Kind] = offer.Can
		if offer.Can != (offer.Because == "") {
			t.Errorf("boundary %+v: can it, or why not?", offer)
		}
	}
	if _, err := boundary.FindHome(); !kinds[longstop.BoundaryTree] || kinds[longstop.BoundaryCgroup] != (err == nil) {
		t.Errorf("boundaries: %+v; a home for cgroups: %v", first.Boundaries, err)
	}
	request.Nonce, request.Body = wire.NewNonce(), nil
	for name, other := range map[string]wire.Identity{
		"another machine": {MachineID: "x", UID: os.Getuid(), StateID: first.StateID},
		"another user":    {MachineID: first.MachineID, UID: os.Getuid() + 1, StateID: first.StateID},
		"another folder":  {MachineID: first.MachineID, UID: os.Getuid(), StateID: s.f.StateID()},
	} {
		request.Host = other
		if err := s.call(request, nil); err == nil || err.Code != longstop.CodeHostMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// On a mismatch no verb does anything.
func TestNoVerbActsOnAnotherHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("echo ran >> line")
	bodies := map[wire.Verb]any{
		wire.VerbSpool: wire.SpoolRequest{RunID: sub.RunID, Data: []byte("x")}, wire.VerbSubmit: sub,
		wire.VerbFind: wire.FindRequest{Key: "k"}, wire.VerbVoid: wire.VoidRequest{Key: "k"},
		wire.VerbStatus: wire.RunRequest{}, wire.VerbList: wire.ListRequest{}, wire.VerbInspect: wire.RunRequest{},
		wire.VerbOutput: wire.OutputRequest{RunID: sub.RunID, Stream: "stdout"}, wire.VerbCancel: wire.CancelRequest{RunID: sub.RunID},
		wire.VerbRenew: wire.RenewRequest{}, wire.VerbCollect: wire.RunRequest{}, wire.VerbGC: wire.GCRequest{},
	}
	c := s.serve()
	for verb := range verbs {
		if verb == wire.VerbHello {
			continue
		}
		body, ok := bodies[verb]
		if !ok {
			t.Errorf("%s is not tried here", verb)
		}
		for name, change := range map[string]func(*wire.Request){
			"another machine": func(r *wire.Request) { r.Host.MachineID = "ffffffffffffffffffffffffffffffff" },
			"another user":    func(r *wire.Request) { r.Host.UID++ },
			"another id":      func(r *wire.Request) { r.Host.StateID = strings.Repeat("0", 32) },
			"no identity":     func(r *wire.Request) { r.Host = wire.Identity{} },
			"no folder":       func(r *wire.Request) { r.StateDir = s.path("nothing here") },
		} {
			request := s.ask(verb, body)
			change(&request)
			if err := c.call(request, nil); err == nil || err.Code != longstop.CodeHostMismatch || !strings.Contains(err.Hint, "longstop") {
				t.Errorf("%s, %s: %v", verb, name, err)
			}
		}
	}
	if claim, err := s.f.Find("k"); err != nil || claim.Found {
		t.Errorf("the key has %+v, %v", claim, err)
	}
	if len(s.lines("line")) > 0 || exists(s.path("nothing here")) || exists(s.f.Path("spool", string(sub.RunID))) {
		t.Error("something was done")
	}
}

// A folder that cannot be made is not one that is gone.
func TestAStateFolderThatCannotBeMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	request := s.ask(wire.VerbHello, wire.HelloRequest{Create: true})
	request.StateDir = "/proc/longstop"
	err := s.call(request, nil)
	if err == nil || err.Code != longstop.CodeStateFolder || !strings.Contains(err.Message, "/proc/longstop cannot be written") || !strings.Contains(err.Hint, "--state-dir") {
		t.Errorf("%+v", err)
	}
}

// C122 and point 14: what is wrong with the state folder is said by its path, with the way to mend it.
func TestAStateFolderThatIsWrong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(s.f.Dir(), 0755))
	err := s.call(s.ask(wire.VerbStatus, wire.RunRequest{}), nil)
	if err == nil || err.Code != longstop.CodeStateFolder || !strings.Contains(err.Message, s.f.Dir()+" has mode 0755, not 0700") || !strings.Contains(err.Hint, "chmod 0700 "+s.f.Dir()) {
		t.Errorf("mode: %+v", err)
	}
	must(os.Chmod(s.f.Dir(), 0700))
	must(os.Symlink(s.f.Dir(), s.path("link")))
	request := s.ask(wire.VerbHello, wire.HelloRequest{Create: true})
	request.StateDir = s.path("link")
	err = s.call(request, nil)
	if err == nil || err.Code != longstop.CodeStateFolder || !strings.Contains(err.Message, request.StateDir+" is a symbolic link") {
		t.Errorf("link: %+v", err)
	}
}

// What is not a request gets no frame, or a frame that says so; nothing of it is done.
func TestRequestsAreReadStrictly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := s.ask(wire.VerbVoid, wire.VoidRequest{Key: "k"})
	encoded, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	text := string(encoded)
	for name, bad := range map[string]struct {
		input string
		code  longstop.Code // empty: no frame at all
	}{
		"nothing":            {"", ""},
		"no JSON":            {"hello", ""},
		"no nonce":           {strings.Replace(text, good.Nonce, "", 1), ""},
		"nonce of letters":   {strings.Replace(text, good.Nonce, strings.Repeat("z", 32), 1), ""},
		"half":               {text[:len(text)-1], ""},
		"two requests":       {text + text, ""},
		"a nonce twice":      {strings.Replace(text, `"nonce"`, `"nonce":"`+good.Nonce+`","nonce"`, 1), ""},
		"a key twice":        {strings.Replace(text, `"key":"k"`, `"key":"k","key":"k"`, 1), ""},
		"an unknown field":   {strings.Replace(text, `"nonce"`, `"more":1,"nonce"`, 1), longstop.CodeUsage},
		"an unknown of body": {strings.Replace(text, `"key":"k"`, `"key":"k","more":1`, 1), longstop.CodeUsage},
		"no key":             {strings.Replace(text, `"key":"k"`, `"key":""`, 1), longstop.CodeUsage},
		"another verb":       {strings.Replace(text, `"verb":"void"`, `"verb":"find"`, 1), longstop.CodeUsage},
		"a newer protocol":   {strings.Replace(text, `"protocol":2`, `"later":[],"protocol":3`, 1), longstop.CodeVersionMismatch},
		"no protocol":        {strings.Replace(text, `"protocol":2,`, ``, 1), longstop.CodeVersionMismatch},
	} {
		if bad.input == text {
			t.Errorf("%s: the request is not altered", name)
		}
		r := s.run([]byte(bad.input), "void")
		if bad.code == "" {
			if r.status != exitNoAnswer || len(r.stdout) > 0 || len(r.stderr) == 0 {
				t.Errorf("%s: exit %d, stdout %q, stderr %q", name, r.status, r.stdout, r.stderr)
			}
			continue
		}
		if err := s.answer(good, r, nil); err == nil || err.Code != bad.code {
			t.Errorf("%s: %v, want %s", name, err, bad.code)
		}
	}
	if claim, err := s.f.Find("k"); err != nil || claim.Found {
		t.Errorf("the key has %+v, %v", claim, err)
	}
	if err := s.answer(good, s.run(encoded, "void"), nil); err != nil {
		t.Errorf("the request itself: %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, args := range [][]string{{}, {"frobnicate"}, {"status", "--now"}, {"version", "x"}, {"forced"}} {
		r := s.run(nil, args...)
		if r.status != exitNoAnswer || len(r.stdout) > 0 || !bytes.Contains(r.stderr, []byte("longstop-runner")) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, r.status, r.stdout, r.stderr)
		}
	}
	if r := s.run(nil, "version"); r.status != 0 || !bytes.HasPrefix(r.stdout, []byte("longstop-runner "+longstop.Version+" protocol 2 linux/")) {
		t.Errorf("version: %+v", r)
	}
	info, err := os.Stat(s.runner)
	if err != nil || info.Size() > 6_000_000 {
		t.Errorf("longstop-runner has %d bytes, more than 6 MB; %v", info.Size(), err)
	}
}

func TestFindAndVoid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var found wire.FindAnswer
	s.must(wire.VerbFind, wire.FindRequest{Key: "nobody's"}, &found)
	if found.Found {
		t.Errorf("a key that nobody claimed: %+v", found)
	}
	sub := s.script("exit 3")
	var submitted wire.SubmitAnswer
	s.must(wire.VerbSubmit, sub, &submitted)
	s.final(sub.RunID)
	for _, verb := range []wire.Verb{wire.VerbFind, wire.VerbVoid} {
		var found wire.FindAnswer
		s.must(verb, wire.FindRequest{Key: sub.Key}, &found)
		if !found.Found || found.Void || found.RunID != sub.RunID || !exited(s.verify(sub.RunID, found.Record), 3) {
			t.Errorf("%s of a claimed key: %+v", verb, found)
		}
	}
	var void wire.VoidAnswer
	s.must(wire.VerbVoid, wire.VoidRequest{Key: "burnt", Reason: "test"}, &void)
	if !void.Found || !void.Void || void.RunID != "" {
		t.Errorf("void: %+v", void)
	}
	late := s.script("echo ran >> line")
	late.Key = "burnt"
	if err := s.call(s.ask(wire.VerbSubmit, late), nil); err == nil || err.Code != longstop.CodeKeyVoid {
		t.Errorf("a submit after the void: %v", err)
	}
	if len(s.lines("line")) > 0 {
		t.Error("a void key ran")
	}
}

// A run from its submit to its tombstone, each verb a call of its own.
func TestARunByVerbsAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("printf hello; printf oops >&2; read line; echo $line; exit 3")
	sub.Request.StdinBytes = 6
	var spooled wire.SpoolAnswer
	s.must(wire.VerbSpool, wire.SpoolRequest{RunID: sub.RunID, Data: []byte("wor")}, &spooled)
	s.must(wire.VerbSpool, wire.SpoolRequest{RunID: sub.RunID, Offset: 3, Data: []byte("ld\n")}, &spooled)
	if spooled.Bytes != 6 {
		t.Errorf("spooled %d bytes", spooled.Bytes)
	}
	var submitted, again wire.SubmitAnswer
	s.must(wire.VerbSubmit, sub, &submitted)
	s.must(wire.VerbSubmit, sub, &again)
	if submitted.Existing || !again.Existing {
		t.Errorf("existing: %v, then %v", submitted.Existing, again.Existing)
	}
	s.final(sub.RunID)
	var status wire.StatusAnswer
	other := longstop.NewRunID()
	s.must(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID, other}}, &status)
	if len(status.Runs) != 2 || !exited(s.verify(sub.RunID, status.Runs[0].Record), 3) || status.Runs[0].Orphaned ||
		status.Runs[0].Output.StdoutBytes != 11 || status.Runs[0].Output.StderrBytes != 4 || status.BootNow == 0 {
		t.Errorf("status: %+v", status)
	}
	if status.Runs[1].RunID != other || status.Runs[1].Error == nil || status.Runs[1].Error.Code != longstop.CodeNotFound {
		t.Errorf("status of an unknown run: %+v", status.Runs[1])
	}
	s.checkOutput(sub.RunID, "stdout", "helloworld\n")
	s.checkOutput(sub.RunID, "stderr", "oops")
	var list wire.ListAnswer
	s.must(wire.VerbList, wire.ListRequest{Cursor: "0."}, &list)
	if len(list.Runs) != 1 || list.Runs[0].RunID != sub.RunID || list.More {
		t.Errorf("list: %+v", list)
	}
	s.must(wire.VerbList, wire.ListRequest{Cursor: list.Cursor}, &list)
	if len(list.Runs) != 0 {
		t.Errorf("list after its cursor: %+v", list)
	}
	s.checkRemoval(sub)
}

// checkOutput reads a final run's stream in small pieces.
func (s *site) checkOutput(id longstop.RunID, stream, want string) {
	s.t.Helper()
	var got []byte
	for {
		var answer wire.OutputAnswer
		s.must(wire.VerbOutput, wire.OutputRequest{RunID: id, Stream: stream, Offset: int64(len(got)), Max: 4, WaitMS: 5000}, &answer)
		got = append(got, answer.Data...)
		if answer.Total != int64(len(want)) || answer.End != (len(got) == len(want)) {
			s.t.Errorf("%s: %+v after %q", stream, answer, got)
		}
		if answer.End || len(answer.Data) == 0 {
			break
		}
	}
	if string(got) != want {
		s.t.Errorf("%s: %q, want %q", stream, got, want)
	}
}

// checkRemoval collects a final run and removes it.
func (s *site) checkRemoval(sub wire.Submit) {
	s.t.Helper()
	running := s.script("exec sleep 60")
	s.must(wire.VerbSubmit, running, nil)
	var collected wire.CollectAnswer
	s.must(wire.VerbCollect, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID, running.RunID, longstop.NewRunID()}}, &collected)
	if len(collected.Collected) != 1 || collected.Collected[0] != sub.RunID {
		s.t.Errorf("collected %v, want the final run alone", collected.Collected)
	}
	var removed wire.GCAnswer
	s.must(wire.VerbGC, wire.GCRequest{MaxAgeS: 3600}, &removed)
	if len(removed.Removed) != 0 {
		s.t.Errorf("removed %v, which nobody named", removed.Removed)
	}
	s.must(wire.VerbGC, wire.GCRequest{RunIDs: []longstop.RunID{sub.RunID, running.RunID}, Short: true}, &removed)
	if removed.Short {
		s.t.Error("the host says that it is short of room")
	}
	if len(removed.Removed) != 1 || removed.Removed[0] != sub.RunID {
		s.t.Errorf("removed %v, want the collected run alone", removed.Removed)
	}
	var found wire.FindAnswer
	s.must(wire.VerbFind, wire.FindRequest{Key: sub.Key}, &found)
	if !found.Expired || !exited(s.verify(sub.RunID, found.Record), 3) {
		s.t.Errorf("find after removal: %+v", found)
	}
	if err := s.call(s.ask(wire.VerbSubmit, sub), nil); err == nil || err.Code != longstop.CodeExpired {
		s.t.Errorf("submit after removal: %v", err)
	}
	if err := s.call(s.ask(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout"}), nil); err == nil || err.Code != longstop.CodeExpired {
		s.t.Errorf("output after removal: %v", err)
	}
	var status wire.StatusAnswer
	s.must(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, &status)
	if !exited(s.verify(sub.RunID, status.Runs[0].Record), 3) || status.Runs[0].Output.StdoutBytes != 11 {
		s.t.Errorf("status after removal: %+v", status.Runs[0])
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("setsid sleep 61 & sleep 62 & echo ready > line; wait")
	s.must(wire.VerbSubmit, sub, nil)
	s.has("line", 1)
	var answer wire.InspectAnswer
	find := func(command string) *longstop.Process {
		for _, p := range answer.Processes {
			if p.Command == command {
				return &p
			}
		}
		return nil
	}
	eventually(t, "three processes", func() bool {
		s.must(wire.VerbInspect, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, &answer)
		return len(answer.Processes) == 3 && find("sleep 61") != nil && find("sleep 62") != nil
	})
	record := s.record(sub.RunID)
	main := answer.Processes[0]
	if main.PID != record.Main.PID || main.StartTime != record.Main.StartTime || !answer.Complete || answer.Owner == nil || answer.Keeper == nil ||
		answer.Owner.PID != record.Writer.PID || answer.Owner.PPID != answer.Keeper.PID || main.PPID != answer.Owner.PID {
		t.Errorf("inspect: %+v", answer)
	}
	away := find("sleep 61")
	if away.SID == main.SID || away.State == "" || away.UID != os.Getuid() || away.Files[0] == "" {
		t.Errorf("the process that left the session: %+v", away)
	}
	s.cancel(sub.RunID, time.Second, 10*time.Second)
	s.must(wire.VerbInspect, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, &answer)
	if len(answer.Processes) != 0 {
		t.Errorf("after its end: %+v", answer)
	}
}

// C127: a damaged record is named, and the others are told as ever.
func TestADamagedRecordIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good, bad := s.script("exit 0"), s.script("exit 0")
	for _, sub := range []wire.Submit{good, bad} {
		s.must(wire.VerbSubmit, sub, nil)
		s.final(sub.RunID)
		run, err := s.f.Run(sub.RunID)
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		eventually(t, "its owner is still there", func() bool { held, err := run.Locked(); return err == nil && !held })
	}
	path := s.f.Path("runs", string(bad.RunID), "final")
	if err := os.WriteFile(path, []byte("{"), 0600); err != nil {
		t.Fatal(err)
	}
	var list wire.ListAnswer
	s.must(wire.VerbList, wire.ListRequest{Cursor: "0."}, &list)
	for _, run := range list.Runs {
		switch {
		case run.RunID == good.RunID && run.Error == nil:
		case run.RunID == bad.RunID && run.Error != nil && run.Error.Code == longstop.CodeUnreadable && strings.Contains(run.Error.Message, path):
		default:
			t.Errorf("%+v", run)
		}
	}
	if len(list.Runs) != 2 {
		t.Errorf("%d runs", len(list.Runs))
	}
	if data, _ := os.ReadFile(path); string(data) != "{" {
		t.Errorf("the damaged file is now %q", data)
	}
}

// C094: the login's umask does not touch our files, and the workload finds it.
func TestC094TheUmaskIsTheWorkloads(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"0777", "0077", "0000", "0022"} {
		s := newSite(t)
		sub := s.script("umask > /dev/stdout")
		request := s.ask(wire.VerbSubmit, sub)
		encoded, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		r := runCommand(t, exec.Command("/bin/sh", "-c", "umask "+umask+"; exec "+s.runner+" submit"), encoded)
		if err := s.answer(request, r, nil); err != nil {
			t.Fatalf("umask %s: %v", umask, err)
		}
		s.final(sub.RunID)
		if got := strings.TrimSpace(s.stdout(sub.RunID)); got != umask {
			t.Errorf("the workload's umask is %q, the login's %s", got, umask)
		}
		checkModes(t, s.f)
	}
}

func checkModes(t *testing.T, f *record.Folder) {
	t.Helper()
	output, err := exec.Command("find", f.Dir(), "(", "-type", "d", "!", "-perm", "0700", ")", "-o", "(", "!", "-type", "d", "!", "-perm", "0600", ")").CombinedOutput()
	if err != nil || len(output) > 0 {
		t.Errorf("modes other than 0700 and 0600: %s%v", output, err)
	}
}

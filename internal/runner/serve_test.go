package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// A run on a serve channel: the watch tells of it while it lives, of its end once, and then no more.
func TestServeARunFromSubmitToEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.serve()
	watch := c.send(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 200}))
	if first := next(t, watch, "the first frame"); first.Final || first.Number != 1 {
		t.Fatalf("the first frame: %+v", first)
	}
	sub := s.script("echo hello; while ! [ -e go ]; do sleep 0.05; done; exit 7")
	var submitted wire.SubmitAnswer
	c.must(wire.VerbSubmit, sub, &submitted)
	if rec := s.verify(sub.RunID, submitted.Record); rec.State != longstop.WorkloadRunning {
		t.Errorf("submitted: %s", submitted.Record)
	}
	for running := false; !running; {
		for _, run := range c.pushed(watch).Runs {
			rec := s.verify(run.RunID, run.Record)
			running = rec.State == longstop.WorkloadRunning
			if run.RunID != sub.RunID || run.Orphaned || rec.State == longstop.WorkloadStarting {
				t.Errorf("pushed: %+v", run)
			}
		}
	}
	if err := os.WriteFile(s.path("go"), nil, 0600); err != nil {
		t.Fatal(err)
	}
	for final := false; !final; {
		for _, run := range c.pushed(watch).Runs {
			rec := s.verify(run.RunID, run.Record)
			if final = rec.State.Final(); final && (!exited(rec, 7) || run.Output.StdoutBytes != 6) {
				t.Errorf("the end: %s, %+v", run.Record, run.Output)
			}
		}
	}
	for range 5 { // heartbeats, with nothing to tell
		answer := next(t, watch, "a heartbeat")
		var p wire.Pushed
		s.read(answer, &p)
		if len(p.Runs) > 0 || p.BootNow == 0 || p.Now.IsZero() {
			t.Errorf("after the end: %+v", p)
		}
	}
	if err := c.call(s.ask(wire.VerbWatch, wire.WatchRequest{}), nil); err == nil || err.Code != longstop.CodeUsage {
		t.Errorf("a second watch: %v", err)
	}
	if status := c.end(); status != exitAnswered {
		t.Errorf("exit %d, stderr %s", status, &c.stderr)
	}
}

// A watch begins with all that is unresolved, and misses no end, however many there are at once:
// each is in its submit's answer, or pushed.
func TestWatchMissesNoEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before := s.script("exec sleep 60")
	s.submit(before)
	c := s.serve()
	watch := c.send(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 60_000}))
	if first := c.pushed(watch); len(first.Runs) != 1 || first.Runs[0].RunID != before.RunID {
		t.Fatalf("first: %+v", first)
	}
	const many = 24
	codes := map[longstop.RunID]int{}
	var answers []<-chan wire.Answer
	for i := range many {
		sub := s.script(fmt.Sprint("exit ", i))
		codes[sub.RunID] = i
		answers = append(answers, c.send(s.ask(wire.VerbSubmit, sub)))
	}
	tell := func(id longstop.RunID, record []byte) {
		rec := s.verify(id, record)
		if rec.State.Final() {
			if code, expected := codes[id]; expected && !exited(rec, code) {
				t.Errorf("told: %s", record)
			}
			delete(codes, id)
		}
	}
	for _, answer := range answers {
		a := next(t, answer, "a submit's answer")
		var said wire.SubmitAnswer
		if a.Error != nil || wire.Strict(a.Body, &said) != nil {
			t.Fatal(a.Error)
		}
		var rec longstop.Record
		wire.Tolerant(said.Record, &rec)
		tell(rec.RunID, said.Record)
	}
	for len(codes) > 0 {
		for _, run := range c.pushed(watch).Runs {
			tell(run.RunID, run.Record)
		}
	}
}

// What a submit's answer is about to tell, or told, the channel's watch does not tell as well.
func TestWatchLeavesRunsToTheirAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("exit 7")
	l.submit(sub)
	l.final(sub.RunID)
	run, err := l.f.Run(sub.RunID)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	raw, _, err := run.Read()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer  string // that was sent; empty: none was
		waiting bool   // it may still come
		told    bool   // by the watch
	}{
		"about to be answered": {waiting: true},
		"answered":             {answer: string(raw)},
		"answered before":      {answer: "an older record", told: true},
		"answered too late":    {told: true},
	} {
		a := newAnswering()
		a.watched(true)
		a.begin("nonce", sub.RunID)
		switch {
		case c.answer != "":
			a.say(sub.RunID, []byte(c.answer))
			a.sent("nonce")
			if names, _ := a.told.take(); !names[string(sub.RunID)] {
				t.Errorf("%s: the watch is not told to look", name)
			}
		case !c.waiting:
			a.runs[sub.RunID].until = time.Now()
		}
		w := &watcher{folder: l.f, answering: a, known: map[longstop.RunID]sight{}, ended: map[longstop.RunID]bool{}}
		if _, told := w.read(sub.RunID, false); told != c.told {
			t.Errorf("%s: told %v", name, told)
		}
		if c.waiting {
			select {
			case <-a.told.changed:
			case <-time.After(10 * time.Second):
				t.Errorf("%s: it is never looked at", name)
			}
		}
	}
}

// A run that ends before its keeper has written down what it sees of its unit is told of again when it has.
func TestWatchTellsOfAUnitSeenLate(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("exit 7")
	run, err := l.f.Build(sub)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if _, err := l.f.Claim(run, sub.Key); err != nil {
		t.Fatal(err)
	}
	lock, err := run.Lock()
	if err != nil {
		t.Fatal(err)
	}
	rec := firstRecord(sub, writerOf(longstop.WriterOwner))
	enter(&rec, longstop.WorkloadFinished)
	rec.Boundary = longstop.Boundary{Kind: longstop.BoundarySystemd, Manager: "system", Unit: "longstop-" + string(sub.RunID) + ".service"}
	if _, err := run.Finish(&rec, sub.Secret); err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	w := &watcher{folder: l.f, answering: newAnswering(), known: map[longstop.RunID]sight{}, ended: map[longstop.RunID]bool{}}
	if status, told := w.read(sub.RunID, false); !told || status.Unit != nil {
		t.Fatalf("told %v: %+v", told, status)
	}
	run.KeepUnit(longstop.Unit{Manager: rec.Boundary.Manager, Name: rec.Boundary.Unit, InvocationID: "1", ActiveState: "active"})
	if status, told := w.read(sub.RunID, true); !told || status.Unit == nil || status.Unit.InvocationID != "1" {
		t.Errorf("told %v of the unit: %+v", told, status.Unit)
	}
}

// The end of a serve channel ends nothing else.
func TestServeEndsAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.serve()
	c.send(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 200}))
	sub := s.script("while ! [ -e go ]; do sleep 0.05; done; exit 7")
	c.must(wire.VerbSubmit, sub, nil)
	waiting := c.send(s.ask(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", WaitMS: 60_000}))
	began := time.Now()
	c.end()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v to end, with a wait in hand", took)
	}
	select {
	case <-waiting:
	default: // answered or not: whoever closes a channel does not ask
	}
	if rec := s.record(sub.RunID); rec.State != longstop.WorkloadRunning {
		t.Errorf("the run: %s", show(rec))
	}
	killed := s.serve()
	killed.must(wire.VerbStatus, wire.RunRequest{}, nil)
	killed.cmd.Process.Kill()
	if err := os.WriteFile(s.path("go"), nil, 0600); err != nil {
		t.Fatal(err)
	}
	if rec := s.final(sub.RunID); !exited(rec, 7) || rec.Writer.Kind != longstop.WriterOwner {
		t.Errorf("the run: %s", show(rec))
	}
}

// What came before the channel's end is done and answered, a cancellation above all.
func TestServeDoesWhatWasAskedBeforeItsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("exec sleep 60")
	s.submit(sub)
	var frames bytes.Buffer
	request := s.ask(wire.VerbCancel, wire.CancelRequest{RunID: sub.RunID, GraceMS: 5000, WaitMS: 4000})
	if err := wire.WriteFrame(&frames, request.Nonce, s.encode(request)); err != nil {
		t.Fatal(err)
	}
	var answer wire.CancelAnswer
	if err := s.answer(request, s.run(frames.Bytes(), "serve"), &answer); err != nil {
		t.Fatal(err)
	}
	if rec := s.verify(sub.RunID, answer.Record); rec.State != longstop.WorkloadCancelled {
		t.Errorf("answered: %s", answer.Record)
	}
}

// Answers come in any order: a wait in hand holds nobody up, and its own deadline ends it.
func TestServeAnswersInAnyOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.serve()
	sub := s.script("exec sleep 60")
	c.must(wire.VerbSubmit, sub, nil)
	long := c.send(s.ask(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", WaitMS: 60_000}))
	short := s.ask(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", WaitMS: 60_000})
	short.WithinMS = 300
	var late wire.OutputAnswer
	if err := c.call(short, &late); err != nil || late.End || len(late.Data) > 0 {
		t.Errorf("a wait beyond its deadline: %+v, %v", late, err)
	}
	for range 20 {
		c.must(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, nil)
	}
	c.must(wire.VerbCancel, wire.CancelRequest{RunID: sub.RunID, GraceMS: 5000, WaitMS: 10_000}, nil)
	var ended wire.OutputAnswer
	s.read(next(t, long, "the end of the stream"), &ended)
	if !ended.End || ended.Total != 0 {
		t.Errorf("the stream's end: %+v", ended)
	}
	for verb, code := range map[wire.Verb]longstop.Code{"forced": longstop.CodeUnsupported, wire.VerbServe: longstop.CodeUnsupported} {
		if err := c.call(s.ask(verb, struct{}{}), nil); err == nil || err.Code != code {
			t.Errorf("verb %s: %v", verb, err)
		}
	}
}

// What cannot be told from something else ends the channel; what can be is answered.
func TestServeReadsStrictly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, input := range map[string]string{
		"noise":       "Welcome!\n",
		"half a head": "LONGSTOP/1 ",
		"no end":      "LONGSTOP/1 " + strings.Repeat("0", 32) + " 2\n{}\nEND nothing\n",
	} {
		r := s.run([]byte(input), "serve")
		if r.status != exitNoAnswer || len(r.stdout) > 0 || len(r.stderr) == 0 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", name, r.status, r.stdout, r.stderr)
		}
	}
	nonce := wire.NewNonce()
	var frame bytes.Buffer
	wire.WriteFrame(&frame, nonce, []byte(`{"protocol":2,"nonce":"`+nonce+`","verb":"status","verb":"gc"}`))
	r := s.run(frame.Bytes(), "serve")
	body, _, err := wire.ReadOne(bytes.NewReader(r.stdout), nonce, wire.Options{MaxNoise: -1})
	if err != nil || r.status != exitAnswered {
		t.Fatalf("exit %d, %v, stderr %q", r.status, err, r.stderr)
	}
	if answer, err := wire.DecodeAnswer(nonce, body); err != nil || answer.Error == nil || answer.Error.Code != longstop.CodeUsage {
		t.Errorf("a verb twice: %s, %v", body, err)
	}
	if r := s.run(nil, "serve"); r.status != exitAnswered || len(r.stdout) > 0 {
		t.Errorf("nothing at all: %+v", r)
	}
}

// A submit that was begun and withdrawn is as if it had never come, whatever comes next.
func TestLaw4WithdrawnSubmitIsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.submit(l.script("true")) // a keeper is there
	withdrawn, next := l.script("touch withdrawn"), l.script("touch next")
	var begun, rest bytes.Buffer
	frame := func(sub wire.Submit) (nonce string, frame []byte) {
		body, err := json.Marshal(sub)
		if err != nil {
			t.Fatal(err)
		}
		request := wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: wire.VerbSubmit, Host: identityOf(l.f), StateDir: l.f.Dir(), WithinMS: 20_000, Body: body}
		if frame, err = json.Marshal(request); err != nil {
			t.Fatal(err)
		}
		return request.Nonce, frame
	}
	first, body := frame(withdrawn)
	wire.BeginFrame(&begun, first, body)
	wire.EndFrame(&rest, first, false)
	second, body := frame(next)
	wire.WriteFrame(&rest, second, body) // whole at once
	var out bytes.Buffer
	if status := serve(newHost(permit{}), io.MultiReader(&begun, &rest), &out); status != exitAnswered {
		t.Errorf("exit %d", status)
	}
	answered, _, err := wire.ReadOne(&out, second, wire.Options{MaxNoise: -1})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := wire.DecodeAnswer(second, answered)
	var said wire.SubmitAnswer
	if err != nil || answer.Error != nil || wire.Strict(answer.Body, &said) != nil {
		t.Fatalf("%s, %v", answered, err)
	}
	l.verify(next.RunID, said.Record)
	if _, err := l.f.Run(withdrawn.RunID); !errors.Is(err, record.ErrNoRun) {
		t.Errorf("the run of the withdrawn submit: %v", err)
	}
}

// A folder that is wiped under a serve channel is a mismatch at once, and its watch says so.
func TestServeNoticesAWipedFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.serve()
	watch := c.send(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 100}))
	next(t, watch, "the first frame")
	if err := os.Rename(s.f.Dir(), s.f.Dir()+".gone"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Rename(s.f.Dir()+".gone", s.f.Dir()) })
	if err := c.call(s.ask(wire.VerbVoid, wire.VoidRequest{Key: "k"}), nil); err == nil || err.Code != longstop.CodeHostMismatch {
		t.Errorf("void: %v", err)
	}
	for {
		answer := next(t, watch, "the watch's end")
		if answer.Final {
			if answer.Error == nil || answer.Error.Code != longstop.CodeHostMismatch {
				t.Errorf("the watch's end: %+v", answer)
			}
			break
		}
	}
}

// Output arrives as it is written, whole and in order, while the work goes on.
func TestServeOutputFollows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.serve()
	const size = 12 << 20
	sub := s.script(fmt.Sprintf("head -c %d /dev/urandom | tee copy; touch copied; while ! [ -e go ]; do sleep 0.01; done; echo end", size))
	c.must(wire.VerbSubmit, sub, nil)
	hash, total := sha256.New(), int64(0)
	read := func() wire.OutputAnswer {
		t.Helper()
		var answer wire.OutputAnswer
		c.must(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", Offset: total, WaitMS: 10_000}, &answer)
		if answer.Offset != total || int64(len(answer.Data)) > maxOutput || answer.Total < total+int64(len(answer.Data)) {
			t.Fatalf("at %d: offset %d, %d bytes of %d", total, answer.Offset, len(answer.Data), answer.Total)
		}
		total += int64(len(answer.Data))
		return answer
	}
	for total < size {
		answer := read()
		hash.Write(answer.Data)
		if answer.End || len(answer.Data) == 0 {
			t.Fatalf("the stream ends at %d", total)
		}
	}
	eventually(t, "a whole copy", func() bool { return s.exists("copied") }) // tee writes to it behind its standard output
	copied, err := os.ReadFile(s.path("copy"))
	if err != nil || sha256.Sum256(copied) != [32]byte(hash.Sum(nil)) {
		t.Errorf("what arrived is not what was written (%v)", err)
	}
	if err := os.WriteFile(s.path("go"), nil, 0600); err != nil {
		t.Fatal(err)
	}
	var last []byte
	for end := false; !end; {
		answer := read()
		last, end = append(last, answer.Data...), answer.End
	}
	if string(last) != "end\n" {
		t.Errorf("the last bytes are %q", last)
	}
}

func TestOutputRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("echo hello")
	s.submit(sub)
	s.final(sub.RunID)
	c := s.serve()
	for name, request := range map[string]wire.OutputRequest{
		"stream": {RunID: sub.RunID, Stream: "../stdout"}, "offset": {RunID: sub.RunID, Stream: "stdout", Offset: -1},
		"size": {RunID: sub.RunID, Stream: "stdout", Max: -1}, "run": {RunID: "run_../../x", Stream: "stdout"},
	} {
		if err := c.call(s.ask(wire.VerbOutput, request), nil); err == nil || err.Code != longstop.CodeUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.call(s.ask(wire.VerbOutput, wire.OutputRequest{RunID: longstop.NewRunID(), Stream: "stdout"}), nil); err == nil || err.Code != longstop.CodeNotFound {
		t.Errorf("an unknown run: %v", err)
	}
	var beyond wire.OutputAnswer
	c.must(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", Offset: 100}, &beyond)
	if !beyond.End || beyond.Total != 6 || len(beyond.Data) > 0 {
		t.Errorf("beyond the end: %+v", beyond)
	}
}

// Released processes that are alive are told with the final record, and the stream is not over.
func TestReleasedProcessesAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.request(longstop.Request{Script: "setsid sleep 60 & echo ready", Leftover: longstop.LeftoverRelease})
	s.submit(sub)
	rec := s.final(sub.RunID)
	if len(rec.Released) != 1 {
		t.Fatalf("released: %s", show(rec))
	}
	c := s.serve()
	status := func() wire.RunStatus {
		var answer wire.StatusAnswer
		c.must(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, &answer)
		return answer.Runs[0]
	}
	if alive := status().Released; len(alive) != 1 || alive[0].PID != rec.Released[0].PID || !strings.Contains(alive[0].Command, "sleep") {
		t.Errorf("released: %+v", alive)
	}
	var output wire.OutputAnswer
	c.must(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout"}, &output)
	if output.End || string(output.Data) != "ready\n" {
		t.Errorf("output: %+v", output)
	}
	c.must(wire.VerbCollect, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, nil)
	var removed wire.GCAnswer
	c.must(wire.VerbGC, wire.GCRequest{RunIDs: []longstop.RunID{sub.RunID}}, &removed)
	if len(removed.Removed) != 0 {
		t.Error("a run was removed whose released process lives")
	}
	boundary.Signal(boundary.Identity{PID: rec.Released[0].PID, Start: rec.Released[0].StartTime}, 9)
	eventually(t, "nobody alive", func() bool { return len(status().Released) == 0 })
	c.must(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout"}, &output)
	if !output.End {
		t.Errorf("output after the last writer's end: %+v", output)
	}
}

// Where inotify has no instance to give, records are looked at now and then: slower, and complete.
func TestWatchWithoutInotify(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	out, in := io.Pipe()
	server := &server{host: newHost(permit{}), changes: &changes{tried: true, answering: newAnswering()}, stdout: in, slots: make(chan struct{}, 1)}
	ctx := t.Context()
	request := wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: wire.VerbWatch, Host: identityOf(l.f), StateDir: l.f.Dir()}
	go server.watch(ctx, request)
	frames := wire.NewReader(out, wire.Options{MaxNoise: -1})
	sub := l.script("exit 7")
	l.submit(sub)
	for {
		nonce, body, err := frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		answer, err := wire.DecodeAnswer(nonce, body)
		if err != nil || answer.Final {
			t.Fatalf("%s, %v", body, err)
		}
		var p wire.Pushed
		if err := wire.Strict(answer.Body, &p); err != nil {
			t.Fatal(err)
		}
		for _, run := range p.Runs {
			if exited(l.verify(run.RunID, run.Record), 7) {
				out.Close()
				return
			}
		}
	}
}

// C095: a login that may have few processes still has its verbs. A Go program needs four threads.
func TestC095FewProcesses(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	for _, tool := range []string{"setpriv", "prlimit"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	s := newSite(t)
	open, err := os.MkdirTemp("/tmp", "longstop-few")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(open) })
	data, err := os.ReadFile(s.runner)
	if err != nil {
		t.Fatal(err)
	}
	runner := open + "/longstop-runner"
	if err := os.WriteFile(runner, data, 0755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(open, 0777), os.Chmod(runner, 0755)); err != nil {
		t.Fatal(err)
	}
	const nobody = "61234" // a user with no other process
	request := wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: wire.VerbHello, StateDir: open + "/state", Body: []byte(`{"create":true}`)}
	encoded := s.encode(request)
	cmd := exec.Command("prlimit", "--nproc=10:10", "setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups", runner, "hello")
	cmd.Env = []string{"HOME=" + open}
	var answer wire.HelloAnswer
	if err := s.answer(request, runCommand(t, cmd, encoded), &answer); err != nil || answer.Root || answer.UID != 61234 {
		t.Errorf("hello: %+v, %v", answer, err)
	}
}

// The flushes that a launch waits for, of all processes together: four are the aim.
func TestFlushesOfARun(t *testing.T) {
	t.Parallel()
	s := newSiteOf(t, faulty)
	log := s.path("flushes")
	cmd := exec.Command(s.runner, "serve")
	cmd.Env = append(os.Environ(), "LONGSTOP_FLUSH_LOG="+log)
	c := s.serveBy(cmd)
	watch := c.send(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 60_000}))
	next(t, watch, "the first frame")
	for round, go_ := range []string{"first", "second"} {
		before := len(s.lines("flushes"))
		sub := s.script("while ! [ -e " + go_ + " ]; do sleep 0.01; done")
		c.must(wire.VerbSubmit, sub, nil)
		launch := s.lines("flushes")[before:]
		if err := os.WriteFile(s.path(go_), nil, 0600); err != nil {
			t.Fatal(err)
		}
		s.final(sub.RunID)
		all := s.lines("flushes")[before:]
		t.Logf("run %d: %d flushes until it ran, %d until it was final:\n%s", round, len(launch), len(all), strings.Join(all, "\n"))
		if len(launch) == 0 || len(launch) > 4 || len(all) > 6 {
			t.Errorf("run %d: %d flushes until it ran, %d until it was final; at most 4 and 6 are meant", round, len(launch), len(all))
		}
	}
}

// What a warm launch costs on the host alone: submit, exec of true, its end pushed.
func BenchmarkServeRun(b *testing.B) {
	s := newSite(b)
	c := s.serve()
	watch := c.send(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 60_000}))
	var launched time.Duration
	for b.Loop() {
		sub := s.argv("true")
		began := time.Now()
		c.must(wire.VerbSubmit, sub, nil)
		launched += time.Since(began)
		for final := false; !final; {
			for _, run := range c.pushed(watch).Runs {
				final = final || run.RunID == sub.RunID && s.verify(sub.RunID, run.Record).State.Final()
			}
		}
	}
	b.ReportMetric(float64(launched.Microseconds())/float64(b.N), "µs/launch")
}

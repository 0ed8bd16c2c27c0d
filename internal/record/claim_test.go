package record

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/longstop/longstop"
)

// Law 5: whoever races for a key, by claims and voids, one gets it, and all learn who.
func TestLaw5OneKeyOneClaim(t *testing.T) {
	t.Parallel()
	f := folder(t)
	for round := range 40 {
		key := fmt.Sprint("key ", round)
		results := make(chan Claim, 12)
		start := make(chan struct{})
		var racers sync.WaitGroup
		for i := range cap(results) {
			racers.Go(func() {
				own, err := Open(f.Dir())
				if err != nil {
					t.Error(err)
					return
				}
				defer own.Close()
				claim, err := race(own, key, i%4 == 3, start)
				if err != nil {
					t.Error(err)
				}
				results <- claim
			})
		}
		close(start)
		racers.Wait()
		close(results)
		winners, runs := 0, map[longstop.RunID]bool{}
		for claim := range results {
			if !claim.Found {
				t.Errorf("round %d: a racer learnt nothing", round)
			}
			if claim.Mine {
				winners++
			}
			runs[claim.RunID] = true
		}
		if winners != 1 || len(runs) != 1 {
			t.Fatalf("round %d: %d winners, runs %v", round, winners, runs)
		}
		checkOneClaim(t, f, key)
	}
}

func race(f *Folder, key string, void bool, start chan struct{}) (Claim, error) {
	if void {
		<-start
		return f.Void(key, "test")
	}
	run, err := f.Build(submission(key))
	if err != nil {
		return Claim{}, err
	}
	defer run.Close()
	<-start
	return f.Claim(run, key)
}

// checkOneClaim checks that nothing is left of those who lost a key.
func checkOneClaim(t *testing.T, f *Folder, key string) {
	t.Helper()
	claim, err := f.Find(key)
	must(t, err)
	unresolved, err := f.Unresolved()
	must(t, err)
	runs, err := names(f.runs)
	must(t, err)
	claims, err := names(f.claims)
	must(t, err)
	for _, id := range unresolved {
		if c, err := f.claim(string(id)); err != nil || !f.claimed(id) {
			t.Errorf("unresolved %s is not claimed: %+v, %v", id, c, err)
		}
	}
	if len(runs) != len(unresolved) {
		t.Errorf("%d run folders for %d runs", len(runs), len(unresolved))
	}
	for _, name := range claims {
		if strings.HasPrefix(name, "void.") {
			t.Errorf("%s was left", name)
		}
	}
	if !claim.Void {
		run, err := f.Run(claim.RunID)
		must(t, err)
		defer run.Close()
		if _, _, err := run.Read(); !errors.Is(err, ErrNoRecord) {
			t.Errorf("the claimed run: %v", err)
		}
		if entries, _ := names(run.dir); len(entries) != 3 {
			t.Errorf("the run's folder has %v, want request, final.reserved and final.spare", entries)
		}
	}
}

// The same among processes.
func TestLaw5OneKeyOneClaimAmongProcesses(t *testing.T) {
	t.Parallel()
	f := folder(t)
	const racers = 6
	var answers []*bufio.Reader
	var starters []*os.File
	for range racers {
		cmd := helper(t, "claim", f.Dir(), "k")
		in, start, err := os.Pipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		cmd.Stdin = in
		must(t, cmd.Start())
		in.Close()
		t.Cleanup(func() { start.Close(); cmd.Wait() })
		answers, starters = append(answers, bufio.NewReader(out)), append(starters, start)
	}
	for _, answer := range answers {
		if line, _ := answer.ReadString('\n'); line != "ready\n" {
			t.Fatalf("a helper said %q", line)
		}
	}
	for _, start := range starters {
		start.WriteString("\n")
	}
	winners, runs := 0, map[string]bool{}
	for _, answer := range answers {
		line, _ := answer.ReadString('\n')
		words := strings.Fields(line)
		if len(words) != 3 || words[2] != "<nil>" {
			t.Fatalf("a helper said %q", line)
		}
		if words[0] == "true" {
			winners++
		}
		runs[words[1]] = true
	}
	if winners != 1 || len(runs) != 1 {
		t.Errorf("%d winners, runs %v", winners, runs)
	}
	checkOneClaim(t, f, "k")
}

// The same submit sent twice, at once or after a while, has one run.
func TestOneSubmitSentTwice(t *testing.T) {
	t.Parallel()
	f := folder(t)
	for round := range 20 {
		key := fmt.Sprint("key ", round)
		sub := submission(key)
		winners := make(chan bool, 8)
		for range cap(winners) {
			go func() {
				run, err := f.Build(sub)
				if err != nil {
					t.Error(err)
					winners <- false
					return
				}
				defer run.Close()
				claim, err := f.Claim(run, key)
				if err != nil || claim.RunID != sub.RunID {
					t.Errorf("claim %+v, %v", claim, err)
				}
				winners <- claim.Mine
			}()
		}
		n := 0
		for range cap(winners) {
			if <-winners {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d winners", n)
		}
		checkOneClaim(t, f, key)
	}
}

func TestWhatAKeyHas(t *testing.T) {
	t.Parallel()
	f := folder(t)
	if claim, err := f.Find("k"); err != nil || claim.Found {
		t.Errorf("a key that nobody claimed: %+v, %v", claim, err)
	}
	run := claimed(t, f, "k")
	for name, what := range map[string]func() (Claim, error){
		"find": func() (Claim, error) { return f.Find("k") },
		"void": func() (Claim, error) { return f.Void("k", "too late") },
	} {
		claim, err := what()
		if err != nil || !claim.Found || claim.Mine || claim.Void || claim.RunID != run.ID() || claim.Digest != "sha256:1" {
			t.Errorf("%s of a claimed key: %+v, %v", name, claim, err)
		}
		if err := claim.Refusal("sha256:1"); err != nil {
			t.Errorf("%s: the same request is refused: %v", name, err)
		}
		if err := claim.Refusal("sha256:2"); longstop.CodeOf(err) != longstop.CodeKeyConflict || !strings.Contains(err.Error(), "act_1") {
			t.Errorf("%s: another request: %v", name, err)
		}
	}
	void, err := f.Void("void", "the gateway gave up")
	if err != nil || !void.Found || !void.Mine || !void.Void {
		t.Errorf("void: %+v, %v", void, err)
	}
	again, err := f.Void("void", "again")
	if err != nil || !again.Void || again.Mine || again.Reason != "the gateway gave up" {
		t.Errorf("void of a void key: %+v, %v", again, err)
	}
	late, err := f.Build(submission("void"))
	must(t, err)
	defer late.Close()
	claim, err := f.Claim(late, "void")
	if err != nil || claim.Mine || !claim.Void {
		t.Errorf("a submit after the void: %+v, %v", claim, err)
	}
	if err := claim.Refusal("sha256:1"); longstop.CodeOf(err) != longstop.CodeKeyVoid {
		t.Errorf("a submit after the void: %v", err)
	}
	if ids, _ := f.Unresolved(); len(ids) != 1 {
		t.Errorf("unresolved: %v", ids)
	}
	if _, err := f.Run(late.ID()); !errors.Is(err, ErrNoRun) {
		t.Errorf("the refused run: %v", err)
	}
}

func TestADamagedClaimIsNeverAFreeKey(t *testing.T) {
	t.Parallel()
	f := folder(t)
	claimed(t, f, "k")
	must(t, os.WriteFile(f.Path("claims", KeyHash("k")), []byte("garbage"), 0600))
	if _, err := f.Find("k"); longstop.CodeOf(err) != longstop.CodeUnreadable {
		t.Errorf("find: %v", err)
	}
	if _, err := f.Void("k", ""); longstop.CodeOf(err) != longstop.CodeUnreadable {
		t.Errorf("void: %v", err)
	}
	run, err := f.Build(submission("k"))
	must(t, err)
	defer run.Close()
	if claim, err := f.Claim(run, "k"); longstop.CodeOf(err) != longstop.CodeUnreadable || claim.Mine {
		t.Errorf("claim: %+v, %v", claim, err)
	}
}

func TestARunIDBelongsToOneKey(t *testing.T) {
	t.Parallel()
	f := folder(t)
	first := claimed(t, f, "k")
	sub := submission("other")
	sub.RunID = first.ID()
	run, err := f.Build(sub)
	must(t, err)
	defer run.Close()
	if _, err := f.Claim(run, "other"); longstop.CodeOf(err) != longstop.CodeKeyConflict {
		t.Errorf("claim: %v", err)
	}
	if claim, err := f.Find("other"); err != nil || claim.Found {
		t.Errorf("find: %+v, %v", claim, err)
	}
	if claim, err := f.Find("k"); err != nil || claim.RunID != first.ID() {
		t.Errorf("find: %+v, %v", claim, err)
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	f := folder(t)
	sub := submission("k")
	sub.RunID = "run_../../../etc"
	if _, err := f.Build(sub); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("a run id that is a path: %v", err)
	}
	sub = submission("")
	if _, err := f.Build(sub); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("no key: %v", err)
	}
	sub = submission("k")
	sub.Request.StdinBytes = 3
	if _, err := f.Build(sub); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("no standard input: %v", err)
	}
	if entries, _ := names(f.runs); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}

func TestSpooledInput(t *testing.T) {
	t.Parallel()
	f := folder(t)
	sub := submission("k")
	spool := func(offset int64, text string, want int64) {
		t.Helper()
		if n, err := f.Spool(sub.RunID, offset, []byte(text)); err != nil || n != want {
			t.Errorf("spool at %d: %d, %v; want %d", offset, n, err, want)
		}
	}
	spool(0, "hello ", 6)
	spool(6, "world", 11)
	spool(6, "world", 11) // sent again, the answer was lost
	if _, err := f.Spool(sub.RunID, 12, []byte("x")); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("a gap: %v", err)
	}
	sub.Request.StdinBytes = 12
	if _, err := f.Build(sub); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("a byte is missing: %v", err)
	}
	spool(0, "hello world", 11)
	sub.Request.StdinBytes, sub.Request.StdinSHA256 = 11, strings.Repeat("0", 64)
	if _, err := f.Build(sub); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("another hash: %v", err)
	}
	spool(0, "hello world", 11)
	sub.Request.StdinSHA256 = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
	run, err := f.Build(sub)
	must(t, err)
	defer run.Close()
	if data, _ := os.ReadFile(run.Path("stdin")); string(data) != "hello world" {
		t.Errorf("stdin: %q", data)
	}
	again, err := f.Build(sub) // the same submit, sent again
	must(t, err)
	again.Close()
}

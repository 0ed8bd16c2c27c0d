//go:build hosts

package hosts

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop/test/rig"
)

// numbered is so many lines of 16 bytes, each with its number; numberedBytes are bytes of them.
func numbered(from, lines int) string {
	return fmt.Sprintf("seq -f %%015.0f %d %d", from, from+lines-1)
}

func numberedBytes(from, to int64) string {
	var all strings.Builder
	for line := from / 16; line*16 < to; line++ {
		fmt.Fprintf(&all, "%015d\n", line)
	}
	return all.String()[from%16 : from%16+to-from]
}

// A run writes more than is kept while the link is cut: what is followed, and what is kept, is what was written
// but for what is said to be missing, whoever asks.
func TestOutputOverItsBoundOverACutLink(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	r := g.start(t, "run", "--output-max", "64K", "--lease", "5m", h.Name, "-c",
		numbered(0, 5000)+"; while ! [ -e go ]; do sleep 0.05; done; "+numbered(5000, 400_000)+"; touch written; sleep 2; exit 3")
	eventually(t, time.Minute, "the first lines", func() bool { return r.stdout.Len() == 5000*16 })
	h.Cut(t)
	h.Sh(t, "touch /home/deploy/go")
	eventually(t, time.Minute, "the rest to be written", func() bool { return h.Exists(t, "/home/deploy/written") })
	h.Heal(t)
	end := r.end(t, 2*time.Minute)
	a := g.show(t, g.newest(t))
	const total = 405_000 * 16
	if end.status != 3 || len(a.Output.StdoutDropped) != 1 || a.Output.StdoutBytes != total {
		t.Fatalf("%s\n%s", end, pretty(a.Output))
	}
	gap := a.Output.StdoutDropped[0]
	want, next := "", int64(0) // of what was followed: some of the gap may have come before it was one
	for _, said := range regexp.MustCompile(`stdout: bytes ([\d,]+) to ([\d,]+) were not kept on the host \(there were more than --output-max\)`).FindAllStringSubmatch(end.stderr, -1) {
		want += numberedBytes(next, parsed(t, said[1]))
		next = parsed(t, said[2])
	}
	want += numberedBytes(next, total)
	if next <= 5000*16 || sha256.Sum256([]byte(end.stdout)) != sha256.Sum256([]byte(want)) {
		t.Errorf("followed: %d bytes, by what was said %d: %s", len(end.stdout), len(want), end.stderr)
	}
	want = numberedBytes(0, gap.From) + numberedBytes(gap.To, total)
	for _, args := range [][]string{{"logs"}, {"logs", "-f"}} {
		logs := g.must(t, append(args, string(a.ID))...)
		if logs.stdout != want || !strings.Contains(logs.stderr, "stdout: bytes 32,768 to ") {
			t.Errorf("%d bytes, want %d; %s", len(logs.stdout), len(want), tail([]byte(logs.stderr), 500))
		}
	}
	inside := g.must(t, "logs", "--offset", fmt.Sprint(gap.From+1000), string(a.ID))
	if inside.stdout != numberedBytes(gap.To, total) {
		t.Errorf("from within the gap: %d bytes", len(inside.stdout))
	}
}

// parsed is a number as people are shown it.
func parsed(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A full disk takes a part of the output and all of the result; which part is said.
func TestC121OutputOnAFullDisk(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t, rig.SmallDisk("6m", 100)), newGateway(t)
	g.enrol(t, h, "--state-dir", "/srv/small/state")
	r := g.longstop(t, "run", h.Name, "-c", numbered(0, 600_000)+"; exit 4")
	a := g.show(t, g.newest(t))
	if r.status != 4 || len(a.Output.StdoutDropped) != 1 || a.Output.StdoutDropped[0].Reason != "ENOSPC" || a.Output.StdoutDropped[0].To != 600_000*16 {
		t.Fatalf("%s\n%s", r, pretty(a.Output))
	}
	if want := numberedBytes(0, a.Output.StdoutDropped[0].From); r.stdout != want || !strings.Contains(r.stderr, "disk was full") {
		t.Errorf("%d bytes, want %d: %s", len(r.stdout), len(want), tail([]byte(r.stderr), 500))
	}
}

// C068, on a host: a terminal has both streams, and the record says so.
func TestC068TerminalOnAHost(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	r := g.longstop(t, "run", "--pty", h.Name, "-c", "tty >/dev/null && echo out; echo err >&2; stty size; cat; exit 5")
	a := g.show(t, g.newest(t))
	if r.status != 5 || r.stdout != "out\r\nerr\r\n24 80\r\n" || !a.Output.Merged || a.Output.StderrBytes != 0 {
		t.Errorf("%s\n%s", r, pretty(a.Output))
	}
}

// What released processes write later is followed until they are gone, with a mark where the run ended.
func TestReleasedOutputIsFollowed(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	r := g.longstop(t, "run", "--leftover", "release", h.Name, "-c", "(while ! [ -e /tmp/$LONGSTOP_RUN_ID ]; do sleep 0.05; done; echo late) & echo in time")
	a := g.show(t, g.newest(t))
	if r.status != 0 || r.stdout != "in time\n" || !a.Output.AfterEnd || a.Output.StdoutAtEnd != 8 {
		t.Fatalf("%s\n%s", r, pretty(a.Output))
	}
	logs := g.start(t, "logs", "-f", string(a.ID))
	eventually(t, time.Minute, "what came in time", func() bool { return logs.stdout.Len() == 8 })
	if logs.over() {
		t.Errorf("it ended while somebody could still write: %s", logs.end(t, 0))
	}
	h.Sh(t, "touch /tmp/"+string(a.RunID))
	end := logs.end(t, time.Minute)
	const mark = "the run ended at byte 8"
	if end.stdout != "in time\nlate\n" || !strings.Contains(end.stderr, mark) {
		t.Errorf("%s", end)
	}
	if again := g.must(t, "logs", string(a.ID)); again.stdout != end.stdout || !strings.Contains(again.stderr, mark) {
		t.Errorf("%s", again)
	}
}

// C074: what a run that goes on has written can be read, and when it wrote last; of one that keeps it to itself
// nothing can, and that is said. With a terminal it does not.
func TestC074LastOutputOfARunThatGoesOn(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, h.Name, "-c", "echo important; exec sleep 60")
	var logs result
	eventually(t, time.Minute, "its line", func() bool {
		logs = g.must(t, "logs", string(id))
		return logs.stdout == "important\n"
	})
	if !strings.Contains(logs.stderr, "goes on") || !strings.Contains(logs.stderr, "it wrote to stdout last at ") {
		t.Errorf("%s", logs)
	}
	stamped := g.must(t, "logs", "-t", string(id))
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d) important\n$`).MatchString(stamped.stdout) {
		t.Errorf("%s", stamped)
	}
	g.must(t, "cancel", string(id))

	const buffers = `import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("important"); open("/tmp/" + os.environ["LONGSTOP_RUN_ID"], "w"); time.sleep(60)`
	for _, flags := range [][]string{nil, {"--pty"}} {
		id := g.launch(t, append(flags, h.Name, "--", "python3", "-c", buffers)...)
		eventually(t, time.Minute, "its print", func() bool { return h.Exists(t, "/tmp/"+string(g.show(t, id).RunID)) })
		if flags == nil {
			if logs := g.must(t, "logs", string(id)); logs.stdout != "" || !strings.Contains(logs.stderr, "has written nothing to stdout yet") {
				t.Errorf("kept to itself: %s", logs)
			}
		} else {
			eventually(t, time.Minute, "its line", func() bool { return g.must(t, "logs", string(id)).stdout == "important\r\n" })
		}
		g.must(t, "cancel", string(id)) // TERM comes first, and has it write what it kept
		if logs := g.must(t, "logs", string(id)); !strings.HasPrefix(logs.stdout, "important") {
			t.Errorf("after TERM: %s", logs)
		}
	}
}

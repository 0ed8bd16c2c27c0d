package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/longstop/longstop"
)

// host is this host, a rig's with systemd, on which Longstop is measured beside others that have a host do
// work that nobody waits beside. All of them are asked here, with no SSH between.
type host struct {
	*bench
	options
	site  *site
	peers []party
	taken int // measures of a kind that needs names of its own
}

// measureHere measures on this host and prints rows as they come.
func measureHere(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp(inside, "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h := &host{bench: &bench{dir: dir}, options: o}
	if h.site, err = openSite(ctx, h.runner(), h.path("state"), 0); err != nil {
		return err
	}
	defer h.site.close()
	if err := h.findPeers(ctx); err != nil {
		return err
	}
	fmt.Printf("On the host's side: no SSH between. Medians of %d rounds, taken in turn.\n\n%s\n", h.rounds, header)
	for _, measure := range []struct {
		name string
		take func(context.Context) ([]row, error)
	}{{"launch", h.launches}, {"life", h.lives}, {"end", h.ends}, {"memory", h.idle}, {"cancel", h.cancels}, {"flushes", h.slowFlushes},
		{"finished", h.amongFinished}, {"output", h.moved}} {
		if o.only != "" && o.only != measure.name {
			continue
		}
		rows, err := measure.take(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", measure.name, err)
		}
		fmt.Println(join(rows))
	}
	return nil
}

func (h *host) runner() string { return filepath.Join(inside, "longstop-runner") }

func (h *host) findPeers(ctx context.Context) error {
	container, err := conmon(h.bench)
	if err != nil {
		return err
	}
	spooler, err := taskSpooler(h.bench)
	if err != nil {
		return fmt.Errorf("tsp: %w", err)
	}
	job, err := ansible(ctx, h.bench)
	if err != nil {
		return err
	}
	h.peers = []party{container, systemdRun(h.bench), job, spooler}
	return nil
}

// inUnit asks for a run in a unit of systemd's.
var inUnit = longstop.Request{Lifetime: longstop.Detached, Owner: longstop.OwnerSystemd}

// launches is from the asking to the answer that the work runs: of ours, that it is on disk that it does.
func (h *host) launches(ctx context.Context) ([]row, error) {
	parties := append([]party{ours(h.site, longstop.Request{}), oursAlone(h.site), ours(h.site, inUnit)}, h.peers...)
	ms, err := timed(h.rounds, parties, func(p party) (time.Duration, error) { return launched(ctx, p) })
	if err != nil {
		return nil, err
	}
	rows := beside("launch to durable `running`", "its own answer", ms[0], ms[3:], h.peers, "", "ms")
	rows = append(rows, beside("the same, by a process for each", "its own answer", ms[1], ms[3:], h.peers, "", "ms")...)
	return append(rows, row{"the same, in a systemd unit", "systemd-run: its own answer", ms[2], ms[4], "ms", ""}), nil
}

// launched starts work that is still there when it is told of: what is over at once is answered with its end.
func launched(ctx context.Context, p party) (time.Duration, error) {
	began := time.Now()
	w, err := p.launch(ctx, "sleep", "0.1")
	took := time.Since(began)
	return took, finish(w, err)
}

// lives is from the asking until the exit status is there for whoever looks.
func (h *host) lives(ctx context.Context) ([]row, error) {
	parties := append([]party{ours(h.site, longstop.Request{}), ours(h.site, inUnit)}, h.peers...)
	ms, err := timed(h.rounds, parties, func(p party) (time.Duration, error) { return lived(ctx, p) })
	if err != nil {
		return nil, err
	}
	rows := beside("whole life of `true`", "", ms[0], ms[2:], h.peers, "", "ms")
	return append(rows, row{"the same, in a systemd unit", "systemd-run", ms[1], ms[3], "ms", ""}), nil
}

func lived(ctx context.Context, p party) (time.Duration, error) {
	began := time.Now()
	w, err := p.watched(ctx, "true")
	if err == nil {
		err = w.ended()
	}
	took := time.Since(began)
	w.ended = nil
	return took, finish(w, err)
}

// ends is from the moment at which the work is let end until its exit status is there for whoever looks.
func (h *host) ends(ctx context.Context) ([]row, error) {
	fifo := h.path("until")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return nil, err
	}
	parties := append([]party{ours(h.site, longstop.Request{})}, h.peers...)
	ms, err := timed(h.rounds, parties, func(p party) (time.Duration, error) {
		w, err := p.watched(ctx, "cat", fifo)
		if err != nil {
			return 0, err
		}
		held, err := writer(fifo)
		if err != nil {
			return 0, err
		}
		time.Sleep(2 * rest)
		began := time.Now()
		held.Close()
		err = w.ended()
		took := time.Since(began)
		w.ended = nil
		return took, finish(w, err)
	})
	if err != nil {
		return nil, err
	}
	return beside("end of work to final record", "", ms[0], ms[1:], h.peers, "", "ms"), nil
}

// writer opens a FIFO that somebody reads.
func writer(fifo string) (file *os.File, err error) {
	var opened error
	err = poll("a reader of "+fifo, func() bool {
		file, opened = os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return opened == nil
	})
	return file, errors.Join(err, opened)
}

// finish waits for work that is not, or no longer, measured, and clears it away.
func finish(w work, err error) error {
	for _, do := range []func() error{w.ended, w.clear} {
		if err == nil && do != nil {
			err = do()
		}
	}
	return err
}

// idle is what one idle run costs in memory beside its work: the mean of ten.
func (h *host) idle(ctx context.Context) ([]row, error) {
	mine, err := idlePSS(ctx, ours(h.site, longstop.Request{}))
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, p := range h.peers {
		theirs, err := idlePSS(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		r := row{"PSS per idle run", p.name, mine, theirs, "MB", ""}
		if p.name == "conmon" {
			r.aim = "≤ 1.0"
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// idlePSS starts ten times work that does nothing and returns what the party has beside each, in MB, more
// than before.
func idlePSS(ctx context.Context, p party) (mean float64, err error) {
	const runs = 10
	before := 0.0
	if p.standing {
		if before, err = pssSum(p.owns); err != nil {
			return 0, err
		}
	}
	var started []work
	for range runs {
		w, err := p.launch(ctx, "sleep", "60")
		if err != nil {
			return 0, err
		}
		started = append(started, w)
	}
	time.Sleep(p.settles)
	sum, err := pssSum(p.owns)
	for _, w := range started {
		if w.stop != nil {
			err = errors.Join(err, w.stop(), finish(w, nil))
		}
	}
	return max(0, sum-before) / runs, err
}

// pssSum is the memory of all processes with such a command line, in MB.
func pssSum(of func(cmdline string) bool) (sum float64, err error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, p := range processes {
		cmdline, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || !of(string(cmdline)) {
			continue
		}
		pss, err := pssOf(p)
		if err != nil {
			return 0, err
		}
		sum += pss
	}
	return sum, nil
}

// cancels is from the asking to stop until a hundred setsid'd processes are gone, and, of ours, until
// that is proven and on disk.
func (h *host) cancels(ctx context.Context) ([]row, error) {
	poor, err := openSite(ctx, h.runner(), "/home/deploy/"+filepath.Base(h.dir), deploy)
	if err != nil {
		return nil, err
	}
	defer poor.close()
	alone := cgroupKill("/sys/fs/cgroup")
	kinds := []party{ours(h.site, longstop.Request{}), ours(h.site, inUnit), ours(poor, longstop.Request{}), h.peers[0], h.peers[1], alone}
	ms, err := timed(max(5, h.rounds/3), kinds, func(p party) (time.Duration, error) { return h.stopHundred(ctx, p) })
	if err != nil {
		return nil, err
	}
	const what = "cancel of 100 setsid'd processes to empty"
	rows := []row{
		{what + ", `cgroup`", alone.name, ms[0], ms[5], "ms", "≤ 2.0"},
		{what + ", `systemd`", alone.name, ms[1], ms[5], "ms", "≤ 2.0"},
		{what + ", `tree`", alone.name, ms[2], ms[5], "ms", "≤ 2.0"},
		{what + ", `cgroup`", "conmon: `crun kill`, a PID namespace", ms[0], ms[3], "ms", ""},
		{what + ", `systemd`", "`systemctl stop`", ms[1], ms[4], "ms", ""},
	}
	left, err := h.leftOfHundred(ctx, h.peers[3])
	return append(rows, row{"of 100 setsid'd processes alive after a stop", "task-spooler: `tsp -k`", 0, float64(left), "left", ""}), err
}

// deploy is a user of rig hosts who may do nothing that others may not.
const deploy = 1777

// hundred starts a hundred processes, each a session of its own, that say so and hold the file open.
const hundred = `exec 9>%s
for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4 5 6 7 8 9 10; do setsid sh -c 'echo >&9; exec sleep 60' & done; done
exec sleep 60
`

// startHundred starts them by way of a party. The FIFO returned is held open by each of them.
func (h *host) startHundred(ctx context.Context, p party) (work, *os.File, error) {
	h.taken++
	name := fmt.Sprintf("/var/tmp/hundred-%s-%d", filepath.Base(h.dir), h.taken)
	script := name + ".sh"
	err := errors.Join(syscall.Mkfifo(name, 0o600), os.Chmod(name, 0o622), os.WriteFile(script, fmt.Appendf(nil, hundred, name), 0o644))
	if err != nil {
		return work{}, nil, err
	}
	held, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return work{}, nil, err
	}
	w, err := p.launch(ctx, "sh", script)
	if err == nil {
		err = lines(held, 100)
	}
	time.Sleep(100 * time.Millisecond)
	return w, held, err
}

// stopHundred stops a hundred processes: the last of them is gone when nobody has the FIFO open any more.
func (h *host) stopHundred(ctx context.Context, p party) (time.Duration, error) {
	w, held, err := h.startHundred(ctx, p)
	if err != nil {
		return 0, err
	}
	defer held.Close()
	began := time.Now()
	err = w.stop()
	held.SetReadDeadline(time.Now().Add(2 * time.Second))
	if _, left := held.Read(make([]byte, 1)); left != io.EOF {
		return 0, fmt.Errorf("some of the hundred are left: %w", left)
	}
	return time.Since(began), finish(work{clear: w.clear}, err)
}

// leftOfHundred is how many of a hundred processes live a second after the party has stopped its work.
func (h *host) leftOfHundred(ctx context.Context, p party) (int, error) {
	w, held, err := h.startHundred(ctx, p)
	if err != nil {
		return 0, err
	}
	defer held.Close()
	if err := w.stop(); err != nil {
		return 0, err
	}
	time.Sleep(time.Second)
	holders, err := filepath.Glob("/proc/[0-9]*/fd/9")
	left := 0
	for _, fd := range holders {
		if name, _ := os.Readlink(fd); name == held.Name() {
			left++
		}
	}
	return left, err
}

// lines reads so many lines of one byte from a FIFO that somebody may not have opened yet.
func lines(fifo *os.File, want int) error {
	fifo.SetReadDeadline(time.Now().Add(10 * time.Second))
	for buf, got := make([]byte, want), 0; got < want; {
		n, err := fifo.Read(buf)
		if got += n; err != nil && (err != io.EOF || got > 0) {
			return fmt.Errorf("%d of %d began: %w", got, want, err)
		}
		if n == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// timed measures each party in turn, so that whatever else the machine does falls on all of them, and
// returns the medians in milliseconds. The first two rounds warm up.
func timed(rounds int, parties []party, measure func(party) (time.Duration, error)) ([]float64, error) {
	times := make([][]float64, len(parties))
	for round := range rounds + 2 {
		for i, p := range parties {
			if p.slow && round%4 != 2 {
				continue
			}
			time.Sleep(2 * rest)
			took, err := measure(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			if round >= 2 {
				times[i] = append(times[i], float64(took.Microseconds())/1000)
			}
		}
	}
	medians := make([]float64, len(parties))
	for i := range times {
		medians[i] = median(times[i])
	}
	return medians, nil
}

// beside is a row for each peer.
func beside(what, how string, mine float64, theirs []float64, peers []party, aim, unit string) []row {
	var rows []row
	for i, p := range peers {
		against := p.name
		if how != "" {
			against += ": " + how
		}
		rows = append(rows, row{what, against, mine, theirs[i], unit, aim})
	}
	return rows
}

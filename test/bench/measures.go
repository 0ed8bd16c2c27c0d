package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/sshlink"
)

func cut(e string) (name, value string, ok bool) { return strings.Cut(e, "=") }

func latency(ctx context.Context, w *world, n int) ([]row, error) {
	ms, err := inTurn(n,
		func() *exec.Cmd { return w.longstop(ctx, "run", "bench", "--", "true") },
		func() *exec.Cmd { return w.longstop(ctx, "run", "--own-channel", "bench", "--", "true") },
		func() *exec.Cmd { return w.ssh(ctx, "true") },
		func() *exec.Cmd { return w.sshCold(ctx, "true") },
		func() *exec.Cmd { return w.longstop(ctx, "version") },
	)
	if err != nil {
		return nil, err
	}
	return []row{
		{"`longstop run H -- true`, warm", "`ssh` through a ControlMaster", ms[0], ms[2], "ms", "≤ 1.2, then 0.8"},
		{"the same, `--own-channel`", "`ssh` through a ControlMaster", ms[1], ms[2], "ms", "≤ 1.5"},
		{"`longstop run H -- true`, warm", "cold `ssh`", ms[0], ms[3], "ms", "≤ 0.1"},
		{"start of the command alone", "`ssh` through a ControlMaster", ms[4], ms[2], "ms", ""},
	}, nil
}

// throughput compares launches that are durable on both sides with bare exec requests, eight at once.
func throughput(ctx context.Context, w *world, n int) ([]row, error) {
	link, err := (&sshlink.OpenSSH{Dir: filepath.Join(w.dir, "raw"), MaxSessions: 60}).Dial(ctx, sshlink.Target{Name: "bench", SSHConfig: w.server.SSHConfig})
	if err != nil {
		return nil, fmt.Errorf("dial for raw exec: %w", err)
	}
	defer link.Close()
	raw, err := perSecond(8, n, func() error {
		channel, err := link.Exec(ctx, "true")
		if err != nil {
			return err
		}
		defer channel.Close()
		if exit := channel.Wait(); exit.State != longstop.SSHExited || exit.Status != 0 {
			return fmt.Errorf("raw exec of true: %+v", exit)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	ours, err := perSecond(8, n, func() error { return launch(ctx, w) })
	if err != nil {
		return nil, err
	}
	return []row{{"whole runs of `true` per second, 8 at once", "raw exec of `true` over one connection", ours, raw, "/s", "≥ 0.6"}}, nil
}

// perSecond calls f from workers goroutines, rounds times each.
func perSecond(workers, rounds int, f func() error) (float64, error) {
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	began := time.Now()
	for range workers {
		all.Go(func() {
			for range rounds {
				if err := f(); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(workers*rounds) / time.Since(began).Seconds(), nil
}

// output compares followed streams with ssh's own: medians of rounds taken in turn, stdout to /dev/null.
func output(ctx context.Context, w *world, _ int) ([]row, error) {
	const rounds, size = 5, 256 << 20
	blob := filepath.Join(w.dir, "blob")
	if err := exec.CommandContext(ctx, "dd", "if=/dev/urandom", "of="+blob, "bs=1M", "count=256", "status=none").Run(); err != nil {
		return nil, fmt.Errorf("make %d bytes: %w", size, err)
	}
	embedded := w.server.User + "@bench" // a host of its own, by another name
	add := w.longstop(ctx, "host", "add", embedded, "--ssh-config", w.server.SSHConfig, "--transport", "embedded", "--state-dir", filepath.Join(w.dir, "embedded"))
	if out, err := add.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("longstop host add --transport embedded: %w: %s", err, out)
	}
	finished := w.longstop(ctx, "run", "-d", "bench", "--", "cat", blob)
	id, err := finished.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", finished.Args, err)
	}
	if err := w.longstop(ctx, "wait", strings.TrimSpace(string(id))).Run(); err != nil {
		return nil, fmt.Errorf("longstop wait: %w", err)
	}
	commands := [][]string{{"run", "--quiet", "bench", "--", "cat", blob}, {"run", "--quiet", "--own-channel", "bench", "--", "cat", blob},
		{"run", "--quiet", embedded, "--", "cat", blob}, {"logs", strings.TrimSpace(string(id))}}
	rates := make([][]float64, len(commands)+1)
	for range rounds {
		for i := range rates {
			cmd := w.ssh(ctx, "cat", blob)
			if i < len(commands) {
				cmd = w.longstop(ctx, commands[i]...)
			}
			began := time.Now()
			if err := cmd.Run(); err != nil { // stdout is /dev/null
				return nil, fmt.Errorf("%v: %w", cmd.Args, err)
			}
			rates[i] = append(rates[i], float64(size)/1e6/time.Since(began).Seconds())
		}
	}
	theirs := median(rates[len(commands)])
	var rows []row
	for i, what := range []string{"output followed to the client", "the same, `--own-channel`", "the same, embedded transport", "output of a finished run (`logs`)"} {
		rows = append(rows, row{what, "`ssh H cat`", median(rates[i]), theirs, "MB/s", "≥ 0.8"})
	}
	return rows, nil
}

var pssLine = regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB`)

// pssOf is a process's proportional set size in MB (smaps_rollup).
func pssOf(process string) (float64, error) {
	rollup, err := os.ReadFile(filepath.Join(process, "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	m := pssLine.FindSubmatch(rollup)
	if m == nil {
		return 0, fmt.Errorf("%s: no Pss line", process)
	}
	kb, err := strconv.ParseFloat(string(m[1]), 64)
	return kb / 1024, err
}

// flushes repeats the latency with two milliseconds added to each flush on either side. What it
// grows by, over two, counts the flushes that a caller waits for.
func flushes(ctx context.Context, bin string, n int) ([]row, error) {
	var commands []func() *exec.Cmd
	for _, delay := range []string{"0", "2"} {
		w, err := newWorld(ctx, bin, []string{"LONGSTOP_FLUSH_DELAY_MS=" + delay})
		if err != nil {
			return nil, fmt.Errorf("with %s ms a flush: %w", delay, err)
		}
		defer w.close()
		commands = append(commands, func() *exec.Cmd { return w.longstop(ctx, "run", "bench", "--", "true") })
	}
	ms, err := inTurn(n, commands...)
	if err != nil {
		return nil, err
	}
	return []row{
		{"`longstop run H -- true`, 2 ms added to each flush", "the same without", ms[1], ms[0], "ms", ""},
		{what: "flushes that the caller waits for", ours: (ms[1] - ms[0]) / 2, unit: "flushes", aim: "≤ 4"},
	}, nil
}

// launch starts one run of `true` over the API, as the command does, and follows it to its end.
func launch(ctx context.Context, w *world) error {
	c := client.Client{Home: w.home}
	follow, err := c.Run(ctx, longstop.RunRequest{Host: "bench", Request: longstop.Request{Argv: []string{"true"}},
		By: longstop.Requester{Name: "bench", Via: "http"}}, client.Offsets{Stdout: -1, Stderr: -1})
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	defer follow.Close()
	var last longstop.Action
	for {
		event, err := follow.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("launch: %w", err)
		}
		if event.Kind == longstop.FollowAction {
			if err := json.Unmarshal(event.Data, &last); err != nil {
				return err
			}
		}
	}
	if last.Outcome != longstop.OutcomeSucceeded {
		return fmt.Errorf("launch: %s ended %s", last.ID, last.Outcome)
	}
	return nil
}

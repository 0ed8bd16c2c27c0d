//go:build faults

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether the build can be told to fail.
const Enabled = true

// plan is one entry of LONGSTOP_FAULT.
type plan struct {
	pass     int // the pass that it happens at, from 1
	act      func()
	err      error // of a flush
	kind, ms int64 // the same, for Planned
}

var plans, planError = parse(os.Getenv("LONGSTOP_FAULT"))

var (
	mu     sync.Mutex
	passed = map[string]int{}
)

func parse(list string) (map[string][]plan, error) {
	plans := map[string][]plan{}
	for _, entry := range strings.Split(list, ",") {
		if entry == "" {
			continue
		}
		where, what, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("LONGSTOP_FAULT: %q: want point[:n]=act", entry)
		}
		p := plan{pass: 1}
		point, pass, counted := strings.Cut(where, ":")
		if counted {
			n, err := strconv.Atoi(pass)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("LONGSTOP_FAULT: %q: want a count of passes from 1", entry)
			}
			p.pass = n
		}
		act, arg, _ := strings.Cut(what, ":")
		p.kind = int64((act + " ")[0])
		switch act {
		case "kill":
			p.act = func() { syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
		case "stop":
			p.act = func() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
		case "delay":
			ms, err := strconv.Atoi(arg)
			if err != nil {
				return nil, fmt.Errorf("LONGSTOP_FAULT: %q: want delay:ms", entry)
			}
			p.ms = int64(ms)
			p.act = func() { time.Sleep(time.Duration(ms) * time.Millisecond) }
		case "eio":
			p.act, p.err = func() {}, syscall.EIO
		default:
			return nil, fmt.Errorf("LONGSTOP_FAULT: %q: want kill, stop, delay:ms or eio", entry)
		}
		plans[point] = append(plans[point], p)
	}
	return plans, nil
}

// At passes a point, and does what the environment has planned for this pass of it.
func At(point string) { happen(point) }

func happen(point string) (err error) {
	if planError != nil {
		panic(planError) // a plan that cannot be read must not look like a test that passed
	}
	if len(plans[point]) == 0 {
		return nil
	}
	mu.Lock()
	passed[point]++
	n := passed[point]
	mu.Unlock()
	for _, p := range plans[point] {
		if p.pass == n {
			p.act()
			err = p.err
		}
	}
	return err
}

// Flush passes a flush, just before it: logged and delayed as the environment says, then a point
// like any other, at which it may be planned to fail.
func Flush(point string) error {
	if path := os.Getenv("LONGSTOP_FLUSH_LOG"); path != "" {
		if log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0600); err == nil {
			fmt.Fprintf(log, "%d %s\n", os.Getpid(), point)
			log.Close()
		}
	}
	if ms, err := strconv.Atoi(os.Getenv("LONGSTOP_FLUSH_DELAY_MS")); err == nil && ms > 0 {
		time.Sleep(time.Duration(ms) * time.Millisecond)
	}
	return happen(point)
}

// StandIn is where a file of the kernel's is to be looked for: with LONGSTOP_FAULT_FILES=folder, below
// that, where a test has put a plain one.
func StandIn(path string) string { return filepath.Join("/", os.Getenv("LONGSTOP_FAULT_FILES"), path) }

// Planned is what a process that can call nothing should do at a point: 'k'ill, 's'top or 'd'elay. It
// is planned for all, or for gates, which are such processes, in LONGSTOP_FAULT_GATE.
func Planned(point string) (kind, ms int64) {
	gates, err := parse(os.Getenv("LONGSTOP_FAULT_GATE"))
	if err != nil {
		panic(err)
	}
	for _, p := range append(plans[point], gates[point]...) {
		return p.kind, p.ms
	}
	return 0, 0
}

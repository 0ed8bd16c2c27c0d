package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// What is measured on the host's side is measured on a host of its own, which has systemd (test/rig). This
// program copies itself there.

// inside is where things are on that host.
const inside = "/var/tmp/bench"

// rigHost is a host that was made for the measures.
type rigHost struct{ dir string }

// measureOnRig boots a host, has itself measure there and prints what it does.
func measureOnRig(ctx context.Context, o options) error {
	h := &rigHost{dir: fmt.Sprintf("/var/tmp/longstop-rig/bench.%d", os.Getpid())}
	if out, err := h.rig(ctx, "check").CombinedOutput(); err != nil {
		return fmt.Errorf("no host to measure on: %w: %s", err, out)
	}
	defer func() { h.rig(context.Background(), "down", "all").Run() }()
	if out, err := h.rig(ctx, "up", "h1").CombinedOutput(); err != nil {
		return fmt.Errorf("rig up: %w: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for name, from := range map[string]string{"bench": self, "longstop-runner": filepath.Join(o.bin, "longstop-runner"),
		"faults/longstop-runner": filepath.Join(o.faults, "longstop-runner")} {
		if err := h.put(ctx, from, filepath.Join(inside, name)); err != nil {
			return err
		}
	}
	measure := h.rig(ctx, "exec", "h1", filepath.Join(inside, "bench"), "-inside", "-n", strconv.Itoa(o.rounds/3), "-only", o.only,
		"-finished", strconv.Itoa(o.finished), "-output", strconv.Itoa(o.megabytes))
	measure.Stdout, measure.Stderr = os.Stdout, os.Stderr
	return measure.Run()
}

func (h *rigHost) rig(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "test/rig/rig", args...)
	cmd.Env = append(os.Environ(), "RIG_DIR="+h.dir, "RIG_OWNER="+strconv.Itoa(os.Getpid()))
	return cmd
}

// put copies a program onto the host.
func (h *rigHost) put(ctx context.Context, from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := h.rig(ctx, "exec", "h1", "sh", "-c", `mkdir -p "${1%/*}" && cat >"$1" && chmod 755 "$1"`, "sh", to)
	cmd.Stdin = file
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("put %s: %w: %s", to, err, strings.TrimSpace(string(out)))
	}
	return nil
}

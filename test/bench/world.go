package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/sshlink/loopback"
)

// world is a server, a home with the server enrolled as "bench", and a ControlMaster for the peer.
type world struct {
	dir     string
	bin     string
	env     []string
	home    client.Home
	server  *loopback.Server
	control string // socket of the peer's master
	master  *exec.Cmd
}

func newWorld(ctx context.Context, bin string, extra []string) (*world, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "longstop-bench-")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, bin: bin, control: filepath.Join(dir, "peer.sock")}
	serverDir := filepath.Join(dir, "sshd")
	if err := os.Mkdir(serverDir, 0o700); err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, e := range extra {
		name, value, _ := cut(e)
		env[name] = value
	}
	w.server, err = loopback.Start(ctx, serverDir, loopback.Options{Alias: "bench", MaxSessions: 64, Env: env})
	if err != nil {
		w.close()
		return nil, err
	}
	if w.home, err = client.FindHome(func(name string) string {
		return map[string]string{"LONGSTOP_HOME": filepath.Join(dir, "home")}[name]
	}); err != nil {
		w.close()
		return nil, err
	}
	w.env = append(os.Environ(), append(extra, "LONGSTOP_HOME="+filepath.Join(dir, "home"))...)
	if err := w.prepare(ctx); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) prepare(ctx context.Context) error {
	add := w.longstop(ctx, "host", "add", "bench", "--ssh-config", w.server.SSHConfig, "--state-dir", filepath.Join(w.dir, "state"))
	add.Stderr = os.Stderr
	if err := add.Run(); err != nil {
		return fmt.Errorf("longstop host add: %w", err)
	}
	w.master = exec.CommandContext(ctx, "ssh", "-F", w.server.SSHConfig, "-M", "-N", "-S", w.control, "bench")
	if err := w.master.Start(); err != nil {
		return fmt.Errorf("start the peer's master: %w", err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for w.ssh(ctx, "true").Run() != nil {
		if time.Now().After(deadline) {
			return fmt.Errorf("the peer's master does not answer")
		}
	}
	return nil
}

func (w *world) close() {
	if w.env != nil {
		w.longstop(context.Background(), "daemon", "stop").Run()
	}
	if w.master != nil && w.master.Process != nil {
		w.master.Process.Kill()
		w.master.Wait()
	}
	if w.server != nil {
		w.server.Stop()
	}
	os.RemoveAll(w.dir)
}

// longstop is one call of the command.
func (w *world) longstop(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "longstop"), args...)
	cmd.Env = w.env
	return cmd
}

// ssh is one call of ssh through the peer's master.
func (w *world) ssh(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ssh", append([]string{"-F", w.server.SSHConfig, "-S", w.control, "bench"}, args...)...)
}

// sshCold is one call of ssh with a connection of its own.
func (w *world) sshCold(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ssh", append([]string{"-F", w.server.SSHConfig, "-o", "ControlPath=none", "bench"}, args...)...)
}

// rest is how long nothing is measured before each command: what the one before leaves to be done
// afterwards (a process to end, the next one to be made ready) is no other one's time.
const rest = 40 * time.Millisecond

// inTurn runs each command n times, one after the other in turn, so that whatever else the machine
// does falls on all of them, and returns each one's median wall time in milliseconds.
func inTurn(n int, commands ...func() *exec.Cmd) ([]float64, error) {
	times := make([][]float64, len(commands))
	for round := range n + 2 {
		for i, command := range commands {
			cmd := command()
			time.Sleep(rest)
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
			}
			if round >= 2 { // the first two warm caches and connections
				times[i] = append(times[i], float64(time.Since(began).Microseconds())/1000)
			}
		}
	}
	medians := make([]float64, len(commands))
	for i := range times {
		medians[i] = median(times[i])
	}
	return medians, nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

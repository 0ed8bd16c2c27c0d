package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// party is one way to have a host do work beside which nobody waits.
type party struct {
	name string
	// launch starts work and returns once the party says that it runs (or, where it says no such
	// thing, that it was taken).
	launch func(ctx context.Context, argv ...string) (work, error)
	// watch starts work whose end somebody will wait for; nil: as launch does.
	watch func(ctx context.Context, argv ...string) (work, error)
	// owns reports whether a process, by its command line, is there because of this party's work: its
	// own processes, not the work.
	owns func(cmdline string) bool
	site *site // of Longstop alone
	// settles is how long idle work is left alone before its memory is looked at.
	settles time.Duration
	// slow parties are measured every fourth round alone.
	slow bool
	// standing says that what it owns is there without work, too.
	standing bool
}

func (p party) watched(ctx context.Context, argv ...string) (work, error) {
	if p.watch != nil {
		return p.watch(ctx, argv...)
	}
	return p.launch(ctx, argv...)
}

// work is what was started: how to wait until its exit status is there for whoever looks, how the
// party stops it, and how what is left of it is cleared away. Each may be nil.
type work struct {
	ended, stop, clear func() error
}

// bench is the folder of the measures and what is installed there.
type bench struct {
	dir    string
	prefix []string // stands before every command of a peer: strace, while flushes are counted
}

func (b *bench) path(name ...string) string {
	return filepath.Join(append([]string{b.dir}, name...)...)
}

// command is one command of a peer.
func (b *bench) command(ctx context.Context, argv ...string) *exec.Cmd {
	argv = append(b.prefix[:len(b.prefix):len(b.prefix)], argv...)
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

// outputOf runs one command and returns what it wrote.
func outputOf(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd.Args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

func (b *bench) run(ctx context.Context, argv ...string) error {
	_, err := outputOf(b.command(ctx, argv...))
	return err
}

// ours is Longstop over a serve channel.
func ours(s *site, request longstop.Request) party {
	return party{name: "Longstop", owns: s.owns, settles: settled, launch: func(_ context.Context, argv ...string) (work, error) {
		request := request
		request.Argv = argv
		id, err := s.submit(request)
		return s.work(id), err
	}}
}

// settled is when a keeper has given up the owner that it had ready, and owners rest.
const settled = 12 * time.Second

// oursAlone is Longstop by a process for each launch, as the peers are asked.
func oursAlone(s *site) party {
	return party{name: "Longstop", owns: s.owns, launch: func(ctx context.Context, argv ...string) (work, error) {
		sub := submission(longstop.Request{Argv: argv})
		return s.work(sub.RunID), s.call(ctx, wire.VerbSubmit, sub, nil)
	}}
}

func (s *site) work(id longstop.RunID) work {
	return work{ended: func() error { return s.ended(id) }, stop: func() error { return s.cancel(id) }}
}

// owns: the folder's keeper, and the owners of its runs.
func (s *site) owns(cmdline string) bool {
	return (strings.Contains(cmdline, "\x00keeper\x00") || strings.Contains(cmdline, "\x00owner\x00")) && strings.Contains(cmdline, s.dir)
}

// conmon is conmon above crun: a container that shares everything with the host but the process ids,
// whose first process takes all others with it. No cgroup, no mounts: the least that both can do.
func conmon(b *bench) (party, error) {
	for _, dir := range []string{"exits", "sockets", "bundles"} {
		if err := os.MkdirAll(b.path("conmon", dir), 0o700); err != nil {
			return party{}, err
		}
	}
	n := 0
	launch := func(ctx context.Context, argv ...string) (work, error) {
		n++
		id := fmt.Sprintf("bench-%d", n)
		if err := b.bundle(id, argv); err != nil {
			return work{}, err
		}
		if err := b.create(ctx, id); err != nil {
			return work{}, err
		}
		w := work{
			ended: func() error {
				return poll("conmon's exit file", func() bool { return exists(b.path("conmon", "exits", id)) })
			},
			stop:  func() error { return b.run(ctx, "crun", "kill", id, "KILL") },
			clear: func() error { return b.run(ctx, "crun", "delete", "--force", id) },
		}
		return w, b.run(ctx, "crun", "start", id)
	}
	return party{name: "conmon", launch: launch, settles: time.Second, owns: func(cmdline string) bool { return strings.HasPrefix(cmdline, "conmon\x00") }}, nil
}

// bundle writes what the runtime is to run.
func (b *bench) bundle(id string, argv []string) error {
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{"args": argv, "cwd": "/", "env": []string{"PATH=" + os.Getenv("PATH")},
			"user": map[string]int{"uid": 0, "gid": 0}},
		"root": map[string]any{"path": "/"}, "mounts": []string{},
		"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}}},
	})
	if err != nil {
		return err
	}
	if err := os.Mkdir(b.path("conmon", "bundles", id), 0o700); err != nil {
		return err
	}
	return os.WriteFile(b.path("conmon", "bundles", id, "config.json"), config, 0o600)
}

// create starts conmon and waits, as podman does, until it says that the container is made.
func (b *bench) create(ctx context.Context, id string) error {
	said, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := b.command(ctx, "conmon", "--cid", id, "--cuuid", id, "--name", id, "--runtime", "/usr/bin/crun", "--runtime-arg=--cgroup-manager=disabled",
		"--bundle", b.path("conmon", "bundles", id), "--container-pidfile", b.path("conmon", "bundles", id, "pid"),
		"--log-path", "k8s-file:"+b.path("conmon", "bundles", id, "log"), "--exit-dir", b.path("conmon", "exits"),
		"--socket-dir-path", b.path("conmon", "sockets"), "--full-attach")
	cmd.Env = append(os.Environ(), "_OCI_SYNCPIPE=3")
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Run() // it leaves a process of its own behind
	theirs.Close()
	if err != nil {
		return fmt.Errorf("conmon: %w", err)
	}
	var answer struct {
		PID     int    `json:"pid"`
		Message string `json:"message"`
	}
	if err := json.NewDecoder(said).Decode(&answer); err != nil {
		return fmt.Errorf("conmon's answer: %w", err)
	}
	if answer.PID <= 0 {
		return fmt.Errorf("conmon: %s", answer.Message)
	}
	return nil
}

// systemdRun is systemd-run with a service of its own, which it has started once the work is executed.
func systemdRun(b *bench) party {
	n := 0
	unit := func() string { n++; return fmt.Sprintf("bench-%d.service", n) }
	return party{name: "systemd-run", standing: true, settles: time.Second,
		owns: func(cmdline string) bool { return strings.HasPrefix(cmdline, "/lib/systemd/systemd\x00--system") },
		launch: func(ctx context.Context, argv ...string) (work, error) {
			name := unit()
			err := b.run(ctx, append([]string{"systemd-run", "--quiet", "--collect", "--property=Type=exec", "--unit=" + name, "--"}, argv...)...)
			return work{stop: func() error { return b.run(ctx, "systemctl", "stop", name) }}, err
		},
		watch: func(ctx context.Context, argv ...string) (work, error) {
			return waitedFor(b.command(ctx, append([]string{"systemd-run", "--quiet", "--collect", "--wait", "--unit=" + unit(), "--"}, argv...)...))
		},
	}
}

// waitedFor is a command that ends when the work does.
func waitedFor(cmd *exec.Cmd) (work, error) {
	return work{ended: cmd.Wait}, cmd.Start()
}

// taskSpooler is tsp with a server of its own and room for all.
func taskSpooler(b *bench) (party, error) {
	env := append(os.Environ(), "TMPDIR="+b.path("tsp"), "TS_SOCKET="+b.path("tsp", "socket"))
	tsp := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := b.command(ctx, append([]string{"tsp"}, args...)...)
		cmd.Env = env
		return cmd
	}
	if err := os.MkdirAll(b.path("tsp"), 0o700); err != nil {
		return party{}, err
	}
	p := party{name: "task-spooler", settles: time.Second, owns: func(cmdline string) bool { return strings.HasPrefix(cmdline, "tsp\x00") },
		launch: func(ctx context.Context, argv ...string) (work, error) {
			id, err := outputOf(tsp(ctx, argv...))
			return work{stop: func() error { return tsp(ctx, "-k", id).Run() }}, err
		},
		watch: func(ctx context.Context, argv ...string) (work, error) {
			return waitedFor(tsp(ctx, append([]string{"-f"}, argv...)...))
		}}
	return p, tsp(context.Background(), "-S", "200").Run()
}

// ansible is Ansible's async_wrapper with its module command, started as Ansible starts it: with the two
// files that it makes for a host.
func ansible(ctx context.Context, b *bench) (party, error) {
	const marker = "THE-WORK"
	dir := b.path("ansible")
	cmd := exec.CommandContext(ctx, "/usr/bin/ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", "command", "-a", marker, "-B", "60", "-P", "0")
	cmd.Env = append(os.Environ(), "ANSIBLE_KEEP_REMOTE_FILES=1", "ANSIBLE_REMOTE_TMP="+dir, "ANSIBLE_LOCAL_TEMP="+dir+".local", "HOME="+dir, "LC_ALL=C.UTF-8")
	if _, err := outputOf(cmd); err != nil {
		return party{}, err
	}
	made, err := filepath.Glob(filepath.Join(dir, "ansible-tmp-*", "AnsiballZ_command.py"))
	if err != nil || len(made) != 1 {
		return party{}, fmt.Errorf("ansible left %d modules, not one: %w", len(made), err)
	}
	module, err := os.ReadFile(made[0])
	if err != nil {
		return party{}, err
	}
	n := 0
	launch := func(ctx context.Context, argv ...string) (work, error) {
		n++
		name := filepath.Join(dir, fmt.Sprintf("AnsiballZ_command_%d.py", n))
		if err := os.WriteFile(name, bytes.ReplaceAll(module, []byte(marker), []byte(strings.Join(argv, " "))), 0o700); err != nil {
			return work{}, err
		}
		cmd := b.command(ctx, "/usr/bin/python3", filepath.Join(filepath.Dir(made[0]), "async_wrapper.py"), fmt.Sprint("j", n), "600", name, "_", "-preserve_tmp")
		cmd.Env = append(os.Environ(), "ANSIBLE_ASYNC_DIR="+filepath.Join(dir, "async"))
		out, err := outputOf(cmd)
		if err != nil {
			return work{}, err
		}
		return ansibleJob(out)
	}
	return party{name: "Ansible async", launch: launch, slow: true, settles: time.Second,
		owns: func(cmdline string) bool {
			return strings.Contains(cmdline, "/ansible") && strings.Contains(cmdline, "python3")
		}}, nil
}

// ansibleJob is the job that async_wrapper says it started. Its file says that it started until it has
// the module's result in its place.
func ansibleJob(said string) (work, error) {
	var job struct {
		Started int    `json:"started"`
		File    string `json:"results_file"`
	}
	if err := json.Unmarshal([]byte(said), &job); err != nil || job.Started != 1 {
		return work{}, fmt.Errorf("async_wrapper says %s: %w", said, err)
	}
	return work{ended: func() error {
		return poll("the result in "+job.File, func() bool {
			content, err := os.ReadFile(job.File)
			return err == nil && len(content) > 0 && !bytes.Contains(content, []byte(`"started"`))
		})
	}}, nil
}

// cgroupKill is no party: it is work in a cgroup, and the writing of cgroup.kill.
func cgroupKill(root string) party {
	n := 0
	return party{name: "cgroup.kill alone", launch: func(ctx context.Context, argv ...string) (work, error) {
		n++
		group := filepath.Join(root, fmt.Sprintf("bench-%d", n))
		if err := os.Mkdir(group, 0o755); err != nil {
			return work{}, err
		}
		dir, err := os.Open(group)
		if err != nil {
			return work{}, err
		}
		defer dir.Close()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		return work{stop: func() error { return killGroup(group) },
			clear: func() error { cmd.Wait(); return removeGroup(group) }}, cmd.Start()
	}}
}

// killGroup kills everybody in a cgroup and waits until the kernel says that it is empty.
func killGroup(group string) error {
	if err := os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0); err != nil {
		return err
	}
	return poll("an empty cgroup", func() bool {
		events, err := os.ReadFile(filepath.Join(group, "cgroup.events"))
		return err == nil && strings.Contains(string(events), "populated 0")
	})
}

func removeGroup(group string) error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		err := os.Remove(group)
		if err == nil || errors.Is(err, os.ErrNotExist) || time.Now().After(deadline) {
			return err
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

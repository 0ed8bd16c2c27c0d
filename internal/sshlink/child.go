package sshlink

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// child is a started process that leads a group, and is signalled only while its id is its own:
// between its death and our reaping it, nobody else can have it.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // reaped

	mu     sync.Mutex // held to reap, and to signal
	reaped bool
}

func watchChild(cmd *exec.Cmd) *child {
	c := &child{cmd: cmd, exited: make(chan struct{})}
	go func() {
		awaitDeath(cmd.Process.Pid)
		c.mu.Lock()
		cmd.Wait()
		c.reaped = true
		c.mu.Unlock()
		close(c.exited)
	}()
	return c
}

// state is how the process ended, once it was reaped.
func (c *child) state() (*os.ProcessState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd.ProcessState, c.reaped
}

func (c *child) signal(s syscall.Signal)      { c.kill(c.cmd.Process.Pid, s) }
func (c *child) signalGroup(s syscall.Signal) { c.kill(-c.cmd.Process.Pid, s) }

func (c *child) kill(pid int, s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		syscall.Kill(pid, s)
	}
}

//go:build !linux

package sshlink

import (
	"os"
	"os/exec"
	"syscall"
)

// awaitDeath leaves it to os/exec to wait.
func awaitDeath(int) {}

// startBound leaves a process behind that outlives this one to the next sweep.
func startBound(cmd *exec.Cmd) error { return cmd.Start() }

// signalHolders knows of no holder: without /proc, a leftover master is ended by asking it alone.
func signalHolders(os.FileInfo, syscall.Signal) (int, error) { return 0, nil }

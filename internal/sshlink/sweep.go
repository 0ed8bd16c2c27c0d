package sshlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// sweep ends masters whose gateway is gone. Each is known by its log, which was made first. It is
// asked over its socket; one that has none yet, or does not answer, is known to the kernel: only
// it and what it started hold that log, in a folder of our own, open.
func sweep(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		log := name + logSuffix
		askLeftover(ctx, name+socketSuffix)
		if err := endHolders(ctx, log); err != nil {
			errs = append(errs, fmt.Errorf("end the ssh master of %s: %w", filepath.Base(log), err))
			continue // its files are how the next sweep finds it
		}
		// ssh makes the socket under NAME.sock.RANDOM, then gives it its name.
		leftovers, _ := filepath.Glob(name + socketSuffix + "*")
		for _, path := range append(leftovers, log) {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// askLeftover asks a master to exit and waits for it to, a while.
func askLeftover(ctx context.Context, socket string) {
	ctx, cancel := context.WithTimeout(ctx, muxPatience)
	defer cancel()
	c, err := dialControl(ctx, socket)
	if err != nil {
		return // nobody is there, or nobody answers
	}
	defer c.conn.Close()
	if c.terminate() == nil {
		c.ended(muxPatience)
	}
}

// endHolders signals every process that holds a file open, TERM, then KILL, until none does.
func endHolders(ctx context.Context, file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	start := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for signal := syscall.SIGTERM; ; {
		n, err := signalHolders(info, signal)
		if err != nil || n == 0 {
			return err
		}
		switch waited := time.Since(start); {
		case waited > 5*time.Second:
			return fmt.Errorf("%d processes survive SIGKILL", n)
		case waited > muxPatience:
			signal = syscall.SIGKILL
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

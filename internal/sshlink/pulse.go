package sshlink

import (
	"errors"
	"fmt"
	"time"
)

// Defaults of the keepalive, ssh's own and ours: a peer that is silent for misses intervals is
// given up between misses and misses+1 intervals after its last word.
const (
	defaultInterval = 2 * time.Second
	defaultMisses   = 3
)

// pulse watches whether the other end of a connection is alive, by asking it.
type pulse struct {
	interval time.Duration
	misses   int
	probe    func() error // asks, and waits for the answer as long as it takes
	now      chan struct{}
}

func newPulse(interval time.Duration, misses int, probe func() error) pulse {
	if interval <= 0 {
		interval = defaultInterval
	}
	if misses <= 0 {
		misses = defaultMisses
	}
	return pulse{interval, misses, probe, make(chan struct{}, 1)}
}

// check asks at once: somebody waited in vain. A slow answer alone condemns nothing.
func (p pulse) check() {
	select {
	case p.now <- struct{}{}:
	default:
	}
}

// watch asks again and again until gone is closed, and calls condemn when an answer fails or
// stays out. An interval counts as missed only as it passes here, so that a process that was
// itself stopped for long finds the answer waiting instead of the deadline passed.
func (p pulse) watch(gone <-chan struct{}, condemn func(error)) {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
		case <-p.now:
			tick.Reset(p.interval)
		}
		answer := make(chan error, 1)
		go func() { answer <- p.probe() }()
		for missed := 0; ; {
			select {
			case <-gone:
				return
			case err := <-answer:
				if err != nil {
					condemn(err)
					return
				}
			case <-tick.C:
				if missed++; missed == p.misses {
					condemn(fmt.Errorf("%w for %v", errSilent, time.Duration(p.misses)*p.interval))
					return
				}
				continue
			}
			break
		}
	}
}

var errSilent = errors.New("no answer")

//go:build faults

package sqlite

import (
	"os"
	"strconv"
	"sync"
	"time"
)

// flushDelay is what LONGSTOP_FLUSH_DELAY_MS adds to every commit, to measure what slow disks cost.
var flushDelay = sync.OnceValue(func() time.Duration {
	ms, _ := strconv.ParseFloat(os.Getenv("LONGSTOP_FLUSH_DELAY_MS"), 64)
	return time.Duration(ms * float64(time.Millisecond))
})

func beforeFlush() { time.Sleep(flushDelay()) }

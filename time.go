package longstop

import (
	"fmt"
	"time"
)

// Time is a wall-clock time, in JSON always RFC 3339 UTC with six digits of fraction.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000000Z"

// At makes a Time of t, in UTC and cut to microseconds, so that what is stored is what is read.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Microsecond)} }

func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(timeLayout) + `"`), nil
}

func (t *Time) UnmarshalJSON(b []byte) error {
	if len(b) < 2 || b[0] != '"' {
		return fmt.Errorf("time %s: want an RFC 3339 string", b)
	}
	parsed, err := time.Parse(time.RFC3339Nano, string(b[1:len(b)-1]))
	if err != nil {
		return fmt.Errorf("time %s: want an RFC 3339 string", b)
	}
	*t = At(parsed)
	return nil
}

// BootTime is an instant of one host's CLOCK_BOOTTIME, in nanoseconds since that boot: it does
// not jump when the wall clock is set and goes on while the host sleeps (clock_gettime(2)).
type BootTime int64

// Add returns the instant d later.
func (b BootTime) Add(d time.Duration) BootTime { return b + BootTime(d) }

// Sub returns the time from c to b.
func (b BootTime) Sub(c BootTime) time.Duration { return time.Duration(b - c) }

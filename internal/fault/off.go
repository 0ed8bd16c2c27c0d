//go:build !faults

package fault

// Enabled reports whether the build can be told to fail.
const Enabled = false

// At passes a point.
func At(point string) {}

// Flush passes a flush, just before it. An error is what the flush is to answer.
func Flush(point string) error { return nil }

// StandIn is where a file of the kernel's is to be looked for.
func StandIn(path string) string { return path }

// Planned is what a process that can call nothing should do at a point: 'k'ill, 's'top or 'd'elay.
func Planned(point string) (kind, ms int64) { return 0, 0 }

//go:build !faults

package fault

// Enabled reports whether the build can be told to fail.
const Enabled = false

// At passes a point.
func At(point string) {}

// Flush passes a flush, just before it.
func Flush(point string) {}

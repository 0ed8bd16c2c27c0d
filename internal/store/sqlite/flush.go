//go:build !faults

package sqlite

// beforeFlush is where a build with the tag faults delays a commit.
func beforeFlush() {}

// Package hosts holds the acceptance tests: the built commands, driven as a person drives them,
// against real hosts (test/rig). They are built with the tag hosts; `make hosts` runs them.
package hosts

//go:generate go test -run TestEscapesPage -update .

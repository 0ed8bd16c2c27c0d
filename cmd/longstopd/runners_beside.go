//go:build !embedrunner

package main

import "github.com/longstop/longstop/internal/gateway"

// runners gives the runner binaries beside the executable: a build without the tag embedrunner
// carries none, so that `go build ./...` works on a bare clone.
func runners() (gateway.Runners, error) { return gateway.RunnersBeside() }

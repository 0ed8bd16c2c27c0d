//go:build embedrunner

package main

import (
	"embed"
	"io/fs"

	"github.com/longstop/longstop/internal/gateway"
)

// embedded holds the runners that `make build` has put there, so that the daemon alone is enough to
// enrol a host of either architecture.
//
//go:embed runners/longstop-runner-linux-amd64 runners/longstop-runner-linux-arm64
var embedded embed.FS

// runners gives the runner binaries that this build carries.
func runners() (gateway.Runners, error) {
	dir, err := fs.Sub(embedded, "runners")
	if err != nil {
		return nil, err
	}
	return &gateway.FolderRunners{FS: dir, Where: "this build of longstopd"}, nil
}

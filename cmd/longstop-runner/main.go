// longstop-runner is what Longstop puts on a host: it owns the work that is started there and keeps
// the record of it. See internal/runner.
package main

import (
	"os"

	"github.com/longstop/longstop/internal/runner"
)

func main() { os.Exit(runner.Main(os.Args[1:])) }

// Package runner is what acts on a host. One binary is all of it: the verbs of the host contract,
// alone on a channel (oneshot.go) or together on one (serve.go), the keeper above a user's owners,
// the owner of each run, and the gate behind which a workload is born.
//
// The verbs that only read and tidy the state folder are here, a file each; what starts, holds and
// stops work is the keeper's and the owners'. Its rules: who asks names the machine, user and state
// folder that were enrolled, and on a mismatch nothing happens; a request is read strictly; stdout
// carries frames and nothing else.
package runner

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// Exit statuses of longstop-runner's verbs.
const (
	exitAnswered = 0 // the frame on stdout has the answer
	exitError    = 1 // the frame on stdout has an error
	exitNoAnswer = 2 // no frame could be written; stderr says why
)

const usage = `longstop-runner ` + "VERB" + `: a verb of Longstop's host contract.
It is called by the gateway: one JSON request on standard input, one frame on standard output.

  hello spool submit find void status list inspect output cancel renew collect gc
  serve                  every verb as frames, until standard input ends
  forced [OPTIONS]       in authorized_keys: one of these in place of a shell, and nothing else
  version [--sha256]     what this binary is
`

// Main is longstop-runner: args are the words after its name. It returns the exit status.
func Main(args []string) int {
	// Few threads: a login may be allowed only a handful of processes. The heap is small too, and
	// is given back early, since an owner lives as long as its run.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	takeUmask()
	if len(args) == 0 {
		os.Stderr.WriteString(usage)
		return exitNoAnswer
	}
	switch args[0] {
	case "version":
		return version(args[1:])
	case "keeper":
		return RunKeeper(args[1:])
	case "owner":
		return RunOwner(args[1:])
	case "forced":
		return forced(args[1:])
	}
	if len(args) > 1 {
		os.Stderr.WriteString("longstop-runner: " + args[0] + " takes no arguments\n\n" + usage)
		return exitNoAnswer
	}
	if !isVerb(wire.Verb(args[0])) {
		os.Stderr.WriteString("longstop-runner: no verb " + quoted(args[0]) + "\n\n" + usage)
		return exitNoAnswer
	}
	return carry(permit{}, wire.Verb(args[0]))
}

// carry answers a verb, or many as serve, for somebody who may do what permit says.
func carry(permit permit, verb wire.Verb) int {
	// The secrets of runs pass through here; a workload of the same user must not read them.
	if err := boundary.Conceal(); err != nil {
		os.Stderr.WriteString("longstop-runner: cannot hide its memory from the workloads of this user: " + err.Error() + "\n")
		return exitNoAnswer
	}
	host := newHost(permit)
	if verb == wire.VerbServe {
		return serve(host, os.Stdin, os.Stdout)
	}
	return oneshot(host, verb, os.Stdin, os.Stdout)
}

// version prints what this binary is: version and protocol, or the SHA-256 of its bytes, by which
// the gateway checks what it pushed.
func version(args []string) int {
	switch {
	case len(args) == 0:
		os.Stdout.WriteString("longstop-runner " + longstop.Version + " protocol " + itoa(wire.Protocol) + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n")
	case len(args) == 1 && args[0] == "--sha256":
		sum, err := ownSHA256()
		if err != nil {
			os.Stderr.WriteString("longstop-runner: cannot read itself: " + err.Error() + "\n")
			return exitNoAnswer
		}
		os.Stdout.WriteString(sum + "\n")
	default:
		os.Stderr.WriteString("longstop-runner: version takes --sha256 or nothing\n")
		return exitNoAnswer
	}
	return exitAnswered
}

func quoted(s string) string { return "“" + strings.ToValidUTF8(s, "?") + "”" }

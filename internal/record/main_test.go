package record

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// Tests that need other processes start this binary again; the variable says what for.
const helperVariable = "LONGSTOP_RECORD_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "":
		os.Exit(m.Run())
	case "claim":
		os.Exit(helpClaim(os.Args[1], os.Args[2]))
	case "hold":
		os.Exit(helpHold(os.Args[1], longstop.RunID(os.Args[2])))
	case "no locks":
		os.Exit(helpNoLocks(os.Args[1]))
	}
	os.Exit(3)
}

func helper(t *testing.T, what string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+what)
	cmd.Stderr = os.Stderr
	return cmd
}

// helpClaim waits for a line, then claims a key, and says how that went.
func helpClaim(dir, key string) int {
	f, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	run, err := f.Build(submission(key))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	claim, err := f.Claim(run, key)
	fmt.Println(claim.Mine, claim.RunID, err)
	return 0
}

// helpHold takes a run's lock and holds it until it is killed.
func helpHold(dir string, id longstop.RunID) int {
	f, err := Open(dir)
	if err == nil {
		var run *Run
		if run, err = f.Run(id); err == nil {
			_, err = run.Lock()
		}
	}
	fmt.Println(err)
	for {
		unix.Pause()
	}
}

//go:build faults

package fault

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if point := os.Getenv("FAULT_TEST_POINT"); point != "" {
		for range 3 {
			if err := Flush(point); err != nil {
				os.Stdout.WriteString("failed: " + err.Error() + "\n")
				continue
			}
			os.Stdout.WriteString("passed\n")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pass passes a point three times in another process, with a plan, and returns what it printed.
func pass(t *testing.T, plan string, more ...string) (string, syscall.WaitStatus) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), "FAULT_TEST_POINT=here", "LONGSTOP_FAULT="+plan), more...)
	output, _ := cmd.Output()
	return string(output), cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func TestPlans(t *testing.T) {
	t.Parallel()
	for plan, passes := range map[string]int{"": 3, "there=kill": 3, "here=kill": 0, "here:1=kill": 0, "here:3=kill": 2, "here:9=kill": 3, "there=kill,here:2=kill": 1, "here:2=delay:1": 3} {
		output, status := pass(t, plan)
		if n := strings.Count(output, "passed"); n != passes || status.Signaled() != (passes < 3) {
			t.Errorf("%q: passed %d times, want %d; %v", plan, n, passes, status)
		}
	}
	for _, plan := range []string{"here", "here=die", "here:x=kill", "here:0=kill", "here=delay", "here=delay:soon"} {
		if output, status := pass(t, plan); output != "" || status.ExitStatus() == 0 {
			t.Errorf("%q is not a plan, and went unnoticed: %q", plan, output)
		}
	}
}

func TestFlushesAreLoggedAndDelayed(t *testing.T) {
	t.Parallel()
	log := t.TempDir() + "/log"
	began := time.Now()
	if output, _ := pass(t, "", "LONGSTOP_FLUSH_LOG="+log, "LONGSTOP_FLUSH_DELAY_MS=20"); strings.Count(output, "passed") != 3 {
		t.Errorf("output %q", output)
	}
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("three flushes with 20 ms each took %v", took)
	}
	data, err := os.ReadFile(log)
	if err != nil || strings.Count(string(data), " here\n") != 3 {
		t.Errorf("log %q, %v", data, err)
	}
}

func TestFlushesFail(t *testing.T) {
	t.Parallel()
	if output, _ := pass(t, "here:2=eio"); output != "passed\nfailed: input/output error\npassed\n" {
		t.Errorf("output %q", output)
	}
}

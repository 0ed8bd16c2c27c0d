package sshlink

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain checks that when every link is closed, nothing of them is left: no goroutine, no ssh.
func TestMain(m *testing.M) {
	if target := os.Getenv("SSHLINK_TEST_PREDECESSOR"); target != "" {
		predecessor(target)
	}
	code := m.Run()
	if code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

func leaks() int {
	var left string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if left = leftover(); left == "" {
			return 0
		}
	}
	fmt.Println("left over:", left)
	return 1
}

func leftover() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !strings.Contains(stack, "TestMain") && !strings.Contains(stack, "sshlink.startAll") && (strings.Contains(stack, "internal/sshlink") || strings.Contains(stack, "crypto/ssh")) {
			return stack
		}
	}
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); err != syscall.ECHILD {
		children, _ := exec.Command("ps", "-o", "pid,stat,args", "--ppid", fmt.Sprint(os.Getpid())).Output()
		return fmt.Sprintf("a child process %d %v:\n%s", pid, err, children)
	}
	return ""
}

// killTestProcess ends a process that a test's own command printed the id of.
func killTestProcess(t *testing.T, pid int) {
	t.Helper()
	if pid > 1 {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

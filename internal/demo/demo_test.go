package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemo plays the story with both servers. It needs nothing but Go: with the server in Go, there
// need not even be an ssh.
func TestDemo(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, command := range []string{"longstop", "longstopd", "longstop-runner"} {
		build := exec.Command("go", "build", "-o", filepath.Join(bin, command), "../../cmd/"+command)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", command, err, out)
		}
	}
	bare := t.TempDir() // a PATH without ssh
	for _, tool := range []string{"sh", "sleep", "date", "setsid", "kill"} {
		if path, err := exec.LookPath(tool); err == nil {
			os.Symlink(path, filepath.Join(bare, tool))
		}
	}
	for name, c := range map[string]struct {
		args []string
		path string
		says string
	}{
		"as installed": {nil, os.Getenv("PATH"), "logging in as"},
		"Go alone":     {[]string{"--go-server"}, bare, "an SSH server in Go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp, err := os.MkdirTemp("", "lsdemo")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(tmp)
			cmd := exec.Command(filepath.Join(bin, "longstop"), append([]string{"demo", "--quick"}, c.args...)...)
			cmd.Env = append(os.Environ(), "PATH="+c.path, "TMPDIR="+tmp)
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil || !strings.Contains(string(out), c.says) || strings.Count(string(out), "\n") > 80 {
				t.Errorf("longstop demo: %v, %d lines", err, strings.Count(string(out), "\n"))
			}
			if left, _ := os.ReadDir(tmp); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

package main_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// The binary as it is put on hosts: what it answers, what it refuses, and the exit statuses by which its caller tells
// an answer (0), an error that is one (1) and no answer at all (2) apart.
func TestRunner(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "longstop-runner")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bytesOfIt, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytesOfIt)
	nonce, state := wire.NewNonce(), filepath.Join(t.TempDir(), "state")
	request := func(verb wire.Verb, host wire.Identity, body any) string {
		inner, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(wire.Request{Protocol: wire.Protocol, Nonce: nonce, Verb: verb, Host: host, StateDir: state, WithinMS: 5000, Body: inner})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	stranger := wire.Identity{MachineID: strings.Repeat("0", 32), UID: os.Getuid(), StateID: "another"}

	for _, c := range []struct {
		name, words, stdin string
		status             int
		stdout, stderr     string // pieces; an empty one: nothing at all
	}{
		{"nothing to do", "", "", 2, "", "version [--sha256]"},
		{"an unknown verb", "restart", "", 2, "", "no verb “restart”"},
		{"a command", "/bin/sh", "", 2, "", "no verb"},
		{"a verb with arguments", "submit --force", "", 2, "", "submit takes no arguments"},
		{"its version", "version", "", 0,
			fmt.Sprintf("longstop-runner %s protocol %d %s/%s\n", longstop.Version, wire.Protocol, runtime.GOOS, runtime.GOARCH), ""},
		{"its hash", "version --sha256", "", 0, hex.EncodeToString(sum[:]) + "\n", ""},
		{"another question about it", "version --all", "", 2, "", "version takes --sha256 or nothing"},
		{"no request", "hello", "", 2, "", "longstop-runner"},
		{"what is no request", "status", "ls -l\n", 2, "", "longstop-runner"},
		{"a greeting", "hello", request(wire.VerbHello, wire.Identity{}, wire.HelloRequest{Create: true}), 0, `"state_id"`, ""},
		{"another host's request", "find", request(wire.VerbFind, stranger, map[string]string{"key": "k"}), 1, string(longstop.CodeHostMismatch), ""},
	} {
		var out, talk bytes.Buffer
		cmd := exec.Command(binary, strings.Fields(c.words)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &out, &talk
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if cmd.ProcessState.ExitCode() != c.status || !says(out.String(), c.stdout) || !says(talk.String(), c.stderr) {
			t.Errorf("%s: exit %d, want %d\nstdout %q\nstderr %q", c.name, cmd.ProcessState.ExitCode(), c.status, &out, &talk)
		}
		if c.stdin == "" || c.status == 2 {
			continue
		}
		got, _, err := wire.ReadOne(&out, nonce, wire.Options{})
		if err == nil {
			var answer wire.Answer
			answer, err = wire.DecodeAnswer(nonce, got)
			if (answer.Error != nil) != (c.status == 1) {
				t.Errorf("%s: exit %d, and the error in the answer is %v", c.name, c.status, answer.Error)
			}
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func says(text, piece string) bool {
	if piece == "" {
		return text == ""
	}
	return strings.Contains(text, piece)
}

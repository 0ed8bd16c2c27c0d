package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

var aSetup = longstop.ForcedSetup{User: "deploy", Runner: "/usr/local/bin/longstop-runner",
	Runners: []longstop.RunnerBinary{{Arch: "amd64", SHA256: strings.Repeat("3f", 32), Bytes: 3700000}, {Arch: "arm64", SHA256: strings.Repeat("9a", 32), Bytes: 3600000}},
	Keys: []longstop.ForcedKey{
		{Fingerprint: "SHA256:first", From: "/home/anna/.ssh/id_ed25519", Line: `command="/usr/local/bin/longstop-runner forced",restrict ssh-ed25519 AAAA1`},
		{Fingerprint: "SHA256:second", From: "the agent", Line: `command="/usr/local/bin/longstop-runner forced",restrict ssh-rsa AAAA2`}}}

func TestGoldenForced(t *testing.T) {
	t.Parallel()
	golden(t, "forced.golden", setupText("web-1", &aSetup, "longstop host add web-1 --forced"))
}

// TestForcedSaysWhatToInstall: what is missing on a host is printed as data, and why as an error; with
// what installing would not mend, or as JSON, there is the error alone.
func TestForcedSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code  longstop.Code
		flags []string
		told  bool
	}{
		{longstop.CodeAccessRefused, nil, true}, {longstop.CodeNoRunner, nil, true}, {longstop.CodeVersionMismatch, nil, true},
		{longstop.CodeHostKeyUnknown, nil, false}, {longstop.CodeUnreachable, nil, false}, {longstop.CodeNoRunner, []string{"--json"}, false},
	} {
		s := newScript(t)
		s.fails("POST /api/v1/hosts", &longstop.Error{Code: c.code, Message: "it is so", Hint: "a hint"})
		s.answers("POST /api/v1/forced", &aSetup)
		status, out, err := s.run(append([]string{"host", "add", "web-1", "--forced"}, c.flags...)...)
		if status != longstop.ExitOurs || !strings.Contains(err, "it is so") || strings.Contains(out, aSetup.Keys[0].Line+"\n") != c.told ||
			strings.Contains(err, "a hint") == (c.told || c.flags != nil) || c.told && !strings.Contains(out, "again: longstop host add web-1 --forced\n") {
			t.Errorf("%s %q: exit %d\n%s\n%s", c.code, c.flags, status, out, err)
		}
	}
}

func TestRunnerIsWritten(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.on("GET /api/v1/runners/arm64", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("\x7fELF arm")) })
	status, out, err := s.run("runner", "--arch", "arm64")
	if status != 0 || out != "\x7fELF arm" || !strings.Contains(err, "aarch64") || !strings.Contains(err, "SHA-256 ") {
		t.Errorf("exit %d\n%q\n%s", status, out, err)
	}
	s.fails("GET /api/v1/runners/mips", &longstop.Error{Code: longstop.CodeUsage, Message: "there is none"})
	if status, out, err := s.run("runner", "--arch", "mips"); status != longstop.ExitOurs || out != "" || !strings.Contains(err, "there is none") {
		t.Errorf("exit %d\n%q\n%s", status, out, err)
	}
}

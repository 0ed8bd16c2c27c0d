package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// toInstall prints what a host lacks for a forced enrolment that failed with why, where installing it
// could mend that, and returns the error to end with.
func (a *app) toInstall(ctx context.Context, gateway *client.Client, e longstop.EnrolRequest, why error) error {
	problem := asError(why)
	switch problem.Code {
	case longstop.CodeNoRunner, longstop.CodeAccessRefused, longstop.CodeVersionMismatch, longstop.CodeBadAnswer, longstop.CodeNotAllowed:
	default:
		return why
	}
	if a.json {
		problem.Hint = "without --json this prints what to install there"
		return problem
	}
	setup, err := gateway.ForcedSetup(ctx, e)
	if err != nil {
		return err
	}
	a.out.WriteString(setupText(plain(e.Name), &setup, a.sameAgain()))
	problem.Hint = "Install what stands above on " + plain(e.Name) + "; then the same command again, which checks it and enrols."
	return problem
}

// sameAgain is the command line once more.
func (a *app) sameAgain() string {
	words := []string{"longstop"}
	for _, arg := range a.args {
		words = append(words, word(arg))
	}
	return strings.Join(words, " ")
}

// setupText is what an operator does on a host, in order, to be copied from.
func setupText(host string, s *longstop.ForcedSetup, again string) string {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	key := s.Keys[0]
	say("1. On %s, the runner as %s, best where %s cannot write:\n", host, plain(s.Runner), plain(s.User))
	for _, r := range s.Runners {
		say("     longstop runner --arch %s > longstop-runner      # here, for %s", r.Arch, machine(r.Arch))
		say("       # SHA-256 %s", plain(r.SHA256))
	}
	say("     install -m 755 longstop-runner %s      # there, once it is copied\n", plain(s.Runner))
	say("2. On %s, in authorized_keys of %s, this line in place of every other with the same key. (With --read-only", host, plain(s.User))
	say("   behind the word forced, the key may look at runs and change nothing.)\n")
	say("%s\n", plain(key.Line))
	say("   The key is %s (%s).", plain(key.Fingerprint), plain(key.From))
	if len(s.Keys) > 1 {
		say("   ssh offers %d more after it; the first one that the host takes counts. IdentityFile with IdentitiesOnly yes,", len(s.Keys)-1)
		say("   in ssh_config, leaves one:")
		for _, other := range s.Keys[1:] {
			say("     %s (%s)", plain(other.Fingerprint), plain(other.From))
		}
	}
	say("\n3. Here, again: %s\n", again)
	return text.String()
}

// machine is what uname -m calls an architecture.
func machine(arch string) string {
	if arch == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

func (a *app) runnerVerb() *cobra.Command {
	var arch string
	c := &cobra.Command{
		Use:   "runner --arch ARCH > FILE",
		Short: "Write the runner's binary to standard output, for a host where an operator installs it",
		Long: `Write the runner to standard output: one static file, for Linux. It is needed for hosts that are enrolled with
longstop host add --forced; everywhere else Longstop copies it there itself.`,
		Example: `  longstop runner --arch amd64 > longstop-runner`,
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if isTerminal(a.out) {
				return usage("longstop runner --arch "+arch+" > FILE", "a binary is not for a terminal")
			}
			gateway, err := a.gateway()
			if err != nil {
				return err
			}
			binary, err := gateway.Runner(c.Context(), arch)
			if err != nil {
				return err
			}
			if _, err := a.out.Write(binary); err != nil {
				return fmt.Errorf("write the runner: %w", err)
			}
			a.talk.note("longstop-runner for Linux on %s%s%.1f MB%sSHA-256 %x", machine(arch), between, float64(len(binary))/1e6, between, sha256.Sum256(binary))
			return nil
		},
	}
	own := "amd64"
	if runtime.GOARCH == "arm64" {
		own = "arm64"
	}
	c.Flags().StringVar(&arch, "arch", own, "amd64 (x86_64) or arm64 (aarch64)")
	return c
}

package sshlink

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/longstop/longstop"
)

// settings are a target's ssh_config, resolved: names in lower case, values in ssh's order.
type settings map[string][]string

// first is the value that counts for settings that are not lists.
func (s settings) first(name string) string {
	if v := s[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// resolveBySSH asks ssh -G, which knows all of ssh_config and runs the commands of Match exec.
func resolveBySSH(ctx context.Context, path string, to Target) (settings, error) {
	destination, err := destination(to.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout) // a command of Match exec may hang
	defer cancel()
	args := []string{"-G"}
	if to.SSHConfig != "" {
		args = append(args, "-F", to.SSHConfig)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, append(args, destination...)...)
	cmd.Stderr = &stderr
	cmd.WaitDelay = muxPatience // a command of Match exec may hold our pipes open
	out, err := cmd.Output()
	if err != nil {
		said := plainLines(stderr.String())
		return nil, &longstop.Error{Code: longstop.CodeUsage,
			Message: to.Name + ": ssh does not take its configuration: " + strings.Join(said, "; "),
			Hint:    "mend it, then see: " + to.Command("-G"), Err: err}
	}
	s := settings{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		s[strings.ToLower(name)] = append(s[strings.ToLower(name)], value)
	}
	return s, nil
}

// destination is a target's name as arguments of ssh, which takes no URI with an IPv6 address.
func destination(name string) ([]string, error) {
	if !strings.HasPrefix(name, "ssh://") || !strings.Contains(name, "[") {
		return []string{"--", name}, nil
	}
	host, user, port, err := splitName(name)
	if err != nil {
		return nil, err
	}
	var args []string
	if user != "" {
		args = append(args, "-l", user)
	}
	if port != "" {
		args = append(args, "-p", port)
	}
	return append(args, "--", host), nil
}

// overridden says which settings a person may have meant that do not hold here.
func (s settings) overridden() []string {
	var notes []string
	note := func(name string, off []string, why string) {
		for _, v := range s[name] {
			for _, o := range off {
				if strings.EqualFold(v, o) {
					v = ""
				}
			}
			if v != "" {
				notes = append(notes, fmt.Sprintf("%s %s is not followed: %s", name, v, why))
			}
		}
	}
	off := []string{"no", "none", "false"}
	note("remotecommand", off, "Longstop runs its own command")
	note("requesttty", append(off, "auto"), "a terminal would garble answers")
	note("sessiontype", []string{"default"}, "Longstop needs to run a command")
	note("forkafterauthentication", off, "Longstop keeps the connection as its child")
	if len(s["localcommand"]) > 0 && !strings.EqualFold(s.first("permitlocalcommand"), "no") {
		note("localcommand", off, "nothing is run on this machine")
	}
	for _, name := range []string{"localforward", "remoteforward", "dynamicforward"} {
		note(name, off, "nothing is forwarded")
	}
	note("forwardagent", off, "the agent is not lent to the host")
	note("forwardx11", off, "nothing is forwarded")
	note("stricthostkeychecking", []string{"yes", "true", "ask"}, "an unknown host key is always an error")
	return notes
}

package client

import (
	"os"
	"path/filepath"
	"strconv"
)

// agentEnv names the socket of the user's ssh-agent.
const agentEnv = "SSH_AUTH_SOCK"

// agent is a link to the socket of the ssh-agent that the gateway is to use.
func (h Home) agent() string { return filepath.Join(h.Runtime, "agent") }

// LendAgent points the gateway to the ssh-agent of this environment, and reports whether there is
// one. A gateway outlives the login that started it, whose agent goes with that login: each command
// therefore lends its own, so that what it asks for is done with the keys that it has. Without an
// agent here the gateway keeps the one it has.
func (h Home) LendAgent(getenv func(string) string) bool {
	mine := getenv(agentEnv)
	switch {
	case mine == h.agent():
		return true
	case !filepath.IsAbs(mine):
		return false
	}
	if now, err := os.Readlink(h.agent()); err == nil && now == mine {
		return true
	}
	// A new link put in the old one's place: whoever follows it meanwhile finds one of the two.
	next := h.agent() + "." + strconv.Itoa(os.Getpid())
	if os.Symlink(mine, next) != nil {
		return false // no runtime folder: no gateway either
	}
	if os.Rename(next, h.agent()) != nil {
		os.Remove(next)
		return false
	}
	return true
}

package systemd

import (
	"fmt"
	"strings"

	"github.com/longstop/longstop"
)

// ServiceName is the unit that a run's owner is the main process of.
func ServiceName(run longstop.RunID) string { return "longstop-" + escape(string(run)) + ".service" }

// ScopeName is the unit that holds all runs of one state folder, for a user without a cgroup.
func ScopeName(stateID string) string { return "longstop-" + escape(stateID) + ".scope" }

// escape makes any string a part of a unit's name, as systemd-escape(1) does: a name cannot hold
// what a path or a shell could take for something else.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '/':
			b.WriteByte('-')
		case letterOrDigit(c), c == ':', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// unitPath is where the manager shows a unit on D-Bus, whether it knows the unit or not.
func unitPath(unit string) string {
	var b strings.Builder
	b.WriteString(managerPath + "/unit/")
	for i := range len(unit) {
		if c := unit[i]; letterOrDigit(c) && (i > 0 || c > '9') {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

func letterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

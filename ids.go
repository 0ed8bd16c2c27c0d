package longstop

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// ActionID names one request to do one thing on one host: "act_" and 15 characters of Crockford's
// base 32, of which the first seven rise with time. Opaque to whoever holds it.
type ActionID string

// SessionID names one stretch of an agent's or operator's work: "ses_" and 15 characters as ActionID.
type SessionID string

// ChannelID names one SSH channel of the gateway: "chn_" and 15 characters as ActionID.
type ChannelID string

// RunID names the work of one action on its host: "run_" and 32 hexadecimal digits, 128 random bits.
type RunID string

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// sortableID is prefix, seven characters of seconds since 1970 (35 bits) and eight random ones (40
// bits): short enough to read aloud, ordered by age in an index.
func sortableID(prefix string, at time.Time) string {
	var random [8]byte
	rand.Read(random[3:])
	bits := binary.BigEndian.Uint64(random[:])
	id := make([]byte, 15)
	for i := 14; i >= 7; i-- {
		id[i], bits = crockford[bits&31], bits>>5
	}
	seconds := uint64(at.Unix())
	for i := 6; i >= 0; i-- {
		id[i], seconds = crockford[seconds&31], seconds>>5
	}
	return prefix + string(id)
}

// NewActionID makes an id for an action requested at the given time.
func NewActionID(at time.Time) ActionID { return ActionID(sortableID("act_", at)) }

// NewSessionID makes an id for a session opened at the given time.
func NewSessionID(at time.Time) SessionID { return SessionID(sortableID("ses_", at)) }

// NewChannelID makes an id for a channel opened at the given time.
func NewChannelID(at time.Time) ChannelID { return ChannelID(sortableID("chn_", at)) }

// NewRunID makes a run id from 128 random bits.
func NewRunID() RunID {
	var random [16]byte
	rand.Read(random[:])
	return RunID("run_" + hex.EncodeToString(random[:]))
}

// ParseRunID accepts exactly "run_" and 32 lower-case hexadecimal digits, so that a run id can be
// a file's name on the host without further thought.
func ParseRunID(s string) (RunID, error) {
	if len(s) != 36 || s[:4] != "run_" {
		return "", fmt.Errorf("run id %q: want run_ and 32 hexadecimal digits", s)
	}
	for _, c := range s[4:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("run id %q: want run_ and 32 hexadecimal digits", s)
		}
	}
	return RunID(s), nil
}

// MachineID is what names this installation (machine-id(5)), read by the function given: of the files that may have
// it the first that does. It is empty where none does.
func MachineID(read func(path string) ([]byte, error)) string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if text, err := read(path); err == nil {
			if id := ParseMachineID(text); id != "" {
				return id
			}
		}
	}
	return ""
}

// ParseMachineID is the id in the text of such a file: 32 hexadecimal digits on the first line. It is empty where there
// are none: through a first boot the text is "uninitialized".
func ParseMachineID(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	id := strings.TrimSpace(line)
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != 16 {
		return ""
	}
	return id
}

package runner

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// Each acceptance and each end is one line to the host's own log, for whoever reads that: facility
// user, severity info (RFC 3164). A host without a log, or with one that does not take it at once,
// is none the worse.

func logLine(words string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	line := fmt.Sprintf("<14>longstop[%d]: %s", os.Getpid(), words)
	unix.Sendto(fd, []byte(line), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: "/dev/log"})
}

func logAccepted(rec longstop.Record) {
	words := fmt.Sprintf("accepted action=%s run=%s session=%s", word(rec.ActionID), word(rec.RunID), word(rec.SessionID))
	if rec.Main != nil { // of a run that is queued or asks its preflight there is none yet
		words += fmt.Sprintf(" pid=%d", rec.Main.PID)
	}
	logLine(words)
}

func logEnd(rec longstop.Record) {
	words := fmt.Sprintf("%s action=%s run=%s session=%s by=%s", rec.State, word(rec.ActionID), word(rec.RunID), word(rec.SessionID), rec.Writer.Kind)
	if r := rec.Result; r != nil && r.ExitCode != nil {
		words += fmt.Sprintf(" exit_code=%d", *r.ExitCode)
	} else if r != nil {
		words += " signal=" + r.Signal
	}
	if rec.NothingToDo() {
		words += " preflight=" + string(rec.Preflight.State)
	}
	if rec.EffectProof != "" {
		words += " effect_proof=" + string(rec.EffectProof)
	}
	if rec.OOM != nil {
		words += fmt.Sprintf(" oom_kills=%d", rec.OOM.Kills)
	}
	if rec.Cause != "" {
		words += " cause=" + string(rec.Cause)
	}
	if e := rec.LaunchError; e != nil {
		words += " step=" + word(e.Step) + " errno=" + word(e.Errno)
	}
	if rec.LostBecause != "" {
		words += " because=" + string(rec.LostBecause)
	}
	logLine(words)
}

// word keeps what came from elsewhere to one word of one line.
func word[S ~string](s S) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, string(s))
}

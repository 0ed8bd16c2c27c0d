package gateway

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/longstop/longstop"
)

// checkStages looks through what is asked for beside the work: a preflight, a verify, and a name that
// one run holds at a time.
func checkStages(r *longstop.Request) error {
	for name, script := range map[string]string{"preflight": r.Preflight, "verify": r.Verify} {
		switch {
		case len(script) > longstop.MaxCheckScript:
			return usage("the %s has %d bytes; at most %d are taken: have it call a script on the host", name, len(script), longstop.MaxCheckScript)
		case !utf8.ValidString(script) || strings.IndexByte(script, 0) >= 0:
			return usage("the %s is not UTF-8 text", name)
		case script != "" && strings.TrimSpace(script) == "":
			return usage("the %s is empty", name)
		}
	}
	for name, s := range map[string]float64{"a preflight or verify": r.CheckS, "the wait for a name": r.ExclusiveWaitS} {
		if math.IsNaN(s) || s < 0 || s > maxSeconds {
			return usage("%s of %g s: want a time from 0 to 100 years", name, s)
		}
	}
	checks := r.Preflight != "" || r.Verify != ""
	switch {
	case r.CheckS != 0 && !checks:
		return usage("there is a time for a preflight or a verify, and neither of them")
	case r.ExclusiveWaitS != 0 && r.Exclusive == "":
		return usage("there is a time to wait for a name, and no name")
	case len(r.Exclusive) > longstop.MaxExclusiveName || !printable(r.Exclusive):
		return usage("the name to hold alone: want at most %d ASCII letters, digits and signs, no spaces", longstop.MaxExclusiveName)
	case checks && r.CheckS == 0:
		r.CheckS = longstop.DefaultCheckS
	}
	return nil
}

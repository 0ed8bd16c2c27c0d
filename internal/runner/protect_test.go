package runner

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// Who answers for runs is the last that the memory killer takes, where that may be asked for (by root with
// CAP_SYS_RESOURCE), and the work has nothing of that: it is as likely to be taken as anything of its login.
func TestKeeperAndOwnerOutlastTheWorkForWantOfMemory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: who is not root may not set it for processes that are not dumpable")
	}
	servants := boundary.OOMScoreAdj()
	if exec.Command("sh", "-c", "echo -900 > /proc/self/oom_score_adj").Run() == nil {
		servants = "-900"
	} else {
		t.Log("not protected: CAP_SYS_RESOURCE is not there")
	}
	of := func(pid int) string {
		data, err := os.ReadFile("/proc/" + itoa(pid) + "/oom_score_adj")
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(data))
	}
	l := newLab(t)
	const login, say = "501", "cat /proc/self/oom_score_adj /proc/$$/oom_score_adj"
	sub := l.request(longstop.Request{Script: say + "; sleep 600", Preflight: say + " >&2"})
	from := ourLogin()
	if from.OOM != boundary.OOMScoreAdj() {
		t.Errorf("the login's: %q, not %q", from.OOM, boundary.OOMScoreAdj())
	}
	from.OOM = login
	if _, err := askKeeper(context.Background(), l.f, ask{Verb: askSubmit, Submit: &sub, Login: &from}); err != nil {
		t.Fatal(err)
	}
	rec := l.state(sub.RunID, longstop.WorkloadRunning)
	eventually(t, "the work's word", func() bool { return strings.Count(l.stdout(sub.RunID), "\n") == 2 })
	if got := l.stdout(sub.RunID) + l.stream(sub.RunID, "stderr"); got != strings.Repeat(login+"\n", 4) {
		t.Errorf("work and preflight: %q", got)
	}
	if got := of(rec.Main.PID); got != login {
		t.Errorf("the work: %s", got)
	}
	for who, pid := range map[string]int{"keeper": l.mustKeeper().PID, "owner": l.mustOwner(sub.RunID).PID} {
		if got := of(pid); got != servants {
			t.Errorf("the %s: %s, not %s", who, got, servants)
		}
	}
	l.cancel(sub.RunID, 0, 0)
}

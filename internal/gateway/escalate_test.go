package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/notify"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// pager is a webhook's other side.
type pager struct {
	*httptest.Server
	mu     sync.Mutex
	status int // of its answers
	tries  int
	taken  []longstop.Notice
	ids    map[string]bool // of every try
}

func newPager(t *testing.T, status int) *pager {
	p := &pager{status: status, ids: map[string]bool{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n longstop.Notice
		text, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err != nil || n.ID == "" || n.ID != r.Header.Get("webhook-id") {
			t.Errorf("%s: %v", text, err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tries++
		p.ids[n.ID] = true
		if p.status == 200 {
			p.taken = append(p.taken, n)
		}
		w.WriteHeader(p.status)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *pager) answers(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

func (p *pager) tried() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tries
}

func (p *pager) way(t *testing.T) gateway.Way {
	t.Helper()
	w, err := notify.NewWebhook(p.URL, "", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// told waits for a notice of a kind.
func (p *pager) told(t *testing.T, kind string) longstop.Notice {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		i := slices.IndexFunc(p.taken, func(n longstop.Notice) bool { return n.Kind == kind })
		if i >= 0 {
			defer p.mu.Unlock()
			return p.taken[i]
		}
		p.mu.Unlock()
		if time.Now().After(end) {
			t.Fatalf("%s was not told: %+v", kind, p.taken)
		}
	}
}

// says waits for an entry of a kind about an action.
func (b *bench) says(id longstop.ActionID, kind string) {
	b.t.Helper()
	for end := time.Now().Add(60 * time.Second); !slices.Contains(b.kinds(id), kind); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("no %s: %v", kind, b.kinds(id))
		}
	}
}

// lose kills owner and keeper of a run, and what is left of it.
func (b *bench) lose(a longstop.Action) longstop.Action {
	b.t.Helper()
	owner := fmt.Sprint(a.Workload.Writer.PID)
	keeper, err := exec.Command("ps", "-o", "ppid=", "-p", owner).Output()
	b.must(err)
	b.must(exec.Command("kill", "-KILL", strings.TrimSpace(string(keeper)), owner).Run())
	b.cancel(a.ID, nil)
	return b.until(a.ID, "lost", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadLost })
}

// TestPointEscalationIsTold: what stays unknown for good is brought to people once, by every way; who does not
// take it is told again under the same id, also by the next gateway.
func TestPointEscalationIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.stop()
	page := newPager(t, 503)
	file := filepath.Join(t.TempDir(), "told")
	b.ways = []gateway.Way{page.way(t), &notify.Command{Argv: []string{"/bin/sh", "-c", "cat >> " + file + "; echo >> " + file}, Timeout: 10 * time.Second}}
	b.start()
	a := b.lose(b.run(script("sleep 600")))
	if len(a.Escalations) != 1 || a.Escalations[0].Because != "owner_lost" || a.Escalations[0].At.IsZero() {
		t.Fatalf("%s", pretty(a))
	}
	b.says(a.ID, "notice_delivered") // by the command
	for end := time.Now().Add(60 * time.Second); page.tried() < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the webhook was not tried again")
		}
	}
	b.whole()
	b.stop()
	page.answers(200)
	b.start()
	n := page.told(t, "escalated")
	if text, err := json.Marshal(n.Body); err != nil || n.ActionID != a.ID || n.Host != "loop" || n.Gateway != "test" || !strings.Contains(string(text), `"because":"owner_lost"`) {
		t.Errorf("%+v", n)
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		kinds := b.kinds(a.ID)
		delivered := 0
		for _, k := range kinds {
			if k == "notice_delivered" {
				delivered++
			}
		}
		if delivered == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v", kinds)
		}
	}
	kinds := b.kinds(a.ID)
	count := func(kind string) (n int) {
		for _, k := range kinds {
			if k == kind {
				n++
			}
		}
		return n
	}
	if count("escalated") != 1 || count("notice_failed") != 1 || len(page.ids) != 1 {
		t.Errorf("%v, ids %v", kinds, page.ids)
	}
	if lines(file) != 1 {
		t.Errorf("the command was run %d times", lines(file))
	}
	b.whole()
}

// TestPointEscalationIsOver: a host that is out of reach for long is brought to people, and so is that it is back.
func TestPointEscalationIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "sleep 600", Lifetime: longstop.Detached}})
	b.stop()
	page := newPager(t, 200)
	b.ways = []gateway.Way{page.way(t)}
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route"})
	b.start()
	b.until(a.ID, "it is unreachable", func(a longstop.Action) bool { return a.UnknownBecause == longstop.Unreachable })
	if n := page.tried(); n > 0 {
		t.Errorf("told %d times after a moment", n)
	}
	b.stop()
	b.shift = 16 * time.Minute
	b.start()
	n := page.told(t, "escalated")
	if text, err := json.Marshal(n.Body); err != nil || !strings.Contains(string(text), `"because":"unreachable"`) || !strings.Contains(string(text), "no route") || strings.Contains(string(text), "patch") {
		t.Errorf("%s", text)
	}
	b.tap.refuseDials(nil)
	page.told(t, "escalation_over")
	seen := b.until(a.ID, "over", func(a longstop.Action) bool { return len(a.Escalations) == 1 && !a.Escalations[0].OverAt.IsZero() })
	if seen.Outcome != longstop.OutcomePending {
		t.Errorf("%s", pretty(seen))
	}
	b.cancel(a.ID, nil)
}

// TestPointNoticesDropped: notices of a way that is configured no more go, on the record.
func TestPointNoticesDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.stop()
	page := newPager(t, 500)
	b.ways = []gateway.Way{page.way(t)}
	b.start()
	a := b.lose(b.run(script("sleep 600")))
	b.says(a.ID, "notice_failed")
	b.stop()
	b.ways = nil
	b.start()
	entries, err := b.Journal(t.Context(), gateway.JournalFilter{After: -1, Limit: 1000, Newest: true})
	b.must(err)
	if !slices.ContainsFunc(entries, func(e longstop.JournalEntry) bool { return e.Kind == "notices_dropped" }) {
		t.Error("not journalled")
	}
}

// TestPointUnclaimedIsTold: a run that a host has and no action claims is brought to people.
func TestPointUnclaimedIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "sleep 600", Lifetime: longstop.Detached}})
	other := *b
	other.home = sshtest.ShortDir(t)
	page := newPager(t, 200)
	other.ways = []gateway.Way{page.way(t)}
	other.start()
	_, err := other.Enrol(t.Context(), longstop.EnrolRequest{Name: b.server.Alias, SSHConfig: b.config}, nil)
	other.must(err)
	other.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Argv: []string{"true"}}})
	if n := page.told(t, "unclaimed_run"); n.RunID != a.RunID || n.Host != "loop" {
		t.Errorf("%+v", n)
	}
	b.cancel(a.ID, nil)
	os.Remove(other.home)
}

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
)

// someLog is a store of three actions with a few changes each; one has what a login shell printed.
func someLog(t testing.TB, path string) (*Store, []*longstop.Action) {
	s := open(t, path)
	actions := []*longstop.Action{newAction("web-1"), newAction("web-1"), newAction("web-2")}
	for _, a := range actions {
		put(t, s, a, journal.Requested)
	}
	code := 3
	for n, a := range actions {
		a.Revision, a.Launch = 2, longstop.Launch{State: longstop.LaunchUnknown, Because: "timeout", Message: `no "answer" {in time`}
		put(t, s, a, journal.LaunchUnanswered, Raw{"submit_answer", []byte("garbage")})
		a.Revision, a.Launch = 3, longstop.Launch{State: longstop.LaunchAccepted, At: longstop.At(clock)}
		a.SSHCommand.Noise = fmt.Sprintf("Welcome to web-%d\n", n)
		a.Workload = longstop.Workload{State: longstop.WorkloadRunning, Evidence: map[string]string{"row": "7"}}
		put(t, s, a, journal.LaunchAnswered)
	}
	actions[1].Revision, actions[1].SSHCommand.Noise = 4, ""
	actions[1].Workload = longstop.Workload{State: longstop.WorkloadFinished, Result: &longstop.Result{ExitCode: &code}}
	put(t, s, actions[1], journal.Observed)
	return s, actions
}

// TestPointReplay: the entries alone give every action, its columns and its JSON; and nothing of what a
// login shell printed is in one of them.
func TestPointReplay(t *testing.T) {
	t.Parallel()
	s, actions := someLog(t, filepath.Join(t.TempDir(), "home", "longstop.db"))
	if done, err := s.CheckProjections(t.Context()); err != nil || done.Rows != 3 || done.Earlier != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	before := fmt.Sprint(dump(t, s))
	if done, err := s.Rebuild(t.Context()); err != nil || done.Rows != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	if _, err := s.CheckProjections(t.Context()); err != nil {
		t.Error(err)
	}
	if after := fmt.Sprint(dump(t, s)); after != before {
		t.Errorf("rebuilt\n%s\nfrom\n%s", after, before)
	}
	verify(t, s)
	for _, a := range actions {
		if secret, err := s.Secret(t.Context(), a.RunID); a.RunID != "" && (err != nil || string(secret) != "secret of "+string(a.RunID)) {
			t.Errorf("the secret of %s: %q, %v", a.RunID, secret, err)
		}
	}
	entries, err := s.Entries(t.Context(), EntryFilter{})
	must(t, err)
	for _, e := range entries {
		if strings.Contains(string(e.Body), "Welcome") {
			t.Errorf("entry %d has what a login shell printed: %s", e.Index, e.Body)
		}
	}
}

// dump is every row of the actions.
func dump(t testing.TB, s *Store) (rows []string) {
	must(t, s.each(t.Context(), `SELECT id || tail || key || session_id || host || created_at || coalesce(run_id, '-') || revision ||
		unresolved || outcome || entry || json FROM actions ORDER BY seq`, nil, func(r row) error {
		var text string
		err := r.Scan(&text)
		rows = append(rows, text)
		return err
	}))
	return rows
}

// TestPointReplayNamesTheFirst: whatever is changed in a projection, the check names it, and a rebuild
// undoes it.
func TestPointReplayNamesTheFirst(t *testing.T) {
	t.Parallel()
	for field, sql := range map[string]string{
		"tail":            `UPDATE actions SET tail = 'x' WHERE seq = 2`,
		"key":             `UPDATE actions SET key = 'x' WHERE seq = 2`,
		"session_id":      `UPDATE actions SET session_id = 'x' WHERE seq = 2`,
		"host":            `UPDATE actions SET host = 'x' WHERE seq = 2`,
		"created_at":      `UPDATE actions SET created_at = 7 WHERE seq = 2`,
		"run_id":          `UPDATE actions SET run_id = 'x' WHERE seq = 2`,
		"revision":        `UPDATE actions SET revision = 7 WHERE seq = 2`,
		"unresolved":      `UPDATE actions SET unresolved = 1 WHERE seq = 2`,
		"outcome":         `UPDATE actions SET outcome = 'succeeded' WHERE seq = 2`,
		"entry":           `UPDATE actions SET entry = 1 WHERE seq = 2`,
		"seq":             `UPDATE actions SET seq = 4 WHERE seq = 1`,
		"it is not there": `DELETE FROM secrets; DELETE FROM actions WHERE seq = 2`,
		"no entry is about it": `INSERT INTO actions SELECT 9, 'act_X', 'x', 'other', session_id, host, created_at, NULL, revision, unresolved, outcome,
			entry, json, requester, traits FROM actions WHERE seq = 2`,
		"requester":                 `UPDATE actions SET requester = 'agent x' WHERE seq = 2`,
		"traits":                    `UPDATE actions SET traits = 32 WHERE seq = 2`,
		"workload.result.exit_code": `UPDATE actions SET json = replace(json, '"exit_code":3', '"exit_code":0') WHERE seq = 2`,
		"request.argv":              `UPDATE actions SET json = replace(json, '"--to"', '"--go"') WHERE seq = 2`,
		"launch.message":            `UPDATE actions SET json = replace(json, '"state":"accepted"', '"state":"accepted","message":"x"') WHERE seq = 2`,
		"json":                      `UPDATE actions SET json = '{' WHERE seq = 2`,
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "home", "longstop.db")
			s, actions := someLog(t, path)
			before := fmt.Sprint(dump(t, s))
			_, err := s.conn.ExecContext(t.Context(), `PRAGMA foreign_keys = 0; `+sql+`; PRAGMA foreign_keys = 1`)
			must(t, err)
			var d *Difference
			if _, err := s.CheckProjections(t.Context()); !errors.As(err, &d) || !strings.Contains(d.Error(), field) {
				t.Fatalf("%v, want it to name %s", err, field)
			}
			if id := string(actions[1].ID); d.Row != id && d.Row != "act_X" {
				t.Errorf("%v: want it to name %s", d, id)
			}
			if _, err := s.Rebuild(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := fmt.Sprint(dump(t, s)); after != before {
				t.Errorf("rebuilt\n%s\nfrom\n%s", after, before)
			}
			if _, err := s.CheckProjections(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReplayOfAnEarlierVersion: entries that do not say what changed give nothing, and that is said; the
// rows that they made stay.
func TestReplayOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "home", "longstop.db")
	s, actions := someLog(t, path)
	_, err := s.conn.ExecContext(t.Context(), `UPDATE entries SET bytes = cast(replace(cast(bytes AS TEXT), '"patch"', '"other"') AS BLOB) WHERE idx < 5`)
	must(t, err)
	newer := newAction("web-1")
	put(t, s, newer, journal.Requested)
	before := fmt.Sprint(dump(t, s))
	for _, check := range []func() (Replayed, error){
		func() (Replayed, error) { return s.CheckProjections(t.Context()) },
		func() (Replayed, error) { return s.Rebuild(t.Context()) },
		func() (Replayed, error) { return s.CheckProjections(t.Context()) },
	} {
		if done, err := check(); err != nil || !reflect.DeepEqual(done, Replayed{Rows: 1, Earlier: len(actions), From: 5}) {
			t.Errorf("%+v, %v", done, err)
		}
	}
	if after := fmt.Sprint(dump(t, s)); after != before {
		t.Errorf("rebuilt\n%s\nfrom\n%s", after, before)
	}
}

// TestPointSecretsAreNotStored: what is configured as secret is in no byte of the database, wherever in an action, an
// entry, raw bytes, a host or a session somebody wrote it; and the log still gives what is stored.
func TestPointSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	const secret = "pa55word-of-the-database"
	path := filepath.Join(t.TempDir(), "home", "longstop.db")
	s := open(t, path)
	r, err := redact.New([]string{secret}, nil)
	must(t, err)
	s.Redact(r)
	a := newAction("web-1")
	a.Request.Argv, a.SSHCommand.Noise, a.Launch.Message = []string{"psql", secret}, "Welcome, "+secret, "it said "+secret
	a.Workload.Left = []longstop.Process{{PID: 7, Command: "psql " + secret}}
	why := entryFor(a, journal.Requested)
	why.By, why.Body = "operator "+secret, []byte(`{"says":["`+secret+`"]}`)
	host := &Host{Host: longstop.Host{Name: "web-1"}}
	host.Hello = &longstop.HostHello{Notes: []string{"it prints " + secret}}
	session := longstop.Session{ID: a.SessionID, Purpose: "to use " + secret, StartedBy: longstop.Requester{Kind: "operator", Name: "anna"}}
	must(t, s.Update(t.Context(), func(tx *Tx) error {
		return errors.Join(tx.PutSession(&session, journal.Entry{At: longstop.At(clock), Kind: journal.SessionStarted}),
			tx.PutAction(a, nil, why, Raw{"record", []byte(`{"command":"` + secret + `"}`)}), tx.PutHost(host, enrolled))
	}))
	if a.Request.Argv[1] != redact.Mark || a.SSHCommand.Noise != "Welcome, "+redact.Mark {
		t.Errorf("the action is %+v", a)
	}
	verify(t, s)
	if _, err := s.CheckProjections(t.Context()); err != nil {
		t.Error(err)
	}
	must(t, s.Close())
	for _, name := range []string{path, path + "-wal"} {
		data, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if at := strings.Index(string(data), secret); at >= 0 {
			t.Errorf("%s has it: …%q", name, data[max(0, at-80):at])
		}
	}
}

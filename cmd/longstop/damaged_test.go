package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// A journal that was damaged while no gateway ran is not added to: whoever asks is told its first bad place, people are
// by the webhook, the same trouble under the same id, and journal verify names the same place.
func TestPointJournalDamagedAtTheStart(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs everything")
	}
	t.Parallel()
	notices := make(chan longstop.Notice, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n longstop.Notice
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		notices <- n
	}))
	t.Cleanup(hook.Close)
	server, home := sshtest.Start(t, sshtest.Options{}), sshtest.ShortDir(t)
	gateway := filepath.Join(home, "gw")
	s := &site{t: t, programs: build(t), env: append(os.Environ(), "HOME="+home, "LONGSTOP_HOME="+gateway, "SSH_AUTH_SOCK=")}
	s.must("host", "add", "loop", "--ssh-config", server.SSHConfig, "--direct")
	s.must("daemon", "stop")
	if err := os.WriteFile(filepath.Join(gateway, "longstopd.json"), fmt.Appendf(nil, `{"escalate": {"webhook": {"url": %q}}}`, hook.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := fmt.Sprintf("entry %d", damage(t, filepath.Join(gateway, "longstop.db")))

	var ids []string
	for range 2 {
		status, out, talk := s.longstop("ps")
		if status == 0 || out != "" || !strings.Contains(talk, "the journal was changed from outside or damaged") || !strings.Contains(talk, bad) || !strings.Contains(talk, "backup") {
			t.Errorf("ps: exit %d\n%s%s", status, out, talk)
		}
		n := <-notices // sent before ps was answered
		if n.Kind != "gateway_not_started" || !strings.Contains(fmt.Sprint(n.Body), bad) || !strings.Contains(fmt.Sprint(n.Body), gateway) {
			t.Errorf("people were told %+v", n)
		}
		ids = append(ids, n.ID)
	}
	if ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("one trouble has the ids %v", ids)
	}
	if status, out, talk := s.longstop("journal", "verify"); status == 0 || !strings.Contains(out+talk, bad) {
		t.Errorf("journal verify: exit %d\n%s%s", status, out, talk)
	}
}

// damage takes the hashes off a journal's last entry, and returns its number.
func damage(t *testing.T, path string) (entry int64) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	err = db.QueryRow(`SELECT max(idx) FROM entries`).Scan(&entry)
	if err == nil {
		_, err = db.Exec(`PRAGMA ignore_check_constraints = 1; UPDATE entries SET hashes = x'' WHERE idx = ?`, entry)
	}
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

package notify

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The example of the specification: standard-webhooks/spec, its libraries' tests.
func TestWebhookSignature(t *testing.T) {
	t.Parallel()
	secret, err := readSecret(secretFile(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := &Webhook{Secret: secret}
	got := base64.StdEncoding.EncodeToString(w.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)))
	if want := "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSecretFile(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"whsec_!!": false, "short": false, "": false, "sixteen bytes or more": true} {
		if _, err := NewWebhook("https://h.example", secretFile(t, text), time.Second); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWebhookTells(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 0)
	var got *http.Request
	var said []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		said, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	w, err := NewWebhook(server.URL+"/hook", secretFile(t, "a secret of some length"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Tell(t.Context(), "ntc_1", at, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	want := "v1," + base64.StdEncoding.EncodeToString(w.sign("ntc_1", strconv.FormatInt(at.Unix(), 10), []byte(`{"a":1}`)))
	h := got.Header
	if got.Method != "POST" || string(said) != `{"a":1}` || h.Get("webhook-id") != "ntc_1" || h.Get("webhook-timestamp") != "1700000000" ||
		h.Get("webhook-signature") != want || h.Get("content-type") != "application/json" {
		t.Errorf("%s %s %v", got.Method, said, h)
	}
}

// Whatever goes wrong is an error, in time, that does not tell the address.
func TestWebhookFails(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	mux.Handle("/302", http.RedirectHandler(elsewhere.URL, http.StatusFound))
	mux.Handle("/307", http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release)
	for path, want := range map[string]string{"/500": "500", "/302": "302: a redirect", "/307": "307: a redirect", "/hang": "no answer in time", "/cut": "EOF", "/none": "404"} {
		w, err := NewWebhook(server.URL+path+"?key=hunter2", "", 200*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Tell(t.Context(), "ntc_1", time.Now(), nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestCommandTells(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	tell := func(script string, timeout time.Duration) error {
		c := &Command{Argv: []string{"/bin/sh", "-c", script}, Timeout: timeout}
		return c.Tell(context.Background(), "ntc_1", time.Unix(1700000000, 0), []byte(`{"a":1}`))
	}
	if err := tell(`{ cat; echo " $LONGSTOP_NOTICE_ID $LONGSTOP_NOTICE_TIME"; } > `+out, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(out); string(got) != `{"a":1} ntc_1 2023-11-14T22:13:20Z`+"\n" {
		t.Errorf("%q", got)
	}
	if err := tell(`yes no pager | head -c 100000; exit 3`, 10*time.Second); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no pager") || len(err.Error()) > 600 {
		t.Errorf("%v", err)
	}
	if err := (&Command{Argv: []string{"/no/such"}, Timeout: time.Second}).Tell(context.Background(), "", time.Now(), nil); err == nil {
		t.Error("no error of a command that is not there")
	}
}

// A command that takes too long is ended with what it started.
func TestCommandIsEnded(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	c := &Command{Argv: []string{"/bin/sh", "-c", "sleep 600 & echo $! > " + pid + "; wait"}, Timeout: 300 * time.Millisecond}
	if err := c.Tell(context.Background(), "ntc_1", time.Now(), nil); err == nil || !strings.Contains(err.Error(), "longer than 300ms") {
		t.Errorf("%v", err)
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("its child lives")
		}
	}
}

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// serve serves a fake on a socket and gives the client that the command uses.
func serve(t *testing.T, f *fake) (*client.Client, *Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") // t.TempDir() may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	home := client.Home{Dir: dir, Runtime: filepath.Join(dir, "run")}
	if err := home.Make(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	s := New(f, slog.New(slog.DiscardHandler), func() {})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &client.Client{Home: home}, s
}

// raw makes a request as any HTTP client would.
func raw(t *testing.T, c *client.Client, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	resp := open(t, c, method, path, body, header...)
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

// open does too, and leaves the answer's body to be read.
func open(t *testing.T, c *client.Client, method, path, body string, header ...string) *http.Response {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", c.Home.Socket())
	}, DisableKeepAlives: true}}
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://longstop"+path, in)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestCancelTellsItsSteps(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.cancel = func(note func(string)) error {
		note("TERM to 4 processes")
		f.change(func(a *longstop.Action) { a.Workload.State = longstop.WorkloadCancelled })
		return nil
	}
	c, _ := serve(t, f)
	var notes []string
	a, err := c.Cancel(t.Context(), "0001", func(s string) { notes = append(notes, s) })
	if err != nil || a.Workload.State != longstop.WorkloadCancelled || len(notes) != 1 {
		t.Errorf("%v, %v, %v", a.Workload.State, notes, err)
	}
	f.cancel = func(func(string)) error { return &longstop.Error{Code: longstop.CodeRefused, Message: "not this boot"} }
	if _, err = c.Cancel(t.Context(), "0001", func(string) {}); longstop.CodeOf(err) != longstop.CodeRefused {
		t.Errorf("got %v", err)
	}
}

func TestStdinArrivesWhole(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	want := bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 60_000)
	got, err := c.SpoolStdin(t.Context(), io.MultiReader(bytes.NewReader(want[:7]), bytes.NewReader(want[7:])))
	if err != nil || got.Bytes != int64(len(want)) || !bytes.Equal(f.stdin, want) {
		t.Fatalf("%+v, %v: %d bytes", got, err, len(f.stdin))
	}
	// Half a body is no body.
	f.stdin = nil
	if _, err := c.SpoolStdin(t.Context(), io.MultiReader(bytes.NewReader(want[:100]), broken{})); err == nil || f.stdin != nil {
		t.Errorf("a broken input was taken: %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestOutput(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State = longstop.LaunchAccepted
	f.out["stdout"] = []byte("0123456789\xff\x00")
	c, _ := serve(t, f)
	r, err := c.Output(t.Context(), "0001", "stdout", 3)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	r.Close()
	if err != nil || string(data) != "3456789\xff\x00" {
		t.Errorf("%q, %v", data, err)
	}
	f.outErr = &longstop.Error{Code: longstop.CodeUnreachable, Message: "no answer"}
	if _, err := c.Output(t.Context(), "0001", "stdout", 0); longstop.CodeOf(err) != longstop.CodeUnreachable {
		t.Errorf("got %v", err)
	}
}

func TestC143BadRequests(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	huge := `{"host":"` + strings.Repeat("x", maxBody) + `"}`
	for _, bad := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/api/v1/actions", `{"host":"h1","surprise":1}`, 400, "surprise"},
		{"POST", "/api/v1/actions", `{"host":"h1","host":"h2"}`, 400, "host"},
		{"POST", "/api/v1/actions", `{"host":"h1"} {}`, 400, ""},
		{"POST", "/api/v1/actions", ``, 400, ""},
		{"POST", "/api/v1/actions", `[]`, 400, ""},
		{"POST", "/api/v1/actions", huge, 400, "over"},
		{"POST", "/api/v1/actions?follow=yes", `{}`, 400, "follow"},
		{"POST", "/api/v1/actions?stdout=-2&follow=1", `{}`, 400, "stdout"},
		{"GET", "/api/v1/actions?colour=red", ``, 400, "colour"},
		{"GET", "/api/v1/actions?limit=0", ``, 400, "limit"},
		{"GET", "/api/v1/actions?limit=5&limit=6", ``, 400, "twice"},
		{"GET", "/api/v1/actions/act_NONE", ``, 404, "no action"},
		{"GET", "/api/v1/actions/0001/output?stream=stdlog", ``, 400, "stream"},
		{"GET", "/api/v1/actions/0001/wait?timeout_ms=86400000", ``, 400, "timeout_ms"},
		{"GET", "/api/v1/actions/0001/wait?timeout_ms=-1", ``, 400, "timeout_ms"},
		{"GET", "/api/v1/actions/0001/wait?timeout=30", ``, 400, "timeout"},
		{"POST", "/api/v1/actions", `{"host":"h1","request":{"argv":["true"],"deadline_s":"30s"}}`, 400, "deadline_s"},
		{"POST", "/api/v1/actions", `{"host":"h1","request":{"argv":["true"],"timeout_s":30}}`, 400, "timeout_s"},
		{"POST", "/api/v1/actions/0001/cancel", `{}`, 400, "no body"},
		{"GET", "/api/v1/nothing", ``, 404, "no such request"},
		{"PUT", "/api/v1/actions", ``, 404, "no such request"},
	} {
		resp, body := raw(t, c, bad.method, bad.path, bad.body)
		var p longstop.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != longstop.ProblemType {
			t.Errorf("%s %s: %s %q", bad.method, bad.path, resp.Header.Get("Content-Type"), body)
			continue
		}
		if resp.StatusCode != bad.status || p.Status != bad.status || p.Code == "" || !strings.Contains(p.Detail, bad.says) {
			t.Errorf("%s %s %.40s: %d %+v", bad.method, bad.path, bad.body, resp.StatusCode, p)
		}
	}
}

// TestC136WaitIsShort: whoever waits is answered before the limits that clients have, of a minute or so, with what is known;
// what he may ask for is bounded too, and the work is not touched by it.
func TestC136WaitIsShort(t *testing.T) {
	t.Parallel()
	if defaultWait > 45*time.Second {
		t.Errorf("a wait of %v", defaultWait)
	}
	f := newFake()
	c, _ := serve(t, f)
	resp, body := raw(t, c, "GET", "/api/v1/actions/0001/wait?timeout_ms=50", "")
	var a longstop.Action
	if err := json.Unmarshal([]byte(body), &a); err != nil || resp.StatusCode != 200 || a.ID == "" || a.Outcome != longstop.OutcomePending {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	if f.action.Cancel.State != "" && f.action.Cancel.State != longstop.CancelNone {
		t.Errorf("cancelled by a wait: %+v", f.action.Cancel)
	}
}

func TestVersionsAreTold(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	resp, body := raw(t, c, "GET", "/api/v1/hosts", "", longstop.APIHeader, "99")
	if resp.StatusCode != 409 || !strings.Contains(body, "daemon stop") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, _ = raw(t, c, "GET", "/api/v1/status", "", longstop.APIHeader, "99"); resp.StatusCode != 200 {
		t.Errorf("status for another version: %d", resp.StatusCode)
	}
	if got := resp.Header.Get(longstop.APIHeader); got != "1" {
		t.Errorf("%s: %q", longstop.APIHeader, got)
	}
}

func TestEmptyListsAreArrays(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	for _, path := range []string{"/api/v1/actions", "/api/v1/hosts", "/api/v1/journal"} {
		if _, body := raw(t, c, "GET", path, ""); body != "[]" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestGivingUpIsRecordedUnderItsName(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	if err := c.GiveUp(t.Context(), "0001", "interrupted"); err != nil {
		t.Fatal(err)
	}
	if len(f.waits) != 1 || !strings.HasSuffix(f.waits[0], " (interrupted)") {
		t.Errorf("%q", f.waits)
	}
}

func TestOthersAreRefused(t *testing.T) {
	t.Parallel()
	s := New(newFake(), slog.New(slog.DiscardHandler), func() {})
	l, err := net.Listen("tcp", "127.0.0.1:0") // no peer credentials there
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	resp, err := http.Get("http://" + l.Addr().String() + "/api/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("got %d", resp.StatusCode)
	}
}

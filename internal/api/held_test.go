package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
)

// What lasts ends once the token that asked for it is taken back, with what a new request would get.
func TestPointARevokedTokenEndsWhatItAskedFor(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]string{
		"follow":             "GET /api/v1/actions/0001/follow?stdout=0",
		"wait":               "GET /api/v1/actions/0001/wait?timeout_ms=600000",
		"output to come":     "GET /api/v1/actions/0001/output?follow=1&offset=4",
		"a launch":           "POST /api/v1/actions",
		"a followed launch":  "POST /api/v1/actions?follow=1",
		"a followed retry":   "POST /api/v1/actions/0001/retry?follow=1",
		"a cancel":           "POST /api/v1/actions/0001/cancel",
		"a followed cancel":  "POST /api/v1/actions/0001/cancel?follow=1",
		"a followed inquiry": "POST /api/v1/actions/0001/inquire?follow=1",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.action.RequestedBy = longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout"}
			f.action.Launch.State = longstop.LaunchAccepted
			f.lasts = 3 // as it begins, and at two beats
			f.write("stdout", "out\n")
			f.run = func(ctx context.Context, _ gateway.Told) error { <-ctx.Done(); return nil }
			c, s := serve(t, f)
			s.beat = 20 * time.Millisecond
			method, path, _ := strings.Cut(path, " ")
			body := ""
			if method == "POST" && !strings.Contains(path, "cancel") {
				body = `{}`
			}
			resp, got := raw(t, c, method, path, body, "Authorization", "Bearer lst_scout", "Content-Type", "application/json")
			if !strings.Contains(got, string(longstop.CodeTokenRefused)) || f.asked.Load() <= f.lasts {
				t.Errorf("%d, asked %d times: %s", resp.StatusCode, f.asked.Load(), got)
			}
			if stream := resp.Header.Get("Content-Type") == longstop.FollowType; !stream && resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("it is no refusal: %d %s", resp.StatusCode, got)
			}
		})
	}
}

// Output of which a part was sent is cut: nobody takes it for the whole.
func TestPointARevokedTokenCutsItsOutput(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.RequestedBy = longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout"}
	f.write("stdout", "out\n")
	c, s := serve(t, f)
	s.beat = 20 * time.Millisecond
	resp := open(t, c, "GET", "/api/v1/actions/0001/output?follow=1", "", "Authorization", "Bearer lst_scout")
	part := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "out\n" {
		t.Fatalf("%q %v", part, err)
	}
	f.revoked.Store(true)
	if rest, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("it ended as if whole, with %q", rest)
	}
}

// Who has no token is asked once; and what a token still holds goes on.
func TestPointWhoHoldsGoesOn(t *testing.T) {
	t.Parallel()
	for _, header := range [][]string{nil, {"Authorization", "Bearer lst_scout"}} {
		f := newFake()
		f.revoked.Store(header == nil)
		c, s := serve(t, f)
		s.beat = time.Millisecond
		if header != nil { // over only after it was asked again, twice
			f.onAsked = func(times int32) {
				if times == 3 {
					f.finish(0)
				}
			}
		} else { // nobody is to be asked: nothing tells of a beat
			timer := time.AfterFunc(50*time.Millisecond, func() { f.finish(0) })
			defer timer.Stop()
		}
		if resp, got := raw(t, c, "GET", "/api/v1/actions/0001/wait", "", header...); resp.StatusCode != http.StatusOK {
			t.Errorf("%v: %d %s", header, resp.StatusCode, got)
		}
		if times := f.asked.Load(); header == nil && times != 0 {
			t.Errorf("who has no token was asked for one %d times", times)
		}
	}
}

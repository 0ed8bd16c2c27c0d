package gateway_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

func TestPointTokensAreHashedExpireAndAreRevoked(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	ctx := t.Context()
	made, err := b.CreateToken(ctx, longstop.TokenRequest{Name: "scout", ExpiresS: 60}, operator)
	b.must(err)
	who, err := b.Agent(ctx, made.Secret)
	if err != nil || who.Kind != longstop.RequesterAgent || who.Name != "scout" {
		t.Fatalf("%+v, %v", who, err)
	}
	if _, err := b.CreateToken(ctx, longstop.TokenRequest{Name: "scout"}, operator); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("a second token of one name: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(b.home, "*"))
	b.must(err)
	for _, name := range files {
		if data, _ := os.ReadFile(name); bytes.Contains(data, []byte(made.Secret)) {
			t.Errorf("%s has the token itself", name)
		}
	}

	// The name that an action bears is the token's, whatever its request says.
	a, err := b.Run(ctx, longstop.RunRequest{Host: "loop", Request: longstop.Request{Argv: []string{"true"}},
		By: longstop.Requester{Kind: "operator", Name: "root", Via: "cli"}}, who, gateway.Told{})
	b.must(err)
	if a.RequestedBy != (longstop.Requester{Kind: "agent", Name: "scout", Via: "cli"}) {
		t.Errorf("requested by %+v", a.RequestedBy)
	}

	b.stop()
	b.shift = 2 * time.Minute
	b.start()
	if _, err := b.Agent(ctx, made.Secret); longstop.CodeOf(err) != longstop.CodeTokenRefused {
		t.Errorf("an expired token: %v", err)
	}
	b.must(b.RevokeToken(ctx, "scout", operator))
	if err := b.RevokeToken(ctx, "scout", operator); longstop.CodeOf(err) != longstop.CodeNotFound {
		t.Errorf("revoked twice: %v", err)
	}
	again, err := b.CreateToken(ctx, longstop.TokenRequest{Name: "scout"}, operator)
	b.must(err)
	if _, err := b.Agent(ctx, again.Secret); err != nil {
		t.Errorf("the new token: %v", err)
	}
	list, err := b.Tokens(ctx)
	if err != nil || len(list) != 2 || !list[0].RevokedAt.IsZero() || list[1].RevokedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
}

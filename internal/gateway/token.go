package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// tokenPrefix begins every token, so that one that leaks is found by those who look for secrets.
const tokenPrefix = "lst_"

// tokenSays is the body of a token_created entry. A hash of so many random bits is no way back to them.
type tokenSays struct {
	longstop.Token
	Hash string `json:"hash"`
}

// CreateToken makes a token for an agent. Its secret is in the answer and nowhere else: 130 random bits,
// of which the hash needs no salt.
func (g *Gateway) CreateToken(ctx context.Context, req longstop.TokenRequest, by longstop.Requester) (longstop.NewToken, error) {
	if req.Name == "" || len(req.Name) > 64 || !printable(req.Name) {
		return longstop.NewToken{}, tokenUsage("a token's name: want 1 to 64 ASCII letters, digits and signs, no spaces")
	}
	if g.cfg.Redact.Has(req.Name) {
		return longstop.NewToken{}, tokenUsage("the token's name has something in it that longstopd.json says is secret, and it would be kept and shown")
	}
	if math.IsNaN(req.ExpiresS) || req.ExpiresS < 0 || req.ExpiresS > maxSeconds {
		return longstop.NewToken{}, tokenUsage("a token expires after a time from 0 to 100 years")
	}
	made := longstop.NewToken{Secret: tokenPrefix + rand.Text(), Token: longstop.Token{Name: req.Name, CreatedAt: g.now()}}
	if req.ExpiresS > 0 {
		made.ExpiresAt = longstop.At(made.CreatedAt.Add(seconds(req.ExpiresS)))
	}
	hash := hashOf(made.Secret)
	err := g.store.Update(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Append(journal.Entry{At: made.CreatedAt, Kind: journal.TokenCreated, By: words(by), Body: body(tokenSays{made.Token, hex.EncodeToString(hash)})})
		if err != nil {
			return err
		}
		return tx.AddToken(made.Token, hash)
	})
	if err != nil {
		return longstop.NewToken{}, err
	}
	return made, nil
}

func tokenUsage(message string) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: message, Hint: "longstop token create --help"}
}

// Tokens lists all tokens, revoked and expired ones too, newest first.
func (g *Gateway) Tokens(ctx context.Context) ([]longstop.Token, error) { return g.store.Tokens(ctx) }

// RevokeToken takes a token back: the next request that shows it is refused, and what it has open ends. What runs goes on.
func (g *Gateway) RevokeToken(ctx context.Context, name string, by longstop.Requester) error {
	return g.store.Update(ctx, func(tx *sqlite.Tx) error {
		at := g.now()
		there, err := tx.RevokeToken(name, at)
		if err != nil {
			return err
		}
		if !there {
			return &longstop.Error{Code: longstop.CodeNotFound, Message: "there is no token " + name + " that could be revoked", Hint: "longstop token list"}
		}
		_, err = tx.Append(journal.Entry{At: at, Kind: journal.TokenRevoked, By: words(by), Body: body(map[string]any{"name": name})})
		return err
	})
}

// Agent is who shows a token, or longstop.CodeTokenRefused.
func (g *Gateway) Agent(ctx context.Context, secret string) (longstop.Requester, error) {
	t, there, err := g.store.Token(ctx, hashOf(secret))
	if err != nil {
		return longstop.Requester{}, err
	}
	refused := &longstop.Error{Code: longstop.CodeTokenRefused, Hint: "an operator makes a new one: longstop token create NAME"}
	switch {
	case !there:
		refused.Message = "the token is not known here"
		refused.Hint = "LONGSTOP_TOKEN is what longstop token create printed, for this very gateway"
	case !t.RevokedAt.IsZero():
		refused.Message = "the token " + t.Name + " was revoked at " + t.RevokedAt.Format(time.RFC3339)
	case !t.ExpiresAt.IsZero() && !g.now().Before(t.ExpiresAt.Time):
		refused.Message = "the token " + t.Name + " expired at " + t.ExpiresAt.Format(time.RFC3339)
	default:
		return longstop.Requester{Kind: longstop.RequesterAgent, Name: t.Name, Via: "http"}, nil
	}
	return longstop.Requester{}, refused
}

func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

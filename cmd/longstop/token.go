package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) tokenVerb() *cobra.Command {
	return group(&cobra.Command{
		Use:   "token",
		Short: "Give agents a name: make tokens, list and revoke them",
		Long: `A token is how an agent is known by its name: with LONGSTOP_TOKEN set, what longstop does is done by that agent,
and only what agents may do is done at all: start, look, wait, stop. An agent never approves, resolves, enrols
hosts, changes the policy, makes tokens or ends the gateway.`,
	}, "longstop token create|list|revoke",
		a.tokenCreate(), a.tokenList(), a.tokenRevoke())
}

func (a *app) tokenCreate() *cobra.Command {
	var expires string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token and print it, once",
		Long: `Make a token for an agent and print it: this once, for the gateway keeps its hash alone. NAME is what the
journal calls the agent.`,
		Example: `  export LONGSTOP_TOKEN=$(longstop token create ci --expires 30d)`,
		Args:    exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			lasts, err := days("--expires", expires)
			if err != nil {
				return err
			}
			return a.createToken(c.Context(), longstop.TokenRequest{Name: args[0], ExpiresS: lasts.Seconds()})
		},
	}
	c.Flags().StringVar(&expires, "expires", "", "how long it is good for: 90m, 8h, 30d (default until it is revoked)")
	a.jsonFlag(c, "the token")
	return c
}

// days reads a length of time that may be in days; none is 0.
func days(flag, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if n, isDays := strings.CutSuffix(text, "d"); isDays {
		var whole uint64
		whole, err = strconv.ParseUint(n, 10, 16)
		d = time.Duration(whole) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return 0, usage("write it as 90m, 8h or 30d", "%s %s is no length of time", flag, plain(text))
	}
	return d, nil
}

func (a *app) createToken(ctx context.Context, req longstop.TokenRequest) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	made, err := gateway.CreateToken(ctx, req)
	if err != nil {
		return err
	}
	until := "it is good until longstop token revoke " + plain(made.Name)
	if !made.ExpiresAt.IsZero() {
		until = "it expires at " + clock(made.ExpiresAt, a.now())
	}
	if a.json {
		a.printJSON(made)
	} else {
		fmt.Fprintln(a.out, made.Secret)
	}
	a.talk.note("token of %s%sshown this once%s%s", plain(made.Name), between, between, until)
	return nil
}

func (a *app) tokenList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "Tokens, newest first; never what they are",
		Args:  exactly(),
		RunE:  listing(a, (*client.Client).Tokens, tokenTable, "no tokens: longstop token create NAME makes one for an agent", ""),
	}
	a.jsonFlag(c, "the tokens as one array")
	return c
}

func tokenTable(list []longstop.Token, now time.Time) *table {
	t := new(table)
	t.row("", "NAME", "MADE", "STATE")
	for _, token := range list {
		t.row("", plain(token.Name), clock(token.CreatedAt, now), tokenState(token, now))
	}
	return t
}

func tokenState(t longstop.Token, now time.Time) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked " + clock(t.RevokedAt, now)
	case t.ExpiresAt.IsZero():
		return "good"
	case !now.Before(t.ExpiresAt.Time):
		return "expired " + clock(t.ExpiresAt, now)
	}
	return "good until " + clock(t.ExpiresAt, now)
}

func (a *app) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Take a token back: its next request is refused",
		Long: `Take a token back: its next request is refused. What its agent started goes on; longstop sessions shows it, and
longstop session end stops it.`,
		Args: exactly("NAME"),
		RunE: a.asks(func(ctx context.Context, gateway *client.Client, args []string) error {
			if err := gateway.RevokeToken(ctx, args[0]); err != nil {
				return err
			}
			a.talk.note("the token of %s is revoked", plain(args[0]))
			return nil
		}),
	}
}

package main

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/spf13/pflag"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// inquiryFlags are what `longstop reconcile` was told to ask the application.
type inquiryFlags struct {
	preflight, verify bool
	script            string
}

func (q *inquiryFlags) define(flags *pflag.FlagSet) {
	flags.BoolVar(&q.preflight, "preflight", false, "run the action's preflight: is the work still to be done?")
	flags.BoolVar(&q.verify, "verify", false, "run the action's verify: has the work had its effect?")
	flags.StringVar(&q.script, "with-script", "", "run this instead of the action's own (for sh -c)")
}

// ask is what is to be asked of the application, nil for nothing.
func (q *inquiryFlags) ask(ids []string) (*longstop.InquireRequest, error) {
	switch {
	case q.preflight && q.verify:
		return nil, usage("one after the other", "--preflight and --verify exclude each other")
	case !q.preflight && !q.verify && q.script == "":
		return nil, nil
	case !q.preflight && !q.verify:
		return nil, usage("with --preflight or --verify", "--with-script needs to know what it answers")
	case q.script != "" && strings.TrimSpace(q.script) == "":
		return nil, usage("", "--with-script is empty")
	case len(ids) != 1:
		return nil, usage("", "the application is asked about one action at a time")
	}
	ask := &longstop.InquireRequest{Kind: longstop.InquiryVerify, Script: q.script, Key: "cli-" + rand.Text(), By: longstop.Requester{Via: "cli"}}
	if q.preflight {
		ask.Kind = longstop.InquiryPreflight
	}
	return ask, nil
}

// inquire asks the application about an action, and says where the answer is kept.
func (a *app) inquire(ctx context.Context, ask *longstop.InquireRequest, ids []string, err error) error {
	a.verb = "run" // its statuses are
	if err != nil {
		return err
	}
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	about, err := gateway.Action(ctx, ids[0])
	if err != nil {
		return err
	}
	err = a.launch(ctx, gateway, false, func(ctx context.Context, from client.Offsets) (*client.Follow, error) {
		return gateway.Inquire(ctx, string(about.ID), *ask, from)
	})
	a.talk.note("longstop show %s has it beside its facts", about.ID)
	return err
}

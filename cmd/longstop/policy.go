package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/policy"
)

func (a *app) policyVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Say what may be run: check, explain, show and set the policy",
		Long: `The policy is one file of rules. The first rule that matches a request allows it, denies it, or has a person asked
(longstop approvals). Without a policy everything is allowed. docs/policy.md has an example of each field.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usage("longstop policy check|explain|show|set", "policy has no verb %q", plain(args[0]))
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.policyCheck(), a.policyExplain(), a.policyShow(), a.policySet())
	return c
}

func (a *app) policyCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Read a policy file, and say what is wrong with it and where",
		Long: `Read a policy file ("-" is standard input) and say what is wrong with it: FILE:LINE:COLUMN: what, a line each.
No gateway is asked.`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := a.readPolicy(args[0])
			if err != nil {
				return err
			}
			if a.json {
				a.printJSON(longstop.Policy{Digest: p.Digest(), Text: p.Text()})
				return nil
			}
			fmt.Fprintf(a.out, "%s: %s%s%s\n", plain(args[0]), p.Summary(), between, p.Digest())
			return nil
		},
	}
	a.jsonFlag(c, "the policy")
	return c
}

// readPolicy reads a policy file. What is wrong with it is said as compilers do.
func (a *app) readPolicy(path string) (*policy.Policy, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, usage("", "the policy file: %v", err)
		}
		defer file.Close()
	}
	text, err := io.ReadAll(io.LimitReader(file, policy.MaxFile+1))
	if err != nil {
		return nil, usage("", "the policy file: %v", err)
	}
	p, err := policy.Parse(text)
	if errs := (policy.Errors)(nil); errors.As(err, &errs) {
		if a.json {
			return nil, usage("", "%s", errs.In(path))
		}
		a.talk.problem(plainLines(errs.In(path), "") + "\n")
		return nil, status(longstop.ExitOurs)
	}
	return p, err
}

func (a *app) policyShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "The policy that holds, as it was given",
		Args:  exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			gateway, err := a.gateway()
			if err != nil {
				return err
			}
			p, err := gateway.Policy(c.Context())
			if err != nil {
				return err
			}
			switch {
			case a.json:
				a.printJSON(p)
			case p.Digest == "":
				a.talk.note("there is no policy: everything is allowed%slongstop policy set FILE", between)
			default:
				fmt.Fprint(a.out, p.Text)
				a.talk.note("%s", p.Digest)
			}
			return nil
		},
	}
	a.jsonFlag(c, "the policy")
	return c
}

func (a *app) policySet() *cobra.Command {
	var as string
	c := &cobra.Command{
		Use:   "set FILE",
		Short: "Let another policy hold (in a terminal)",
		Long: `Let the policy of a file hold, from the next request on. An approver proves in a terminal that they want it; the
file, and the proof, are kept in the journal. What runs or waits already is not looked at again.`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error { return a.setPolicy(c.Context(), args[0], as) },
	}
	c.Flags().StringVar(&as, "as", "", "the approver who signs the change (default the only one)")
	a.jsonFlag(c, "the policy")
	return c
}

func (a *app) setPolicy(ctx context.Context, path, as string) error {
	p, err := a.readPolicy(path)
	if err != nil {
		return err
	}
	person, err := personsTerminal()
	if err != nil {
		return err
	}
	defer person.Close()
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	person.show(fmt.Sprintf("%s, %s:\n%s\n", plain(path), p.Summary(), numbered(p.Text())))
	about := longstop.ChallengeRequest{Kind: longstop.ChallengePolicy, Approver: as, Content: p.Digest()}
	proof, err := person.prove(ctx, gateway, about, approver.Fact{Name: "content", Value: about.Content})
	if err != nil {
		return err
	}
	held, err := gateway.SetPolicy(ctx, longstop.PolicyChange{Text: p.Text(), Proof: proof})
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(held)
	}
	a.talk.note("this policy holds from now on%s%s", between, held.Digest)
	return nil
}

func (a *app) policyExplain() *cobra.Command {
	var f runFlags
	var path, as string
	c := &cobra.Command{
		Use:   "explain HOST [flags] [-c SCRIPT | -- COMMAND [ARG…]]",
		Short: "Say what the policy would say to a run, and why; nothing is run",
		Long: `Say what the policy would say to a run: which rule decides, what limits it sets, and what the script would leave
behind. It takes the flags of longstop run, and runs nothing. The gateway's policy is asked, for whoever asks;
--policy asks a file instead, and --as asks for somebody else, both without anything of the host but its name.`,
		Example: `  longstop policy explain web-1 -- ./migrate.sh
  longstop policy explain --policy policy.yaml --as agent:ci web-1 -c 'make && sudo systemctl restart app'`,
		RunE: func(c *cobra.Command, args []string) error { return a.explain(c, args, &f, path, as) },
	}
	c.Flags().StringVar(&path, "policy", "", "a policy file to ask instead of the gateway's (\"-\" is standard input)")
	c.Flags().StringVar(&as, "as", "", "who is to be asking: operator:NAME or agent:NAME")
	f.define(c.Flags())
	a.jsonFlag(c, "the verdict")
	c.ValidArgsFunction = a.completeHosts
	return c
}

func (a *app) explain(c *cobra.Command, args []string, f *runFlags, path, as string) error {
	host, r, err := f.request(c, args)
	if err != nil {
		return err
	}
	by, err := requesterOf(as)
	if err != nil {
		return err
	}
	v, err := a.verdict(c.Context(), host, r, f, path, by)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(v)
		return nil
	}
	fmt.Fprint(a.out, verdictPage(&v))
	return nil
}

// requesterOf reads --as; nobody is nil.
func requesterOf(as string) (*longstop.Requester, error) {
	if as == "" {
		return nil, nil
	}
	kind, name, _ := strings.Cut(as, ":")
	if kind != longstop.RequesterOperator && kind != longstop.RequesterAgent || name == "" {
		return nil, usage("--as operator:anna, or --as agent:NAME as in longstop token list", "--as %s is nobody", plain(as))
	}
	return &longstop.Requester{Kind: kind, Name: name, Via: "cli"}, nil
}

// verdict asks the gateway, or decides here by a file or for somebody else.
func (a *app) verdict(ctx context.Context, host string, r longstop.Request, f *runFlags, path string, by *longstop.Requester) (v longstop.PolicyVerdict, err error) {
	var p *policy.Policy
	if path != "" {
		if p, err = a.readPolicy(path); err != nil {
			return v, err
		}
	} else {
		gateway, err := a.gateway()
		if err != nil {
			return v, err
		}
		if by == nil {
			env, err := environment(f.env, os.LookupEnv)
			if err != nil {
				return v, err
			}
			return gateway.ExplainPolicy(ctx, longstop.RunRequest{Host: host, Request: r, EnvValues: env, By: longstop.Requester{Via: "cli"}})
		}
		held, err := gateway.Policy(ctx)
		if err != nil {
			return v, err
		}
		if held.Digest != "" {
			if p, err = policy.Parse([]byte(held.Text)); err != nil {
				return v, err
			}
		}
	}
	if by == nil {
		by = &longstop.Requester{Kind: longstop.RequesterOperator, Via: "cli"}
		if me, err := user.Current(); err == nil {
			by.Name = me.Username
		}
	}
	r.TakeDefaults()
	decided := p.Decide(policy.Question{Host: host, By: *by, Request: r})
	decided.Bind(&r)
	return decided.Shown(p.Digest()), nil
}

// verdictPage is a verdict for people.
func verdictPage(v *longstop.PolicyVerdict) string {
	var out strings.Builder
	line := func(name string, parts ...string) {
		if parts = filled(parts); parts[0] != "-" {
			fmt.Fprintf(&out, "  %-9s %s\n", name, strings.Join(parts, between))
		}
	}
	switch {
	case v.Policy == "":
		out.WriteString("allow: there is no policy\n")
	case v.Rule == "default":
		fmt.Fprintf(&out, "%s: no rule matches, and this is the default\n", plain(v.Decision))
	default:
		fmt.Fprintf(&out, "%s: %s, line %d\n", plain(v.Decision), ruleName(v.Rule), v.Line)
	}
	line("reason", plain(v.Reason))
	line("matches", plain(v.Because))
	line("denied", plain(v.Exceeds))
	line("limits", limitsOfRule(v)...)
	if v.ApprovalTTLS > 0 && v.Decision == "ask" {
		line("approval", "a person is asked, for "+seconds(v.ApprovalTTLS)+" at most")
	}
	for i := range v.Findings {
		line(onlyFirst("reads", i), findingLine(&v.Findings[i]))
	}
	line("policy", plain(v.Policy))
	return out.String()
}

func limitsOfRule(v *longstop.PolicyVerdict) (parts []string) {
	l, given := &v.Limits, strings.Join(v.Given, " ")
	if l.DeadlineS > 0 {
		text := "a deadline of " + seconds(l.DeadlineS) + " at most"
		if strings.Contains(given, "deadline_s") {
			text += ", which this run gets"
		}
		parts = append(parts, text)
	}
	if l.OutputMaxBytes > 0 {
		text := number(l.OutputMaxBytes) + " bytes kept of each output stream at most"
		if strings.Contains(given, "output_max_bytes") {
			text += ", which this run gets"
		}
		parts = append(parts, text)
	}
	if l.PerHost > 0 {
		parts = append(parts, fmt.Sprintf("%d unresolved on the host at once", l.PerHost))
	}
	if l.PerRequester > 0 {
		parts = append(parts, fmt.Sprintf("%d unresolved of one requester at once", l.PerRequester))
	}
	return parts
}

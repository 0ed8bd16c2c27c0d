package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) policyVerb() *cobra.Command {
	return group(&cobra.Command{
		Use:   "policy",
		Short: "Say what may be run: check, explain, show and set the policy",
		Long: `The policy is one file of rules. The first rule that matches a request allows it, denies it, or has a person asked
(longstop approvals). Without a policy everything is allowed. docs/policy.md has an example of each field.`,
	}, "longstop policy check|explain|show|set",
		a.policyCheck(), a.policyExplain(), a.policyShow(), a.policySet())
}

func (a *app) policyCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Read a policy file, and say what is wrong with it and where",
		Long: `Have the gateway read a policy file ("-" is standard input), and say what is wrong with it: FILE:LINE:COLUMN: what,
a line each. A warning is about a rule that is never reached, or that rests on what callers say of themselves: the
policy can hold so. Nothing is changed.`,
		Args: exactly("FILE"),
		RunE: a.asks(func(ctx context.Context, gateway *client.Client, args []string) error {
			p, err := a.readPolicy(ctx, gateway, args[0])
			if err != nil {
				return err
			}
			if a.json {
				a.printJSON(checked{longstop.Policy{Digest: p.Digest, Text: p.text}, p.Warnings})
				return nil
			}
			a.warnOf(&p, args[0])
			fmt.Fprintf(a.out, "%s: %s%s%s\n", plain(args[0]), plain(p.Summary), between, plain(p.Digest))
			return nil
		}),
	}
	a.jsonFlag(c, "the policy")
	return c
}

// policyFile is a file that is a policy.
type policyFile struct {
	longstop.PolicyCheck
	text string
}

// checked is a policy, and what it may be taken with.
type checked struct {
	longstop.Policy
	Warnings []longstop.PolicyProblem `json:"warnings,omitempty"`
}

func (a *app) warnOf(p *policyFile, path string) {
	for _, w := range p.Warnings {
		a.talk.problem(plain(fmt.Sprintf("%s:%d:%d: warning: %s", path, w.Line, w.Column, w.Message)) + "\n")
	}
}

// readPolicy reads a policy file and has it checked. What is wrong with it is said as compilers do.
func (a *app) readPolicy(ctx context.Context, gateway *client.Client, path string) (p policyFile, err error) {
	text, err := readFile("the policy file", path, longstop.MaxPolicy)
	if err != nil {
		return p, err
	}
	if p.text = string(text); !utf8.Valid(text) {
		return p, usage("", "%s is not UTF-8 text", plain(path))
	}
	if p.PolicyCheck, err = gateway.CheckPolicy(ctx, p.text); err != nil || len(p.Problems) == 0 {
		return p, err
	}
	lines := make([]string, len(p.Problems))
	for i, wrong := range p.Problems {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", path, wrong.Line, wrong.Column, wrong.Message)
	}
	said := strings.Join(lines, "\n")
	if a.json {
		return p, usage("", "%s", said)
	}
	a.talk.problem(plainLines(said, "") + "\n")
	return p, status(longstop.ExitOurs)
}

func (a *app) policyShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "The policy that holds, as it was given",
		Args:  exactly(),
		RunE: a.asks(func(ctx context.Context, gateway *client.Client, _ []string) error {
			p, err := gateway.Policy(ctx)
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
		}),
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
	asFlag(c, &as)
	a.jsonFlag(c, "the policy")
	return c
}

func (a *app) setPolicy(ctx context.Context, path, as string) error {
	return a.dialogue(func(person *terminal, gateway *client.Client) error {
		p, err := a.readPolicy(ctx, gateway, path)
		if err != nil {
			return err
		}
		a.warnOf(&p, path)
		person.show(fmt.Sprintf("%s, %s:\n%s\n", plain(path), plain(p.Summary), numbered(p.text)))
		shown := approver.Content([]byte(p.text)) // whatever the gateway says that its digest is
		proof, err := person.prove(ctx, gateway, longstop.ChallengeRequest{Kind: longstop.ChallengePolicy, Approver: as, Content: shown})
		if err != nil {
			return err
		}
		held, err := gateway.SetPolicy(ctx, longstop.PolicyChange{Text: p.text, Proof: proof})
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(held)
		}
		a.talk.note("this policy holds from now on%s%s", between, held.Digest)
		return nil
	})
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
	env, err := environment(f.env, os.LookupEnv)
	if err != nil {
		return err
	}
	by, err := requesterOf(as)
	if err != nil {
		return err
	}
	run := longstop.RunRequest{Host: host, Request: r, EnvValues: env, By: longstop.Requester{Via: "cli"}}
	v, err := a.verdict(c.Context(), run, path, by)
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

// verdict asks the gateway: about its policy or that of a file, for whoever asks or for somebody else.
func (a *app) verdict(ctx context.Context, run longstop.RunRequest, path string, as *longstop.Requester) (v longstop.PolicyVerdict, err error) {
	gateway, err := a.gateway()
	if err != nil {
		return v, err
	}
	question := longstop.PolicyQuestion{Run: run, As: as}
	if path != "" {
		p, err := a.readPolicy(ctx, gateway, path)
		if err != nil {
			return v, err
		}
		question.Text = &p.text
	}
	return gateway.ExplainPolicy(ctx, question)
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

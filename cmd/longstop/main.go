// Command longstop runs commands on other machines and knows what became of the work. It is a thin
// client of the gateway's API (internal/client): one file per verb, flags, words for people, exit
// statuses. stdout is data, stderr is talk.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func main() {
	a := &app{out: os.Stdout, talk: newTalk(os.Stderr), now: time.Now, args: os.Args[1:]}
	os.Exit(a.main())
}

// app is one call of the command.
type app struct {
	out  *os.File
	talk *talk
	now  func() time.Time
	args []string

	json bool // the verb was asked for JSON: errors are JSON too

	// begun and verb say, for an error's last line, what the call had done: nothing yet, or asked for
	// an action to be run.
	verb  string
	begun bool

	noGateway bool // none could be started
	// rejected: the error is about an action of which nothing was or will be started, whatever its
	// code means of others.
	rejected bool
}

// status ends the command with an exit status and no words: they were said.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func (a *app) main() int {
	root := a.root()
	root.SetArgs(a.args)
	root.SetOut(os.Stdout)
	root.SetErr(os.Stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	if code := status(0); errors.As(err, &code) {
		return int(code)
	}
	return a.fail(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "longstop",
		Short: "Run commands on other machines, and know what became of the work",
		Long: `Longstop runs commands on other machines over SSH and knows what became of the work: whether it is
still running, and what came of it. The end is the word of its owner on the host; what is not known
is called unknown.

  longstop host add web-1                  enrol a host: what you would type after ssh
  longstop run web-1 -- make test          run, like ssh; Ctrl-C cancels and waits for the proof
  longstop ps                              what is running, and what is not known

stdout is data, stderr is talk. Every verb that reads data takes --json.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			message := fmt.Sprintf("there is no verb %q", args[0])
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				return &longstop.Error{Code: longstop.CodeUsage, Message: message, Hint: "did you mean longstop " + strings.Join(near, ", longstop ") + "?"}
			}
			return &longstop.Error{Code: longstop.CodeUsage, Message: message, Hint: "longstop --help lists them"}
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return flagError(c, err, c.CommandPath()+" --help")
	})
	root.SuggestionsMinimumDistance = 2
	root.PersistentFlags().BoolVarP(&a.talk.quiet, "quiet", "q", false, "no talk on stderr but errors")
	root.PersistentFlags().SortFlags = false
	root.SetHelpCommandGroupID("about")
	root.SetCompletionCommandGroupID("about")
	root.AddGroup(&cobra.Group{ID: "work", Title: "Work:"}, &cobra.Group{ID: "hosts", Title: "Hosts:"}, &cobra.Group{ID: "about", Title: "Longstop itself:"})
	a.addVerbs(root)
	return root
}

// verbs are made by name: a call that names one is spared the others.
var verbs = []struct {
	name, group string
	make        func(*app) *cobra.Command
}{
	{"run", "work", (*app).runVerb},
	{"ps", "work", (*app).psVerb},
	{"show", "work", (*app).showVerb},
	{"logs", "work", (*app).logsVerb},
	{"wait", "work", (*app).waitVerb},
	{"cancel", "work", (*app).cancelVerb},
	{"reconcile", "work", (*app).reconcileVerb},
	{"retry", "work", (*app).retryVerb},
	{"resolve", "work", (*app).resolveVerb},
	{"inspect", "work", (*app).inspectVerb},
	{"approvals", "work", (*app).approvalsVerb},
	{"approve", "work", (*app).approveVerb},
	{"deny", "work", (*app).denyVerb},
	{"revoke", "work", (*app).revokeVerb},
	{"activity", "work", (*app).activityVerb},
	{"journal", "work", (*app).journalVerb},
	{"audit", "work", (*app).auditVerb},
	{"session", "work", (*app).sessionVerb},
	{"sessions", "work", (*app).sessionsVerb},
	{"host", "hosts", (*app).hostVerb},
	{"runner", "hosts", (*app).runnerVerb},
	{"approver", "about", (*app).approverVerb},
	{"policy", "about", (*app).policyVerb},
	{"token", "about", (*app).tokenVerb},
	{"daemon", "about", (*app).daemonVerb},
	{"demo", "about", (*app).demoVerb},
	{"doctor", "about", (*app).doctorVerb},
	{"version", "about", (*app).versionVerb},
}

// addVerbs adds the verb that comes first, or all of them.
func (a *app) addVerbs(root *cobra.Command) {
	add := func(name string) (found bool) {
		for _, v := range verbs {
			if name == v.name || name == "" {
				verb := v.make(a)
				verb.GroupID, verb.SuggestFor, found = v.group, alsoCalled[v.name], true
				root.AddCommand(verb)
			}
		}
		return found
	}
	if len(a.args) > 0 && a.args[0] != "" && add(a.args[0]) {
		root.CompletionOptions.DisableDefaultCmd = true
		return
	}
	add("")
	root.SetHelpCommand(helpVerb())
}

// helpVerb is cobra's, but for a name that is no verb, which it takes for none.
func helpVerb() *cobra.Command {
	return &cobra.Command{
		Use:     "help [VERB]",
		Short:   "Help about a verb",
		GroupID: "about",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return c.Root().Args(about, rest)
			}
			return about.Help()
		},
	}
}

// flagError is a flag that cannot be read: with the flag that was meant, or what its value should be.
func flagError(c *cobra.Command, err error, hint string) error {
	message := err.Error()
	var value *pflag.InvalidValueError
	var absent *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	switch { // pflag's own words for a value are those of strconv
	case errors.As(err, &value) && value.GetFlag().Value.Type() == "duration":
		message, hint = fmt.Sprintf("--%s %s is no length of time", value.GetFlag().Name, plain(value.GetValue())), "write it as 90s, 10m or 6h"
	case errors.As(err, &value):
		message, hint = fmt.Sprintf("%q is no value for --%s", plain(value.GetValue()), value.GetFlag().Name), c.CommandPath()+" --help"
	case errors.As(err, &bare):
		hint = c.CommandPath() + " --help"
	case errors.As(err, &absent) && absent.GetSpecifiedShortnames() == "":
		if near := nearestFlag(c, absent.GetSpecifiedName()); near != "" {
			hint = "did you mean --" + near + "?"
		}
	}
	return &longstop.Error{Code: longstop.CodeUsage, Message: message, Hint: hint}
}

// nearestFlag is the flag of which name is a beginning, or which is one of name but for a letter or two.
func nearestFlag(c *cobra.Command, name string) (near string) {
	verbs := &cobra.Command{SuggestionsMinimumDistance: 2}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		verbs.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	if list := verbs.SuggestionsFor(name); len(list) > 0 {
		near = list[0]
	}
	return near
}

// alsoCalled are names that other programs have for a verb.
var alsoCalled = map[string][]string{
	"activity": {"events", "history"},
	"approve":  {"accept", "allow", "grant", "permit"},
	"approver": {"passphrase", "reviewer"},
	"cancel":   {"abort", "kill", "stop", "terminate"},
	"deny":     {"forbid", "refuse", "reject"},
	"host":     {"enrol", "enroll"},
	"logs":     {"output", "tail"},
	"policy":   {"permissions", "rules"},
	"ps":       {"jobs", "list", "ls", "status", "top"},
	"retry":    {"again", "redo", "repeat", "rerun"},
	"run":      {"exec", "ssh", "start", "submit"},
	"token":    {"key", "login"},
	"show":     {"describe", "get", "info", "status"},
	"wait":     {"attach", "follow", "join"},
}

// group makes a command of verbs, which by itself shows its help.
func group(c *cobra.Command, hint string, verbs ...*cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usage(hint, "%s has no verb %q", c.Name(), plain(args[0]))
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(verbs...)
	return c
}

// jsonFlag gives a verb its --json.
func (a *app) jsonFlag(c *cobra.Command, what string) {
	c.Flags().BoolVar(&a.json, "json", false, what+" as JSON on stdout; an error as {\"error\": {…}} there too")
}

// gateway is the client of this user's gateway, which is started where it is absent.
func (a *app) gateway() (*client.Client, error) {
	c, err := a.present()
	if err != nil {
		return nil, err
	}
	c.Home.LendAgent(os.Getenv)
	c.OnAbsent = func(ctx context.Context) error {
		err := client.Start(ctx, c.Home)
		a.noGateway = err != nil
		return err
	}
	return c, nil
}

// asks is how a verb runs that asks the gateway.
func (a *app) asks(do func(ctx context.Context, gateway *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		gateway, err := a.gateway()
		if err != nil {
			return err
		}
		return do(c.Context(), gateway, args)
	}
}

// present is the client of a gateway that runs already, or client.ErrAbsent at its first use.
func (a *app) present() (*client.Client, error) {
	home, err := client.FindHome(os.Getenv)
	if err != nil {
		return nil, err
	}
	token, set := os.LookupEnv("LONGSTOP_TOKEN")
	if set && token == "" || plain(token) != token || strings.ContainsAny(token, " ,") {
		return nil, &longstop.Error{Code: longstop.CodeTokenRefused, Message: "LONGSTOP_TOKEN is set and is no token",
			Hint: "it is what longstop token create printed, on one line; without the variable you are the operator"}
	}
	return &client.Client{Home: home, Token: token}, nil
}

// ids refuses a verb without an action.
func ids(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &longstop.Error{Code: longstop.CodeUsage, Message: c.CommandPath() + " needs the id of an action (or a part of it that fits no other)",
			Hint: "longstop ps -a lists them"}
	}
	return nil
}

// exactly refuses any other number of arguments than the named ones.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(args) < len(names) {
			return &longstop.Error{Code: longstop.CodeUsage, Message: c.CommandPath() + " needs " + strings.Join(names, " "),
				Hint: c.CommandPath() + " --help"}
		}
		want := "no arguments"
		if len(names) > 0 {
			want = strings.Join(names, " ")
		}
		return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("%s takes %s, not %s", c.CommandPath(), want, count(len(args), "argument", "arguments")),
			Hint: c.CommandPath() + " --help"}
	}
}

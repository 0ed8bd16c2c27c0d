package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) hostVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "host",
		Short: "Enrol hosts, list, check and forget them",
		Args: func(c *cobra.Command, args []string) error {
			return usage(c.CommandPath()+" add NAME, list, check NAME or remove NAME", "host needs one of its verbs")
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usage("longstop host add|list|check|remove", "host has no verb %q", plain(args[0]))
	}
	c.AddCommand(a.hostAdd(), a.hostList(), a.hostCheck(), a.hostRemove())
	return c
}

func (a *app) hostAdd() *cobra.Command {
	var e longstop.EnrolRequest
	c := &cobra.Command{
		Use:   "add NAME",
		Short: "Enrol a host: NAME is what you would type after ssh",
		Long: `Enrol a host: connect as ssh would with your configuration, put the runner there (one static file, no root, no
open port), make its state folder, and fix who the host is. Runs are only ever started on the very machine, user
and state folder that were enrolled.

With --direct no runner is put there and nothing is made: for appliances, and logins that run no programs. Such a
host takes run --direct alone.

With --forced the key that ssh uses may do nothing there but call the runner: its line in authorized_keys has
command="longstop-runner forced",restrict. As long as the host is not so, the runner and the line to install are
printed; then it is checked that a shell is refused and that the runner is this very one.`,
		Example: `  longstop host add web-1
  longstop host add web-1 --forced
  longstop host add lab --ssh-config ./lab_config --state-dir /var/tmp/longstop`,
		Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			e.Name = args[0]
			if plain(e.Name) != e.Name || e.Name == "" || strings.HasPrefix(e.Name, "-") {
				return usage("what you would type after ssh", "%q is no host's name", plain(e.Name))
			}
			if e.SSHConfig != "" {
				path, err := filepath.Abs(e.SSHConfig)
				if err != nil {
					return fmt.Errorf("--ssh-config: %w", err)
				}
				e.SSHConfig = path
			}
			if e.StateDir != "" && !strings.HasPrefix(e.StateDir, "/") {
				return usage("a path on the host, from /", "--state-dir %s is not absolute", plain(e.StateDir))
			}
			if e.Runner != "" && !e.Forced {
				return usage(c.CommandPath()+" --help", "--runner is for --forced alone: elsewhere Longstop chooses the place")
			}
			return a.enrol(c.Context(), e)
		},
	}
	c.Flags().StringVar(&e.SSHConfig, "ssh-config", "", "configuration for this host, as of ssh -F")
	c.Flags().StringVar(&e.StateDir, "state-dir", "", "absolute folder on the host for the records (default its XDG state folder)")
	c.Flags().StringVar(&e.Transport, "transport", "", "openssh (default) or embedded, which needs no ssh here")
	c.Flags().BoolVar(&e.Forced, "forced", false, "the key is bound to the runner by a forced command; says what to install")
	c.Flags().BoolVar(&e.Direct, "direct", false, "no runner: for direct actions alone (run --direct)")
	c.Flags().StringVar(&e.Runner, "runner", "", "with --forced: absolute path of the runner on the host (default /usr/local/bin/longstop-runner)")
	a.jsonFlag(c, "the host")
	return c
}

func (a *app) enrol(ctx context.Context, e longstop.EnrolRequest) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	ctx, stop := interrupted(ctx)
	defer stop()
	host, err := gateway.Enrol(ctx, e, func(line string) { a.talk.note("%s", plain(line)) })
	if err != nil && e.Forced {
		return a.toInstall(ctx, gateway, e, err)
	}
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(host)
		return nil
	}
	a.talk.note("%s is enrolled: %s", plain(host.Name), hostWords(&host))
	a.tellHost(&host)
	direct := ""
	if host.Direct {
		direct = "--direct "
	}
	a.talk.note("longstop run %s%s -- COMMAND", direct, word(host.Name))
	return nil
}

// hostWords say who a host is, on one line.
func hostWords(h *longstop.Host) string {
	if h.Direct {
		return "no runner, direct actions alone" + between + "host key " + plain(h.HostKey)
	}
	parts := []string{fmt.Sprintf("%s (uid %d)", plain(h.User), h.UID), "state in " + plain(h.StateDir)}
	if hello := h.Hello; hello != nil {
		parts = append(parts, plain(hello.OS+"/"+hello.Arch+" "+hello.Kernel), "runner "+plain(hello.Version))
	}
	return strings.Join(parts, between)
}

// tellHost says what a host offers and what one should know about it.
func (a *app) tellHost(h *longstop.Host) {
	if h.Hello == nil {
		return
	}
	for _, line := range append(boundaryOffers(h.Hello.Boundaries), limitOffers(h.Hello.Boundaries)...) {
		a.talk.note("%s", line)
	}
	if len(h.Hello.Allowed) > 0 {
		a.talk.note("its forced command allows: %s", plain(strings.Join(h.Hello.Allowed, ", ")))
	}
	for _, note := range warnings(h.Hello) {
		a.talk.note("%s", plain(note))
	}
}

// warnings are what one should know about a host.
func warnings(hello *longstop.HostHello) []string {
	if ahead := time.Duration(hello.ClockAheadMS) * time.Millisecond; ahead.Abs() >= time.Second {
		return append([]string{"its clock is " + off(ahead) + " of this machine's; leases and deadlines do not go by either"}, hello.Notes...)
	}
	return hello.Notes
}

// off is by how much a clock is off: "1h0m1s ahead".
func off(d time.Duration) string {
	if d < 0 {
		return (-d).Round(time.Second).String() + " behind"
	}
	return d.Round(time.Second).String() + " ahead"
}

// boundaryOffers say which boundaries a host has, where there is a choice, and what would let it have more.
// Why it lacks what nothing gives it, --json has.
func boundaryOffers(offers []longstop.BoundaryOffer) (lines []string) {
	var can []string
	lacks := map[string][]string{} // by remedy
	var remedies []string
	for _, b := range offers {
		switch {
		case b.Can && b.Manager != "":
			can = append(can, plain(string(b.Kind)+" (its "+b.Manager+" manager's)"))
		case b.Can:
			can = append(can, plain(string(b.Kind)))
		case b.Remedy != "":
			if lacks[b.Remedy] == nil {
				remedies = append(remedies, b.Remedy)
			}
			lacks[b.Remedy] = append(lacks[b.Remedy], plain(string(b.Kind)))
		}
	}
	if len(can) > 1 {
		lines = append(lines, "boundaries: "+strings.Join(can, ", "))
	}
	for _, remedy := range remedies {
		lines = append(lines, "boundaries it could have, too, after "+plain(remedy)+" there: "+strings.Join(lacks[remedy], ", "))
	}
	return lines
}

func (a *app) hostList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "The enrolled hosts",
		Args:    exactly(),
		RunE:    listing(a, (*client.Client).Hosts, hostTable, "no hosts yet: longstop host add NAME, with what you would type after ssh", ""),
	}
	a.jsonFlag(c, "the hosts as one array")
	return c
}

func hostTable(hosts []longstop.Host, now time.Time) *table {
	t := new(table)
	t.row("", "HOST", "USER", "SEEN", "UNRESOLVED", "RUNNER", "TRANSPORT", "STATE FOLDER")
	for i := range hosts {
		h := &hosts[i]
		sight, remark := "-", ""
		if !h.EnrolledAt.IsZero() {
			sight = rough(now.Sub(h.EnrolledAt.Time)) + " ago" // when it was asked who it is
		}
		if h.Seen != nil && !h.Seen.At.IsZero() {
			sight = rough(now.Sub(h.Seen.At.Time)) + " ago"
		}
		if h.Seen != nil && h.Seen.Because != "" {
			remark = "! " + words(string(h.Seen.Because))
		}
		version := "-"
		if h.Hello != nil {
			version = plain(h.Hello.Version)
		}
		way := plain(h.Transport)
		if h.Forced {
			way += ", forced"
		}
		if h.Direct {
			way += ", direct"
		}
		t.row(remark, plain(h.Name), plain(h.User), sight, strconv.Itoa(h.Unresolved), version, way, plain(h.StateDir))
	}
	return t
}

func (a *app) hostCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check NAME",
		Short: "Ask a host who it is and what it can, now",
		Args:  exactly("NAME"),
		RunE: a.asks(func(ctx context.Context, gateway *client.Client, args []string) error {
			ctx, stop := interrupted(ctx)
			defer stop()
			host, err := gateway.CheckHost(ctx, args[0], func(line string) { a.talk.note("%s", plain(line)) })
			if err != nil {
				return err
			}
			if a.json {
				a.printJSON(host)
				return nil
			}
			a.talk.note("%s answers: %s", plain(host.Name), hostWords(&host))
			a.tellHost(&host)
			return nil
		}),
		ValidArgsFunction: a.completeHosts,
	}
	a.jsonFlag(c, "the host")
	return c
}

func (a *app) hostRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Forget a host of which nothing is unresolved; nothing is removed there",
		Args:    exactly("NAME"),
		RunE: a.asks(func(ctx context.Context, gateway *client.Client, args []string) error {
			if err := gateway.RemoveHost(ctx, args[0]); err != nil {
				return err
			}
			a.talk.note("%s is forgotten here; what is on it stays as it is", plain(args[0]))
			return nil
		}),
		ValidArgsFunction: a.completeHosts,
	}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) doctorVerb() *cobra.Command {
	var offline bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what Longstop needs, here and on the hosts, with a remedy for each lack",
		Long: `Check this machine (ssh, its agent, folders, the gateway) and every enrolled host. Nothing is changed, but a
gateway is started where none runs and a host's missing runner is put back.

Exit status: 0 all is well (warnings are) · 254 something is not.`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context(), offline) },
	}
	c.Flags().BoolVar(&offline, "offline", false, "leave the hosts alone")
	a.jsonFlag(c, "the findings as one array")
	return c
}

// finding is what one check came to.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"` // "ok", "warning", "wrong"
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitempty"`
}

func good(check, format string, args ...any) finding {
	return finding{Check: check, State: "ok", Says: fmt.Sprintf(format, args...)}
}

func warning(check, says, remedy string) finding {
	return finding{Check: check, State: "warning", Says: says, Remedy: remedy}
}

func wrong(check string, err error, remedy string) finding {
	e := asError(err)
	if e.Hint != "" {
		remedy = e.Hint
	}
	return finding{Check: check, State: "wrong", Says: e.Message, Remedy: remedy}
}

func (a *app) doctor(ctx context.Context, offline bool) error {
	ctx, stop := interrupted(ctx)
	defer stop()
	var list []finding
	add := func(f ...finding) {
		list = append(list, f...)
		for _, one := range f {
			if !a.json {
				fmt.Fprint(a.out, one.text())
			}
		}
	}
	add(checkSSH(ctx), checkAgent(ctx), checkDaemonProgram())
	gateway, home := a.checkHome()
	add(home)
	if gateway != nil {
		daemon := checkGateway(ctx, gateway)
		add(daemon)
		if daemon.State != "wrong" {
			add(checkApprovers(ctx, gateway, a.now()))
		}
		if daemon.State == "ok" && !offline {
			add(a.checkHosts(ctx, gateway)...)
		}
	}
	if a.json {
		a.printJSON(list)
	}
	for _, f := range list {
		if f.State == "wrong" {
			return status(longstop.ExitOurs)
		}
	}
	return nil
}

func (f finding) text() string {
	text := fmt.Sprintf("%-8s %-14s %s\n", f.State, plain(f.Check), plainLines(f.Says, "                        "))
	if f.Remedy != "" {
		text += fmt.Sprintf("%-23s → %s\n", "", plainLines(f.Remedy, "                          "))
	}
	return text
}

func checkSSH(ctx context.Context) finding {
	path, err := exec.LookPath("ssh")
	if err != nil {
		return warning("ssh", "there is no ssh on PATH: hosts are reached by the embedded client alone",
			"install OpenSSH's client, or enrol hosts with longstop host add --transport embedded")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	run := exec.CommandContext(ctx, path, "-V")
	run.WaitDelay = time.Second
	said, err := run.CombinedOutput()
	if err != nil {
		return wrong("ssh", fmt.Errorf("%s -V: %w", path, err), "look at what "+path+" is")
	}
	return good("ssh", "%s: %s", path, bytes.TrimSpace(said))
}

func checkAgent(ctx context.Context) finding {
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return good("ssh agent", "none here: keys are read from files, as ssh does")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return warning("ssh agent", "SSH_AUTH_SOCK leads nowhere: "+err.Error(), "start an agent, or unset SSH_AUTH_SOCK; then longstop daemon stop")
	}
	conn.Close()
	return good("ssh agent", "answers")
}

func checkDaemonProgram() finding {
	path, err := client.FindDaemon()
	if err != nil {
		return wrong("longstopd", err, "")
	}
	return good("longstopd", "%s", path)
}

func (a *app) checkHome() (*client.Client, finding) {
	gateway, err := a.gateway()
	if err != nil {
		return nil, wrong("home", err, "")
	}
	home := gateway.Home
	if err := home.Make(); err != nil {
		return nil, wrong("home", err, "")
	}
	info, err := os.Stat(home.Dir)
	if err != nil {
		return nil, wrong("home", err, "set LONGSTOP_HOME to a folder of yours")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return gateway, warning("home", fmt.Sprintf("%s can be read by others (mode %04o)", home.Dir, info.Mode().Perm()), "chmod 700 "+home.Dir)
	}
	return gateway, good("home", "%s, sockets in %s", home.Dir, home.Runtime)
}

func checkGateway(ctx context.Context, gateway *client.Client) finding {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	now, err := gateway.Status(ctx)
	switch {
	case err != nil:
		return wrong("gateway", silent(gateway, err), "see "+gateway.Home.Log())
	case now.API != longstop.APIVersion:
		return wrong("gateway", fmt.Errorf("it speaks version %d of the API, this longstop %d", now.API, longstop.APIVersion), "longstop daemon stop (runs go on)")
	case now.Version != longstop.Version:
		return warning("gateway", fmt.Sprintf("it is %s, this longstop %s", now.Version, longstop.Version), "longstop daemon stop (runs go on): the next command starts the new one")
	}
	return good("gateway", "longstopd %s, pid %d", now.Version, now.PID)
}

// checkApprovers says who may approve, and how they came to: the first was trusted without a proof.
func checkApprovers(ctx context.Context, gateway *client.Client, now time.Time) finding {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	list, err := gateway.Approvers(ctx)
	if err != nil {
		return wrong("approvers", err, "")
	}
	for i := range list {
		if k := &list[i]; k.Changed != "" {
			return wrong("approvers", fmt.Errorf("the key of %s is refused: %s", k.Name, k.Changed), "longstop journal verify; then docs/approvals.md")
		}
	}
	if len(list) == 0 {
		return good("approvers", "none: whoever sets the first one is it (longstop approver set)")
	}
	return good("approvers", "%s", approverList(list, now))
}

// approverList is who may approve, on one line.
func approverList(list []longstop.KnownApprover, now time.Time) string {
	var all []string
	for i := range list {
		k := &list[i]
		one := k.Name + ", key " + keyWord(k.PublicKey) + ", set " + clock(k.SetAt, now) + " by " + k.SetBy
		if k.First {
			one += " (the first: trusted on first use)"
		}
		if k.Changed != "" {
			one += " ! refused: " + k.Changed
		}
		all = append(all, plain(one))
	}
	return strings.Join(all, "; ")
}

// checkHosts asks all hosts at once.
func (a *app) checkHosts(ctx context.Context, gateway *client.Client) []finding {
	hosts, err := gateway.Hosts(ctx)
	if err != nil {
		return []finding{wrong("hosts", err, "")}
	}
	if len(hosts) == 0 {
		return []finding{warning("hosts", "none is enrolled", "longstop host add NAME, with what you would type after ssh")}
	}
	a.talk.note("asking %s", count(len(hosts), "host", "hosts"))
	found := make([]finding, len(hosts))
	var all sync.WaitGroup
	for i := range hosts {
		all.Go(func() {
			name := hosts[i].Name
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			host, err := gateway.CheckHost(ctx, name, func(string) {})
			if err != nil {
				found[i] = wrong(name, err, "longstop host check "+word(name))
				return
			}
			found[i] = good(name, "%s", hostWords(&host))
			if host.Hello != nil && len(warnings(host.Hello)) > 0 {
				found[i].State, found[i].Says = "warning", found[i].Says+"\n"+strings.Join(warnings(host.Hello), "\n")
			}
		})
	}
	all.Wait()
	return found
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) daemonVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Start, stop and look at the gateway",
		Long: `The gateway, longstopd, is started by the first command that needs it, one for each LONGSTOP_HOME. Stopping
it leaves all runs alone: leased ones end by themselves when their leases do, detached ones go on, and the next
gateway learns what became of both.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usage("longstop daemon start|stop|status|backup", "daemon has no verb %q", plain(args[0]))
		},
	}
	start := &cobra.Command{Use: "start", Short: "Start the gateway, if none runs", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.daemonStart(c.Context()) }}
	stop := &cobra.Command{Use: "stop", Short: "End the gateway; runs are left alone", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.daemonStop(c.Context()) }}
	stat := &cobra.Command{Use: "status", Short: "Whether a gateway runs, and which", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.daemonStatus(c.Context()) }}
	a.jsonFlag(stat, "the gateway's status")
	c.AddCommand(start, stop, stat, a.daemonBackup())
	return c
}

func (a *app) daemonBackup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy what the gateway keeps into a new folder, while it runs",
		Long: `Copy the gateway's database, as it stands at one moment, and what belongs to it (its salt, the journal's key, its
configuration) into the folder DIR, which must be empty or not there yet. The gateway may run meanwhile. Keep the copy as
safe as the original: it can sign the journal, and has what proves the gateway's runs to their hosts. docs/backup.md
says how to restore it.`,
		Args: exactly("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			folder, err := filepath.Abs(args[0])
			if err != nil {
				return usage("longstop daemon backup DIR", "%v", err)
			}
			answer, err := a.journalTask(c.Context(), client.JournalTask{Verb: client.JournalBackup, Folder: folder})
			if err != nil {
				return err
			}
			for _, name := range answer.Copied {
				fmt.Fprintln(a.out, plain(filepath.Join(folder, name)))
			}
			return nil
		},
	}
}

// statusPatience is how long a gateway may take to say how it is.
const statusPatience = 10 * time.Second

func (a *app) daemonStart(ctx context.Context) error {
	gateway, err := a.present()
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	now, err := gateway.Status(asking)
	if err == nil {
		a.talk.note("a gateway runs already%s%s", between, daemonWords(&now, a.now()))
		return nil
	}
	if !errors.Is(err, client.ErrAbsent) {
		return silent(gateway, err)
	}
	if err := client.Start(ctx, gateway.Home); err != nil {
		return err
	}
	if now, err = gateway.Status(ctx); err != nil {
		return err
	}
	a.talk.note("started%s%s", between, daemonWords(&now, a.now()))
	return nil
}

func (a *app) daemonStop(ctx context.Context) error {
	gateway, err := a.present()
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	before, statusErr := gateway.Status(asking)
	switch err := gateway.Stop(asking); {
	case errors.Is(err, client.ErrAbsent):
		if held, err := client.Running(gateway.Home); err != nil || !held {
			a.talk.note("no gateway runs")
			return err
		} // it is starting or ending: wait for its end
	case err != nil:
		return fmt.Errorf("stop the gateway: %w", silent(gateway, err))
	}
	if err := client.AwaitEnd(ctx, gateway.Home); err != nil {
		return err
	}
	line := "the gateway has ended"
	if statusErr == nil && before.Unresolved > 0 {
		line += fmt.Sprintf("%s%s left alone: leased ones end when their leases do, detached ones go on", between,
			count(before.Unresolved, "action is", "actions are"))
	} else {
		line += between + "runs are left alone"
	}
	a.talk.note("%s", line)
	return nil
}

func (a *app) daemonStatus(ctx context.Context) error {
	gateway, err := a.present()
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	now, err := gateway.Status(asking)
	if errors.Is(err, client.ErrAbsent) {
		held, err := client.Running(gateway.Home)
		switch {
		case err != nil:
			return err
		case a.json:
			a.printJSON(map[string]any{"running": held})
		case held:
			fmt.Fprintln(a.out, "a gateway is starting or ending")
		default:
			fmt.Fprintln(a.out, "no gateway runs; the next command that needs one starts it")
		}
		return nil
	}
	if err != nil {
		return silent(gateway, err)
	}
	approvers, err := gateway.Approvers(asking)
	if err != nil && longstop.CodeOf(err) != longstop.CodeVersionMismatch && longstop.CodeOf(err) != longstop.CodeNotFound {
		return silent(gateway, err)
	}
	if a.json {
		a.printJSON(struct {
			Running bool `json:"running"`
			longstop.DaemonStatus
			Approvers []longstop.KnownApprover `json:"approvers"`
		}{true, now, append([]longstop.KnownApprover{}, approvers...)})
		return nil
	}
	fmt.Fprintf(a.out, "a gateway runs%s%s\nhome %s\nlog  %s\n", between, daemonWords(&now, a.now()), plain(now.Home), plain(gateway.Home.Log()))
	if len(approvers) > 0 {
		fmt.Fprintf(a.out, "approvers %s\n", approverList(approvers, a.now()))
	}
	return nil
}

// silent makes an error of a gateway that takes connections and does not answer one that helps.
func silent(gateway *client.Client, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	hint := "see " + gateway.Home.Log()
	if pid := client.Holder(gateway.Home); pid > 0 {
		hint = fmt.Sprintf("ps -o stat,args %d shows its process: if it is stopped (T), kill -CONT %d; else kill -KILL %d, and the next command starts another. Runs go on", pid, pid, pid)
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: "the gateway does not answer", Hint: hint}
}

func daemonWords(s *longstop.DaemonStatus, now time.Time) string {
	text := fmt.Sprintf("longstopd %s, pid %d", plain(s.Version), s.PID)
	if up := now.Sub(s.StartedAt.Time); up >= time.Second {
		text += ", for " + rough(up)
	}
	return text + between + count(s.Hosts, "host", "hosts") + between + fmt.Sprintf("%d unresolved", s.Unresolved)
}

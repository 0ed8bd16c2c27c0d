package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop/internal/client"
)

// demoVerb becomes `longstopd demo`: the story needs an SSH server, and this command links no SSH
// library, so that it starts in the time ssh does.
func (a *app) demoVerb() *cobra.Command {
	var quick, goServer bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "See what Longstop is for, on this machine alone, in half a minute",
		Long: `Tells the story in a page: plain SSH returning 0 before the work is done, the same work as a run, a
cancelled tree of processes, a lost connection, a killed gateway. It starts an SSH server on loopback
(OpenSSH's where it is installed, else one in Go) and a gateway in a folder of its own, and ends all
that it started. Your hosts, your gateway and your SSH configuration are not touched.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			daemon, err := client.FindDaemon()
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			argv := []string{daemon, "demo", "--longstop", self}
			if quick {
				argv = append(argv, "--quick")
			}
			if goServer {
				argv = append(argv, "--go-server")
			}
			return fmt.Errorf("start %s: %w", daemon, syscall.Exec(daemon, argv, os.Environ()))
		},
	}
	c.Flags().BoolVar(&quick, "quick", false, "four seconds of work instead of twelve")
	c.Flags().BoolVar(&goServer, "go-server", false, "use the SSH server in Go even where OpenSSH's is installed")
	return c
}

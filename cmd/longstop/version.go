package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) versionVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "The versions of this command, the running gateway and the API",
		Args:  exactly(),
		RunE:  func(c *cobra.Command, _ []string) error { return a.version(c.Context()) },
	}
	a.jsonFlag(c, "the versions")
	return c
}

func (a *app) version(ctx context.Context) error {
	gateway, err := a.present()
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	now, err := gateway.Status(asking)
	if a.json {
		v := map[string]any{"longstop": longstop.Version, "api": longstop.APIVersion}
		if err == nil {
			v["longstopd"], v["longstopd_api"] = now.Version, now.API
		}
		a.printJSON(v)
		return nil
	}
	fmt.Fprintf(a.out, "longstop  %s, API %d\n", longstop.Version, longstop.APIVersion)
	switch {
	case errors.Is(err, client.ErrAbsent):
		fmt.Fprintln(a.out, "longstopd not running")
	case err != nil:
		fmt.Fprintln(a.out, "longstopd does not answer:", plain(asError(err).Message))
	default:
		fmt.Fprintf(a.out, "longstopd %s, API %d\n", plain(now.Version), now.API)
		if now.API != longstop.APIVersion {
			a.talk.note("they do not speak the same API: longstop daemon stop (runs go on), then the next command starts the right one")
		}
	}
	return nil
}

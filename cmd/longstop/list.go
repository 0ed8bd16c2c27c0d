package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop/internal/client"
)

// printTable lays a table out for where the command prints.
func (a *app) printTable(t *table) { fmt.Fprint(a.out, t.render(width(a.out))) }

// listing is how a verb runs that lists all there is of something: as JSON, as a table with a line below it, or, of
// nothing, in a line that says so.
func listing[T any](a *app, of func(*client.Client, context.Context) ([]T, error), lay func([]T, time.Time) *table, nothing, below string) func(*cobra.Command, []string) error {
	return a.asks(func(ctx context.Context, gateway *client.Client, _ []string) error {
		list, err := of(gateway, ctx)
		switch {
		case err != nil:
			return err
		case a.json:
			a.printJSON(orEmpty(list))
		case len(list) == 0:
			a.talk.note("%s", nothing)
		default:
			a.printTable(lay(list, a.now()))
			if below != "" {
				a.talk.note("%s", below)
			}
		}
		return nil
	})
}

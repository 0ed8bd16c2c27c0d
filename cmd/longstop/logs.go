package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) logsVerb() *cobra.Command {
	var follow, stderr, stamps bool
	var offset int64
	c := &cobra.Command{
		Use:   "logs ID…",
		Short: "What a run wrote, byte for byte",
		Long: `Print what a run wrote to its standard output, or with --stderr to its standard error, byte for byte, on
standard output. -f goes on until the run is over; interrupting it stops nothing but the printing. What
the host did not keep, and where a run ended whose released processes wrote on, is said on standard error. The host keeps
output for some days (longstopd -h); after that logs says when and why it was removed, and exits 254.`,
		Args: func(c *cobra.Command, args []string) error {
			if err := ids(c, args); err != nil {
				return err
			}
			if len(args) > 1 && (follow || offset > 0) {
				return usage("one longstop logs -f for each", "-f and --offset take one action")
			}
			if offset < 0 {
				return usage("", "--offset %d is below 0", offset)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			stream := "stdout"
			if stderr {
				stream = "stderr"
			}
			if follow {
				return a.logsFollow(c.Context(), args[0], stream, offset, stamps)
			}
			return a.logs(c.Context(), args, stream, offset, stamps)
		},
		ValidArgsFunction: a.completeActions,
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run is over")
	c.Flags().BoolVar(&stderr, "stderr", false, "its standard error instead")
	c.Flags().BoolVarP(&stamps, "timestamps", "t", false, "before each line, when it began to come at the host")
	c.Flags().Int64Var(&offset, "offset", 0, "begin at this byte of the stream")
	return c
}

func (a *app) logs(ctx context.Context, args []string, stream string, offset int64, stamps bool) error {
	return a.each(ctx, args, func(gateway *client.Client, action longstop.Action) error {
		slow := time.AfterFunc(sayAfter, func() { a.talk.note("waiting for %s, which keeps the output", plain(action.Host)) })
		output, err := gateway.Output(ctx, string(action.ID), stream, offset)
		slow.Stop()
		if err != nil {
			return err
		}
		defer output.Close()
		if len(args) > 1 {
			a.talk.note("%s %s", action.ID, stream)
		}
		n, err := a.copyLog(a.logTo(gateway, &action, stream, offset, stamps), &action, stream, offset, output)
		if err != nil {
			return fmt.Errorf("the output of %s could not be read to its end (%s bytes were): %w", action.ID, number(n), err)
		}
		if n == 0 && !action.Settled() {
			a.talk.note("%s has written nothing to %s yet", action.ID, stream)
		}
		if now, err := gateway.Action(ctx, string(action.ID)); err == nil {
			action = now
		}
		a.tellDropped(&action, stream, offset)
		if n > 0 && !action.Settled() {
			a.tellLast(ctx, gateway, &action, stream)
		}
		return nil
	})
}

// tellLast says when the stream of a run that goes on grew last: a program that keeps what it writes to itself
// looks like one that does nothing.
func (a *app) tellLast(ctx context.Context, gateway *client.Client, action *longstop.Action, stream string) {
	times, err := gateway.OutputTimes(ctx, string(action.ID), stream)
	if last := len(times.Arrivals) - 1; err == nil && last >= 0 {
		a.talk.note("%s goes on · it wrote to %s last at %s, by the host's clock", action.ID, stream, clock(times.Arrivals[last].At, a.now()))
	}
}

// logTo is where a stream is printed to.
func (a *app) logTo(gateway *client.Client, action *longstop.Action, stream string, offset int64, stamps bool) io.Writer {
	if !stamps {
		return a.out
	}
	return a.stamper(gateway, action.ID, stream, offset)
}

func (a *app) stamper(gateway *client.Client, id longstop.ActionID, stream string, offset int64) *stamper {
	trouble := func(err error) { a.talk.note("when it came is not known: %s", plain(asError(err).Message)) }
	return &stamper{out: a.out, trouble: trouble, in: a.now().Location(), next: offset, ask: func(ctx context.Context) (longstop.OutputTimes, error) {
		return gateway.OutputTimes(ctx, string(id), stream)
	}}
}

// copyLog prints a stream from an offset, with a mark where the run ended in it.
func (a *app) copyLog(to io.Writer, action *longstop.Action, stream string, offset int64, output io.Reader) (n int64, err error) {
	end := action.Output.StdoutAtEnd
	if stream == "stderr" {
		end = action.Output.StderrAtEnd
	}
	if action.Output.AfterEnd && offset <= end {
		if n, err = io.CopyN(to, output, end-offset); err != nil {
			return n, ignore(err, io.EOF)
		}
		first := make([]byte, 1)
		if _, err := io.ReadFull(output, first); err != nil {
			return n, ignore(err, io.EOF)
		}
		a.talk.note("%s: %s", action.ID, writtenAfter(stream, end))
		output = io.MultiReader(bytes.NewReader(first), output)
	}
	rest, err := io.Copy(to, output)
	return n + rest, err
}

func ignore(err, harmless error) error {
	if err == harmless {
		return nil
	}
	return err
}

// tellDropped says of a stream that was shown from an offset on which bytes of it there are not.
func (a *app) tellDropped(action *longstop.Action, stream string, offset int64) {
	for _, d := range action.Output.DroppedOf(stream) {
		if d.From = max(d.From, offset); d.From < d.To {
			a.talk.note("%s: %s", action.ID, notKept(stream, d))
		}
	}
}

func (a *app) logsFollow(ctx context.Context, id, stream string, offset int64, stamps bool) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	action, err := gateway.Action(ctx, id)
	if err != nil {
		return err
	}
	if action.Removed != nil { // nothing to follow: the gateway says why
		return a.logs(ctx, []string{id}, stream, offset, stamps)
	}
	f := &follower{app: a, client: gateway, action: &action, onlooker: true, rest: true}
	to := newSink(a.out, offset)
	if stamps {
		to.stamper = a.stamper(gateway, action.ID, stream, offset)
	}
	if stream == "stdout" {
		f.stdout = to
	} else {
		f.stderr = to
	}
	if action.Output.AfterEnd {
		f.sawEnd(&action)
	}
	f.open = f.again()
	_, err = f.follow(ctx)
	if gone := (*givenUp)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}

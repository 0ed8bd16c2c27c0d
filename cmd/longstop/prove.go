package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/client"
)

// A person proves who they are in a terminal and nowhere else: what is in a pipe, a file, a flag or the
// environment, a program put there.

// terminal is where a person sits, whatever standard input and output are.
type terminal struct{ tty *os.File }

// personsTerminal opens the controlling terminal of this process, or says why nobody can be asked.
func personsTerminal() (*terminal, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, &longstop.Error{Code: longstop.CodeNotProven,
			Message: "there is no terminal here, and a passphrase is read from nothing else (" + err.Error() + ")",
			Hint:    "type the same in a terminal of your own"}
	}
	return &terminal{tty}, nil
}

func (t *terminal) Close() { t.tty.Close() }

// show prints lines for the person. What comes from outside has been through plain.
func (t *terminal) show(text string) { io.WriteString(t.tty, text) }

// passphrase asks for one without an echo. What was typed ahead is dropped: nobody had seen what it is for.
// A signal leaves the terminal as it was.
func (t *terminal) passphrase(prompt string) ([]byte, error) {
	fd := int(t.tty.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("ask in the terminal: %w", err)
	}
	restore := func() { unix.IoctlSetTermios(fd, unix.TCSETS, before) }
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	asked := make(chan struct{})
	defer close(asked)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			restore()
			t.show("\nnothing was done\n")
			os.Exit(longstop.ExitOurs)
		case <-asked:
		}
	}()
	silent := *before
	silent.Lflag = silent.Lflag&^unix.ECHO | unix.ICANON | unix.ISIG
	silent.Iflag |= unix.ICRNL
	if err := unix.IoctlSetTermios(fd, unix.TCSETSF, &silent); err != nil {
		return nil, fmt.Errorf("ask in the terminal: %w", err)
	}
	defer restore()
	t.show(prompt)
	line := make([]byte, 4096) // the longest that a terminal gives, and it gives one
	n, err := t.tty.Read(line)
	t.show("\n")
	typed, whole := bytes.CutSuffix(line[:n], []byte("\n"))
	if err != nil || !whole || len(typed) == 0 {
		return nil, &longstop.Error{Code: longstop.CodeNotProven, Message: "nothing was typed; nothing was done"}
	}
	return typed, nil
}

// dialogue has a person in their terminal, and the gateway that wants their word.
func (a *app) dialogue(talk func(person *terminal, gateway *client.Client) error) error {
	person, err := personsTerminal()
	if err != nil {
		return err
	}
	defer person.Close()
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	return talk(person, gateway)
}

// asFlag gives a verb that takes a person's proof its --as.
func asFlag(c *cobra.Command, as *string) {
	c.Flags().StringVar(as, "as", "", "which approver you are (default the only one)")
}

// prove shows a person what they are about to sign, asks for their passphrase, and signs. facts are what
// this command has shown beside what it asks about: a statement without either is refused.
func (t *terminal) prove(ctx context.Context, gateway *client.Client, about longstop.ChallengeRequest, facts ...approver.Fact) (longstop.Proof, error) {
	c, err := challenge(ctx, gateway, about, facts)
	if err != nil {
		return longstop.Proof{}, err
	}
	t.show("You sign:\n\n" + indented(c.Statement) + "\n")
	passphrase, err := t.passphrase("Passphrase of " + plain(c.Approver.Name) + " (Ctrl-C: nothing is done): ")
	if err != nil {
		return longstop.Proof{}, err
	}
	key, err := approver.Unlock(c.Approver, passphrase)
	clear(passphrase)
	if err != nil {
		return longstop.Proof{}, &longstop.Error{Code: longstop.CodeNotProven, Message: "what the gateway says of " + plain(c.Approver.Name) + " is refused: " + err.Error()}
	}
	if time.Until(c.ExpiresAt.Time) < 10*time.Second { // to read took its time
		shown := c.Statement
		if c, err = challenge(ctx, gateway, about, facts); err != nil {
			return longstop.Proof{}, err
		}
		if said(c.Statement) != said(shown) {
			return longstop.Proof{}, &longstop.Error{Code: longstop.CodeNotProven, Message: "what was to be signed has changed while it was read; nothing was done", Hint: "look again"}
		}
	}
	return key.Prove(c), nil
}

// challenge asks for a statement, and refuses one that does not say what the person was shown.
func challenge(ctx context.Context, gateway *client.Client, about longstop.ChallengeRequest, facts []approver.Fact) (longstop.Challenge, error) {
	c, err := gateway.Challenge(ctx, about)
	if err != nil {
		return c, err
	}
	for _, f := range append([]approver.Fact{{Name: "kind", Value: string(about.Kind)}, {Name: "challenge", Value: c.ID}, {Name: "action", Value: string(about.ActionID)},
		{Name: "outcome", Value: string(about.Outcome)}, {Name: "reason", Value: about.Reason}, {Name: "content", Value: about.Content}}, facts...) {
		if f.Value != "" && !f.In(c.Statement) {
			return c, &longstop.Error{Code: longstop.CodeNotProven,
				Message: fmt.Sprintf("what the gateway wants signed does not say %s: %s, which is what was shown; nothing was signed", f.Name, plain(f.Value))}
		}
	}
	return c, nil
}

// said is a statement without the lines that are a challenge's own.
func said(statement string) string {
	var rest strings.Builder
	for line := range strings.Lines(statement) {
		if !strings.HasPrefix(line, "challenge: ") && !strings.HasPrefix(line, "sign before: ") {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

func indented(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString("  " + plain(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return out.String()
}

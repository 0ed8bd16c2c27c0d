package sshlink

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

func startStream(t *testing.T, l Link, command string) Channel {
	t.Helper()
	ch, err := l.Stream(t.Context(), command)
	if err != nil {
		t.Fatalf("stream %q: %v", command, err)
	}
	t.Cleanup(func() { ch.Close() })
	return ch
}

// TestStream: input, output and exit status as Exec has them, byte for byte.
func TestStream(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		ch := startStream(t, l, "tee /dev/stderr; exit 7")
		input := bytes.Repeat([]byte("0123456789abcdef\x00\xff\n"), 200_000)
		go func() {
			ch.Stdin().Write(input)
			ch.Stdin().Close()
		}()
		errs := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(ch.Stderr())
			errs <- all
		}()
		out, err := io.ReadAll(ch.Stdout())
		if err != nil || sha256.Sum256(out) != sha256.Sum256(input) {
			t.Errorf("stdout: %d bytes of %d, %v", len(out), len(input), err)
		}
		if got := <-errs; sha256.Sum256(got) != sha256.Sum256(input) {
			t.Errorf("stderr: %d bytes of %d", len(got), len(input))
		}
		if exit := ch.Wait(); exit.State != longstop.SSHExited || exit.Status != 7 {
			t.Errorf("%+v", exit)
		}
		sshtest.Eventually(t, "no session counted", func() bool { return l.Sessions() == 0 })
	})
}

// TestStreamHoldsUpNobody: one that is not read leaves the connection's other sessions alone, and
// Close frees its reader and its place.
func TestStreamHoldsUpNobody(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		ch := startStream(t, l, "exec cat /dev/zero")
		if _, err := io.ReadFull(ch.Stdout(), make([]byte, 8<<20)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			other := start(t, l, "echo here")
			out, err := io.ReadAll(other.Stdout())
			if err != nil || string(out) != "here\n" {
				t.Errorf("%q, %v", out, err)
			}
			other.Close()
		}
		read := make(chan error, 1)
		go func() {
			_, err := io.Copy(struct{ io.Writer }{io.Discard}, ch.Stdout())
			read <- err
		}()
		ch.Close()
		select {
		case <-read:
		case <-time.After(aliveBound):
			t.Fatal("its reader waits on")
		}
		ch.Wait()
		sshtest.Eventually(t, "no session counted", func() bool { return l.Sessions() == 0 })
	})
}

// TestStreamRefused: a server's limit is met without harm to the connection.
func TestStreamRefused(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{MaxSessions: 1})
		l := dial(t, d, s)
		first := start(t, l, "exec cat")
		if ch, err := l.Stream(t.Context(), "true"); longstop.CodeOf(err) != longstop.CodeSessionRefused {
			t.Fatalf("%v, %v", ch, err)
		}
		fmt.Fprintln(first.Stdin(), "on it goes")
		if got, err := io.ReadAll(io.LimitReader(first.Stdout(), 11)); string(got) != "on it goes\n" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestStreamEndsWithItsConnection.
func TestStreamEndsWithItsConnection(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{})
		l := dial(t, d, s)
		ch := startStream(t, l, "echo begun; exec sleep 60")
		if got, err := io.ReadAll(io.LimitReader(ch.Stdout(), 6)); string(got) != "begun\n" {
			t.Fatalf("%q, %v", got, err)
		}
		l.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			io.ReadAll(ch.Stdout())
			ch.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(aliveBound):
			t.Fatal("it outlives its connection")
		}
		if _, err := l.Stream(t.Context(), "true"); longstop.CodeOf(err) != longstop.CodeUnreachable {
			t.Errorf("a stream on a connection that is gone: %v", err)
		}
	})
}

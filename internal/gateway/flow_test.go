package gateway_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// TestFlowResumes at the byte where the connection broke, again and again.
func TestFlowResumes(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	const size = 20 << 20
	copyOf := filepath.Join(sshtest.ShortDir(t), "copy")
	a := b.run(script(fmt.Sprintf("head -c %d /dev/urandom | tee %s", size, copyOf)))
	sum, offset, cuts := sha256.New(), int64(0), 0
	take := func(answer wire.OutputAnswer) error {
		if answer.Offset != offset {
			t.Errorf("bytes from %d after %d", answer.Offset, offset)
		}
		sum.Write(answer.Data)
		offset += int64(len(answer.Data))
		if offset > size/4*int64(cuts+1) {
			cuts++
			b.proxy.Cut()
		}
		return nil
	}
	for end := false; !end; {
		// Output makes the connection again, and leaves the rest to a flow.
		got, err := b.Output(t.Context(), string(a.ID), "stdout", offset, 10, 10*time.Second)
		b.must(err)
		take(got)
		reached, err := b.Flow(t.Context(), string(a.ID), "stdout", offset, take)
		if reached.Offset != offset || err != nil && longstop.CodeOf(err) != longstop.CodeUnreachable {
			t.Fatalf("reached %d of %d: %v", reached.Offset, offset, err)
		}
		end = reached.End
	}
	want, err := os.ReadFile(copyOf)
	b.must(err)
	if offset != size || sha256.Sum256(want) != [32]byte(sum.Sum(nil)) {
		t.Errorf("%d bytes, or others", offset)
	}
	if cuts < 3 {
		t.Errorf("%d cuts", cuts)
	}
}

// TestFlowSlowReader: one that takes nothing holds up no other answer, and leaves when it wants.
func TestFlowSlowReader(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("exec cat /dev/zero"))
	enough := errors.New("enough")
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := b.Flow(t.Context(), string(a.ID), "stdout", 0, func(wire.OutputAnswer) error {
			close(begun)
			<-goOn
			return enough
		})
		ended <- err
	}()
	<-begun
	other := b.run(script("echo here"))
	b.wait(other.ID)
	if got := b.output(other.ID, "stdout"); got != "here\n" {
		t.Errorf("%q", got)
	}
	if _, err := b.Cancel(t.Context(), string(a.ID), operator, nil); err != nil {
		t.Errorf("cancel: %v", err)
	}
	b.wait(a.ID)
	close(goOn)
	if err := <-ended; err != enough {
		t.Errorf("ended with %v", err)
	}
}

// TestFlowWithoutRoom does no harm: the serve channel has the one session that the server allows.
func TestFlowWithoutRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{MaxSessions: 1})
	a := b.run(script("echo here"))
	b.wait(a.ID)
	for range 2 {
		reached, err := b.Flow(t.Context(), string(a.ID), "stdout", 2, func(wire.OutputAnswer) error { return nil })
		if longstop.CodeOf(err) != longstop.CodeSessionRefused || reached.Offset != 2 {
			t.Errorf("%+v, %v", reached, err)
		}
	}
	if got := b.output(a.ID, "stdout"); got != "here\n" {
		t.Errorf("%q", got)
	}
}

// TestSlowLink: a block that takes longer than a host may be silent comes whole, over the connection that
// there is; so does a flow, behind which the host's heartbeats wait.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	const size = 300_000
	a := b.run(script(fmt.Sprintf("head -c %d /dev/zero", size)))
	b.wait(a.ID)
	b.tap.mu.Lock()
	dials := b.tap.dials
	b.tap.mu.Unlock()
	b.tap.pace.Store(int64(5 * time.Millisecond)) // at most 200 KB/s; silent is who says nothing for 600 ms
	got, err := b.Output(t.Context(), string(a.ID), "stdout", 0, 0, 0)
	if err != nil || len(got.Data) < 200_000 {
		t.Errorf("%d bytes, %v", len(got.Data), err)
	}
	reached, err := b.Flow(t.Context(), string(a.ID), "stdout", 0, func(wire.OutputAnswer) error { return nil })
	if err != nil || reached.Offset != size || !reached.End {
		t.Errorf("flowed to %d: %v", reached.Offset, err)
	}
	b.tap.mu.Lock()
	defer b.tap.mu.Unlock()
	if b.tap.dials != dials {
		t.Errorf("the connection was made again %d times", b.tap.dials-dials)
	}
}

package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// TestOutputResumes at the byte where the connection broke, again and again.
func TestOutputResumes(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	const size = 20 << 20
	copyOf := filepath.Join(sshtest.ShortDir(t), "copy")
	a := b.run(script(fmt.Sprintf("head -c %d /dev/urandom | tee %s", size, copyOf)))
	sum := sha256.New()
	for offset, cuts := int64(0), 0; ; {
		got, err := b.Output(t.Context(), string(a.ID), "stdout", offset, 0, 10*time.Second)
		b.must(err)
		sum.Write(got.Data)
		offset += int64(len(got.Data))
		if offset > size/4*int64(cuts+1) {
			cuts++
			b.proxy.Cut()
		}
		if got.End {
			if offset != size {
				t.Errorf("%d bytes, want %d", offset, size)
			}
			break
		}
	}
	want, err := os.ReadFile(copyOf)
	b.must(err)
	if whole := sha256.Sum256(want); hex.EncodeToString(whole[:]) != hex.EncodeToString(sum.Sum(nil)) {
		t.Errorf("the bytes differ")
	}
}

// TestOutputResumesInsideAnAnswer: half an answer is no answer, and no reason to stop reading.
func TestOutputResumesInsideAnAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("printf 0123456789"))
	b.wait(a.ID)
	b.tap.once(wire.VerbOutput, halve)
	got, err := b.Output(t.Context(), string(a.ID), "stdout", 0, 0, 0)
	b.must(err)
	if string(got.Data) != "0123456789" || !got.End || b.tap.count(wire.VerbOutput) != 2 {
		t.Errorf("read %q after %d requests", got.Data, b.tap.count(wire.VerbOutput))
	}
}

// TestInspectOverADeadChannel: what only looks does not fail because the channel that was there had died.
func TestInspectOverADeadChannel(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("exec sleep 60"))
	b.tap.once(wire.VerbInspect, loseIt)
	if got, err := b.Inspect(t.Context(), string(a.ID)); err != nil || len(got.Processes) != 1 {
		t.Errorf("%v: %s", err, pretty(got))
	}
}

package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// spoolPart is how much of a run's standard input one request carries.
const spoolPart = 1 << 20

// stdinKept is how long spooled input that no run took is kept.
const stdinKept = 24 * time.Hour

var stdinID = regexp.MustCompile(`^stdin_[A-Z2-7]{26}$`)

// SpoolStdin takes the bytes of a run's standard input ahead of its request. Input that no run took
// within a day is removed.
func (g *Gateway) SpoolStdin(ctx context.Context, r io.Reader) (longstop.Stdin, error) {
	g.sweepStdin()
	s := longstop.Stdin{ID: "stdin_" + rand.Text()}
	path := filepath.Join(g.stdinFolder(), s.ID)
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s, fmt.Errorf("spool standard input: %w", err)
	}
	defer os.Remove(path + ".part")
	sum := sha256.New()
	s.Bytes, err = io.Copy(io.MultiWriter(f, sum), r)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return s, fmt.Errorf("spool standard input: %w", err)
	}
	s.SHA256 = hex.EncodeToString(sum.Sum(nil))
	facts, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(path+".json", facts, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		return s, fmt.Errorf("spool standard input: %w", err)
	}
	return s, nil
}

// takeStdin finds the spooled input that a request names.
func (g *Gateway) takeStdin(a *asked, id string) error {
	if id == "" {
		return nil
	}
	unknown := &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("no standard input %q was sent, or it is over a day old", id)}
	if !stdinID.MatchString(id) {
		return unknown
	}
	path := filepath.Join(g.stdinFolder(), id)
	facts, err := os.ReadFile(path + ".json")
	if err != nil {
		return unknown
	}
	var s longstop.Stdin
	if err := wire.Strict(facts, &s); err != nil {
		return fmt.Errorf("read what is known of standard input %s: %w", id, err)
	}
	if s.Bytes > 0 {
		a.stdin = path
	}
	a.request.StdinBytes, a.request.StdinSHA256 = s.Bytes, s.SHA256
	return nil
}

// sendStdin lays the input down on the host, before the submit that takes it.
func (g *Gateway) sendStdin(ctx context.Context, ch *channel, id longstop.RunID, path string, note func(string)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	part := make([]byte, spoolPart)
	began := time.Now()
	for at := int64(0); at < info.Size(); {
		n, err := f.ReadAt(part, at)
		if n == 0 {
			return fmt.Errorf("read standard input: %w", err)
		}
		var have wire.SpoolAnswer
		got, err := ch.ask(ctx, wire.VerbSpool, wire.SpoolRequest{RunID: id, Offset: at, Data: part[:n]}, answerWithin)
		if err == nil {
			err = got.read(&have)
		}
		if err != nil {
			return fmt.Errorf("send standard input: %w", err)
		}
		at += int64(n)
		if have.Bytes != at {
			return &longstop.Error{Code: longstop.CodeBadAnswer,
				Message: fmt.Sprintf("the host has %d bytes of standard input after %d were sent", have.Bytes, at)}
		}
		if time.Since(began) > time.Second && note != nil {
			note(fmt.Sprintf("sent %.1f of %.1f MB of standard input", float64(at)/1e6, float64(info.Size())/1e6))
			began = time.Now()
		}
	}
	return nil
}

// holdStdin keeps a launch's input for as long as it may be sent, however long it waits for approval, and returns
// what ends that.
func (g *Gateway) holdStdin(path string) func() {
	if path == "" {
		return func() {}
	}
	name := filepath.Base(path)
	g.stdins.Store(name, true)
	return func() { g.stdins.Delete(name) }
}

// dropStdin removes input that a run has taken. What is known of it stays for a day, so that the
// same request under the same key is recognised.
func dropStdin(path string) {
	if path != "" {
		os.Remove(path)
	}
}

func (g *Gateway) sweepStdin() {
	entries, err := os.ReadDir(g.stdinFolder())
	if err != nil {
		return
	}
	for _, e := range entries {
		if _, held := g.stdins.Load(strings.TrimSuffix(e.Name(), ".json")); held {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > stdinKept {
			os.Remove(filepath.Join(g.stdinFolder(), e.Name()))
		}
	}
}

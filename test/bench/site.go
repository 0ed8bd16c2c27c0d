package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// site is a state folder of Longstop on this host, asked as a gateway asks: by one serve channel, here
// without SSH. One request at a time.
type site struct {
	runner, dir string
	host        wire.Identity
	serve       *exec.Cmd
	in          io.WriteCloser
	frames      *wire.Reader
	stderr      bytes.Buffer
	cursor      string // of the last list
}

// openSite serves a state folder, made if it is not there, with env added; as user uid where that is
// not 0.
func openSite(ctx context.Context, runner, dir string, uid uint32, env ...string) (*site, error) {
	s := &site{runner: runner, dir: dir, serve: exec.CommandContext(ctx, runner, "serve")}
	s.serve.Env = append(os.Environ(), env...)
	s.serve.Stderr = &s.stderr
	if uid != 0 {
		s.serve.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	var err error
	if s.in, err = s.serve.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.serve.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.serve.Start(); err != nil {
		return nil, fmt.Errorf("serve %s: %w", dir, err)
	}
	s.frames = wire.NewReader(out, wire.Options{MaxNoise: -1, Data: true})
	var hello wire.HelloAnswer
	if err := s.ask(wire.VerbHello, wire.HelloRequest{Create: true}, &hello); err != nil {
		s.close()
		return nil, err
	}
	s.host = wire.Identity{MachineID: hello.MachineID, UID: hello.UID, StateID: hello.StateID}
	return s, nil
}

// close ends the channel. The keeper follows once it has no run.
func (s *site) close() {
	s.in.Close()
	s.serve.Wait()
}

func (s *site) request(verb wire.Verb, body any) (wire.Request, error) {
	encoded, err := json.Marshal(body)
	return wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: verb, Host: s.host, StateDir: s.dir, Body: encoded}, err
}

// ask asks over the serve channel and reads the answer into into, if that is not nil.
func (s *site) ask(verb wire.Verb, body, into any) error {
	request, err := s.request(verb, body)
	var text []byte
	if err == nil {
		text, err = json.Marshal(request)
	}
	if err == nil {
		err = wire.WriteFrame(s.in, request.Nonce, text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", verb, err, &s.stderr)
	}
	nonce, frame, err := s.frames.Next()
	if err != nil || nonce != request.Nonce {
		return fmt.Errorf("%s: answer to %s: %w: %s", verb, nonce, err, &s.stderr)
	}
	return answered(request, frame, into)
}

// call asks by a process of its own, as over a channel of its own.
func (s *site) call(ctx context.Context, verb wire.Verb, body, into any) error {
	request, err := s.request(verb, body)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.runner, string(verb))
	cmd.Stdin = bytes.NewReader(encoded)
	out, callErr := cmd.Output() // a refusal has its answer, too
	frame, _, err := wire.ReadOne(bytes.NewReader(out), request.Nonce, wire.Options{MaxNoise: -1, Data: true})
	if err != nil {
		return fmt.Errorf("%s: %w", verb, errors.Join(err, callErr))
	}
	return answered(request, frame, into)
}

func answered(request wire.Request, frame []byte, into any) error {
	answer, err := wire.DecodeAnswer(request.Nonce, frame)
	if err != nil {
		return fmt.Errorf("%s: %w", request.Verb, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %w", request.Verb, answer.Error)
	}
	if into == nil {
		return nil
	}
	return wire.Tolerant(answer.Body, into)
}

// submission is a request for a run as a gateway makes it.
func submission(request longstop.Request) wire.Submit {
	id, now := longstop.NewRunID(), time.Now()
	secret := make([]byte, 32)
	rand.Read(secret)
	request.Leftover, request.GraceS, request.Cwd = longstop.LeftoverWait, 5, "/"
	sub := wire.Submit{RunID: id, ActionID: longstop.NewActionID(now), SessionID: longstop.NewSessionID(now), Key: "key-" + string(id),
		NotAfter: boundary.BootNow().Add(time.Minute), BootID: boundary.BootID(), Secret: secret, EffectToken: "eff_" + string(id)}
	if request.Lifetime == "" {
		request.Lifetime, request.LeaseS = longstop.Leased, 600
		sub.LeaseUntil = boundary.BootNow().Add(10 * time.Minute)
	}
	sub.Request = request
	sub.Request.Digest = wire.CanonicalDigest("bench", "SHA256:bench", request, nil)
	return sub
}

// submit has a run started and returns once its work runs, which then is on the host's disk.
func (s *site) submit(request longstop.Request) (longstop.RunID, error) {
	sub := submission(request)
	return sub.RunID, s.ask(wire.VerbSubmit, sub, nil)
}

// ended waits until a run's final record is there, durable under its name.
func (s *site) ended(id longstop.RunID) error {
	name := filepath.Join(s.dir, "runs", string(id), "final")
	return poll("the final record "+name, func() bool {
		_, err := os.Stat(name)
		return err == nil
	})
}

// record is what the host has of a run now.
func (s *site) record(id longstop.RunID) (rec longstop.Record, err error) {
	var status wire.StatusAnswer
	if err := s.ask(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{id}}, &status); err != nil {
		return rec, err
	}
	if status.Runs[0].Error != nil {
		return rec, status.Runs[0].Error
	}
	return rec, wire.Tolerant(status.Runs[0].Record, &rec)
}

// cancel cancels a run and returns once the final record is there, or what cannot be stopped is named.
func (s *site) cancel(id longstop.RunID) error {
	var answer wire.CancelAnswer
	if err := s.ask(wire.VerbCancel, wire.CancelRequest{RunID: id, GraceMS: -1, WaitMS: 10_000}, &answer); err != nil {
		return err
	}
	if answer.Refused != "" || len(answer.Survivors) > 0 {
		return fmt.Errorf("cancel of %s: refused %q, %d survivors", id, answer.Refused, len(answer.Survivors))
	}
	return nil
}

// forget removes a finished run and its output.
func (s *site) forget(id longstop.RunID) error {
	if err := s.ask(wire.VerbCollect, wire.RunRequest{RunIDs: []longstop.RunID{id}}, nil); err != nil {
		return err
	}
	return s.ask(wire.VerbGC, wire.GCRequest{RunIDs: []longstop.RunID{id}}, nil)
}

// poll waits until ok. What it waits for is being timed: it looks often at first, and then ever less, by
// half a percent of the time, since whoever looks takes that from those who work.
func poll(what string, ok func() bool) error {
	for began := time.Now(); !ok(); {
		waited := time.Since(began)
		if waited > time.Minute {
			return fmt.Errorf("not within a minute: %s", what)
		}
		time.Sleep(max(20*time.Microsecond, waited/200))
	}
	return nil
}

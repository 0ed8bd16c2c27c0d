package api

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/wire"
)

// fake is a scripted gateway: one action whose life the test tells, step by step.
type fake struct {
	mu      sync.Mutex
	changed *sync.Cond
	action  longstop.Action
	out     map[string][]byte
	outErr  error
	runs    []longstop.RunRequest
	retries []longstop.RetryRequest
	peers   []longstop.Requester
	waits   []string
	stdin   []byte

	run    func(ctx context.Context, told gateway.Told) error
	cancel func(note func(string)) error
	enrol  func(note func(string)) (longstop.Host, error)
	torn   bool
	shown  int64
	piece  int

	noRoom  bool // for flows
	flows   int
	flowCut int64 // where the first flow that gets there is cut

	gap      longstop.Dropped // of both streams
	released bool             // somebody can still write
	ended    map[string]bool  // streams whose end was told

	revoked atomic.Bool // the one token
	lasts   int32       // how often it is known before it is revoked; 0: for as long as it is not
	asked   atomic.Int32
	onAsked func(times int32)
	known   []longstop.KnownApprover
	entries []longstop.JournalEntry
}

// end says whether a stream is over at an offset. f.mu is held.
func (f *fake) end(stream string, offset int64) bool {
	over := f.action.Settled() && !f.released && offset == int64(len(f.out[stream]))
	f.ended[stream] = f.ended[stream] || over
	return over
}

func newFake() *fake {
	f := &fake{out: map[string][]byte{}, piece: 5, ended: map[string]bool{}}
	f.changed = sync.NewCond(&f.mu)
	f.action = longstop.Action{ID: "act_0000000TEST0001", Revision: 1, Host: "h1", CreatedAt: longstop.At(time.Unix(1700000000, 0)),
		Request: longstop.Request{Argv: []string{"true"}, Lifetime: longstop.Leased, Effect: longstop.EffectOnce, LeaseS: 120},
		Launch:  longstop.Launch{State: longstop.LaunchSent}, Workload: longstop.Workload{State: longstop.WorkloadNone},
		Alive: longstop.AliveYes, Outcome: longstop.OutcomePending}
	return f
}

// show edits the action as time does: under the same revision.
func (f *fake) show(edit func(*longstop.Action)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit(&f.action)
	f.shown++
	f.changed.Broadcast()
}

// change edits the action under a new revision.
func (f *fake) change(edit func(*longstop.Action)) longstop.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit(&f.action)
	f.action.Revision++
	f.changed.Broadcast()
	return f.action
}

func (f *fake) write(stream, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out[stream] = append(f.out[stream], data...)
	f.changed.Broadcast()
}

func (f *fake) finish(code int) {
	f.change(func(a *longstop.Action) {
		a.Workload.State, a.Workload.Result = longstop.WorkloadFinished, &longstop.Result{ExitCode: &code}
		a.Alive, a.Outcome = longstop.AliveNo, longstop.OutcomeSucceeded
		a.Output = longstop.Output{StdoutBytes: int64(len(f.out["stdout"])), StderrBytes: int64(len(f.out["stderr"]))}
	})
}

// await waits under the lock until ready says so or ctx ends.
func (f *fake) await(ctx context.Context, ready func() bool) error {
	defer context.AfterFunc(ctx, func() { f.mu.Lock(); f.changed.Broadcast(); f.mu.Unlock() })()
	for !ready() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.changed.Wait()
	}
	return nil
}

func (f *fake) Status(context.Context) (longstop.DaemonStatus, error) {
	return longstop.DaemonStatus{Version: longstop.Version, API: longstop.APIVersion, PID: 1}, nil
}

func (f *fake) Enrol(_ context.Context, e longstop.EnrolRequest, note func(string)) (longstop.Host, error) {
	return f.enrol(note)
}
func (f *fake) Hosts(context.Context) ([]longstop.Host, error) { return nil, nil }
func (f *fake) CheckHost(_ context.Context, name string, note func(string)) (longstop.Host, error) {
	return f.enrol(note)
}
func (f *fake) RemoveHost(context.Context, string) error { return nil }

func (f *fake) ForcedSetup(_ context.Context, req longstop.EnrolRequest) (longstop.ForcedSetup, error) {
	return longstop.ForcedSetup{User: "deploy", Runner: req.Runner, Keys: []longstop.ForcedKey{{Line: "key of " + req.Name}}}, nil
}

func (f *fake) Runner(arch string) ([]byte, string, error) {
	if arch != "amd64" {
		return nil, "", &longstop.Error{Code: longstop.CodeUsage, Message: "there is no runner for " + arch}
	}
	return bytes.Repeat([]byte("\x7fELF"), 1<<18), "", nil
}

func (f *fake) SpoolStdin(_ context.Context, r io.Reader) (longstop.Stdin, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return longstop.Stdin{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stdin = data
	return longstop.Stdin{ID: "in_1", Bytes: int64(len(data))}, nil
}

func (f *fake) Run(ctx context.Context, req longstop.RunRequest, peer longstop.Requester, told gateway.Told) (longstop.Action, error) {
	f.mu.Lock()
	f.runs, f.peers = append(f.runs, req), append(f.peers, peer)
	f.mu.Unlock()
	var err error
	if f.run != nil {
		err = f.run(ctx, told)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.action, err
}

func (f *fake) Action(_ context.Context, id string) (longstop.Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id != string(f.action.ID) && id != "0001" {
		return longstop.Action{}, &longstop.Error{Code: longstop.CodeNotFound, Message: "no action " + id, Hint: "longstop ps -a"}
	}
	return f.action, nil
}

func (f *fake) Actions(context.Context, gateway.ActionFilter) ([]longstop.Action, error) {
	return nil, nil
}

func (f *fake) Wait(ctx context.Context, id string) (longstop.Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.await(ctx, func() bool { return f.action.Settled() })
	return f.action, err
}

func (f *fake) RecordWait(_ context.Context, id, by string) (longstop.Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits = append(f.waits, by)
	return f.action, nil
}

func (f *fake) Watch(ctx context.Context, id string) (<-chan longstop.Action, error) {
	c := make(chan longstop.Action, 1)
	go func() {
		defer close(c)
		for seen := int64(0); ; {
			f.mu.Lock()
			err := f.await(ctx, func() bool { return f.action.Revision+f.shown > seen })
			a := f.action
			seen = f.action.Revision + f.shown
			f.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case c <- a:
			case <-ctx.Done():
				return
			}
			if a.Settled() {
				return
			}
		}
	}()
	return c, nil
}

// Flow gives what there is in pieces, and fails once where the test says so.
func (f *fake) Flow(_ context.Context, _, stream string, offset int64, take func(wire.OutputAnswer) error) (wire.OutputAnswer, error) {
	reached := wire.OutputAnswer{Offset: offset}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flows++
	if f.noRoom {
		return reached, &longstop.Error{Code: longstop.CodeSessionRefused, Message: "no room"}
	}
	total := int64(len(f.out[stream]))
	for reached.Offset < total {
		if f.flowCut > 0 && reached.Offset >= f.flowCut {
			f.flowCut = 0
			return reached, &longstop.Error{Code: longstop.CodeUnreachable, Message: "cut"}
		}
		data := bytes.Clone(f.out[stream][reached.Offset:min(total, reached.Offset+100_000)])
		f.mu.Unlock()
		err := take(wire.OutputAnswer{Offset: reached.Offset, Data: data, Total: total})
		clear(data) // it is valid until take returns
		f.mu.Lock()
		reached.Offset += int64(len(data))
		if err != nil {
			return reached, err
		}
	}
	reached.End = f.end(stream, reached.Offset)
	return reached, nil
}

func (f *fake) Output(ctx context.Context, id, stream string, offset int64, max int, wait time.Duration) (wire.OutputAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.outErr; err != nil {
		f.outErr = nil
		return wire.OutputAnswer{}, err
	}
	if err := f.await(ctx, func() bool { return int64(len(f.out[stream])) > offset || f.action.Settled() && !f.released }); err != nil {
		return wire.OutputAnswer{}, err
	}
	var dropped []longstop.Dropped
	if gap := f.gap; gap.From <= offset && offset < gap.To {
		gap.From = offset
		dropped, offset = []longstop.Dropped{gap}, gap.To
	}
	if f.torn {
		return wire.OutputAnswer{}, &longstop.Error{Code: longstop.CodeUnreadable, Message: "torn"}
	}
	data := f.out[stream][min(offset, int64(len(f.out[stream]))):]
	if len(data) > f.piece { // in pieces, so that there are several
		data = data[:f.piece]
	}
	if kept := f.gap.From - offset; kept > 0 && int64(len(data)) > kept {
		data = data[:kept]
	}
	return wire.OutputAnswer{Offset: offset, Data: append([]byte(nil), data...), Total: int64(len(f.out[stream])), Dropped: dropped,
		End: f.end(stream, offset+int64(len(data)))}, nil
}

func (f *fake) OutputTimes(context.Context, string, string) (longstop.OutputTimes, error) {
	return longstop.OutputTimes{Arrivals: []longstop.Arrival{{At: longstop.At(time.Unix(1700000000, 0))}}, Total: 5}, nil
}

func (f *fake) Inspect(context.Context, string) (wire.InspectAnswer, error) {
	return wire.InspectAnswer{Complete: true}, nil
}

// Cancel without a script is one that no host answers: it lasts as long as its caller.
func (f *fake) Cancel(ctx context.Context, id string, by longstop.Requester, note func(string)) (longstop.Action, error) {
	var err error
	if f.cancel != nil {
		err = f.cancel(note)
	} else {
		<-ctx.Done()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.action, err
}

func (f *fake) Reconcile(context.Context, string) (longstop.Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.action, nil
}

func (f *fake) Journal(context.Context, gateway.JournalFilter) ([]longstop.JournalEntry, error) {
	return slices.Clone(f.entries), nil
}

func (f *fake) Redact(text string) string { return strings.ReplaceAll(text, "hunter2!", "[redacted]") }

func (f *fake) Checkpoint(context.Context) (longstop.Checkpoint, error) {
	return longstop.Checkpoint{Size: 7}, nil
}

func (f *fake) KeepCosigned(_ context.Context, signed []byte) (longstop.Checkpoint, error) {
	return longstop.Checkpoint{Size: 7, Note: string(signed)}, nil
}

func (f *fake) Raw(context.Context, string) ([]gateway.RawAnswer, error) {
	return []gateway.RawAnswer{{Kind: "submit_answer", Bytes: []byte("\xff\x00")}}, nil
}

// Agent knows one token.
func (f *fake) Agent(_ context.Context, token string) (longstop.Requester, error) {
	asked := f.asked.Add(1)
	if f.onAsked != nil {
		f.onAsked(asked)
	}
	if token != "lst_scout" || f.revoked.Load() || f.lasts > 0 && asked > f.lasts {
		return longstop.Requester{}, &longstop.Error{Code: longstop.CodeTokenRefused, Message: "the token is not known here", Hint: "longstop token create NAME"}
	}
	return longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout", Via: "http"}, nil
}

func (f *fake) CreateToken(_ context.Context, req longstop.TokenRequest, _ longstop.Requester) (longstop.NewToken, error) {
	return longstop.NewToken{Secret: "lst_" + req.Name, Token: longstop.Token{Name: req.Name}}, nil
}
func (f *fake) Tokens(context.Context) ([]longstop.Token, error)              { return nil, nil }
func (f *fake) RevokeToken(context.Context, string, longstop.Requester) error { return nil }

// Retry is Run: what may be retried is the gateway's to say.
func (f *fake) Retry(ctx context.Context, id string, req longstop.RetryRequest, peer longstop.Requester, told gateway.Told) (longstop.Action, error) {
	f.mu.Lock()
	f.retries = append(f.retries, req)
	f.mu.Unlock()
	return f.Run(ctx, longstop.RunRequest{Host: "h1", Key: req.Key}, peer, told)
}

func (f *fake) Approvals(context.Context) ([]longstop.Action, error) { return nil, nil }
func (f *fake) Approve(_ context.Context, id string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error) {
	return f.decided(id, "granted", "", by, proof)
}
func (f *fake) Deny(_ context.Context, id, reason string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error) {
	return f.decided(id, "denied", reason, by, proof)
}
func (f *fake) Revoke(_ context.Context, id, reason string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error) {
	return f.decided(id, "revoked", reason, by, proof)
}

// decided shows what came through.
func (f *fake) decided(id, state, reason string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error) {
	return longstop.Action{ID: longstop.ActionID(id), Approval: longstop.Approval{
		State: longstop.ApprovalState(state), By: by.Kind, Binds: proof.Challenge, Because: reason}}, nil
}
func (f *fake) Challenge(_ context.Context, about longstop.ChallengeRequest, _ longstop.Requester) (longstop.Challenge, error) {
	return longstop.Challenge{ID: "chl_1", Statement: string(about.Kind) + " " + string(about.ActionID)}, nil
}
func (f *fake) Approvers(context.Context) ([]longstop.KnownApprover, error) {
	return slices.Clone(f.known), nil
}
func (f *fake) SetApprover(_ context.Context, a longstop.Approver, proof *longstop.Proof, _ longstop.Requester) (longstop.KnownApprover, error) {
	return longstop.KnownApprover{Approver: a, First: proof == nil}, nil
}
func (f *fake) RemoveApprover(_ context.Context, name string, proof longstop.Proof, _ longstop.Requester) (longstop.KnownApprover, error) {
	return longstop.KnownApprover{Approver: longstop.Approver{Name: name}, SetBy: proof.Challenge}, nil
}
func (f *fake) Policy() longstop.Policy {
	return longstop.Policy{Digest: "sha256:p", Text: "default: deny\n"}
}
func (f *fake) SetPolicy(_ context.Context, text []byte, by longstop.Requester, proof longstop.Proof) (longstop.Policy, error) {
	return longstop.Policy{Digest: by.Kind + " " + proof.Challenge, Text: string(text)}, nil
}
func (f *fake) CheckPolicy(text []byte) (longstop.PolicyCheck, error) {
	return longstop.PolicyCheck{Problems: []longstop.PolicyProblem{{Line: 2, Column: 3, Message: "of " + string(text)}}}, nil
}
func (f *fake) Explain(q longstop.PolicyQuestion, peer longstop.Requester) (longstop.PolicyVerdict, error) {
	return longstop.PolicyVerdict{Decision: "deny", Rule: peer.Kind + " on " + q.Run.Host, Reason: *q.Text + " for " + q.As.Name}, nil
}
func (f *fake) RefuseAgent(_ context.Context, who longstop.Requester, asked, id string) error {
	return &longstop.Error{Code: longstop.CodeNotAllowed, Message: who.Name + " asked " + asked, ActionID: longstop.ActionID(id)}
}

func (f *fake) StartSession(context.Context, longstop.SessionRequest, longstop.Requester) (longstop.SessionView, error) {
	return longstop.SessionView{}, nil
}

func (f *fake) EndSession(context.Context, string, longstop.SessionCancel, longstop.Requester) (longstop.SessionEnded, error) {
	return longstop.SessionEnded{}, nil
}

func (f *fake) Session(context.Context, string, longstop.Requester) (longstop.SessionView, error) {
	return longstop.SessionView{}, nil
}

func (f *fake) Sessions(context.Context, gateway.SessionFilter, longstop.Requester) ([]longstop.SessionView, error) {
	return nil, nil
}

func (f *fake) Resolve(ctx context.Context, id string, _ longstop.ResolveRequest, _ longstop.Requester) (longstop.Action, error) {
	return f.Action(ctx, id)
}

func (f *fake) Inquire(ctx context.Context, _ string, req longstop.InquireRequest, peer longstop.Requester, told gateway.Told) (longstop.Action, error) {
	return f.Run(ctx, longstop.RunRequest{Host: "h1", Key: req.Key}, peer, told)
}

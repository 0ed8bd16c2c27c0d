// Package client speaks the gateway's HTTP API over its Unix socket, and starts the gateway where
// none runs. It owns where the gateway lives (Home), how one is started (Start) and the exchange
// itself; it decides nothing about actions. It must stay light: every `longstop` command pays for
// its start.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fastjson"
)

// Client is one gateway's client. The zero OnAbsent leaves an absent gateway absent.
type Client struct {
	Home Home
	// OnAbsent is called when nobody listens; nil error: try again. It may be called up to startTries
	// times, for who came may be killed before it is reached.
	OnAbsent func(ctx context.Context) error
	// Token, where given, is the agent's whose requests these are.
	Token string
}

// ErrAbsent says that no gateway runs. Nothing was asked of anyone.
var ErrAbsent = errors.New("no gateway runs")

func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	conn, err := dial(c.Home.Socket())
	for tries := 0; tries < startTries && absent(err); tries++ {
		if c.OnAbsent == nil {
			return nil, ErrAbsent
		}
		if err := c.OnAbsent(ctx); err != nil {
			return nil, err
		}
		conn, err = dial(c.Home.Socket())
	}
	return conn, dialError(err, c.Home)
}

func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR)
}

func dialError(err error, home Home) error {
	var known *longstop.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: "cannot reach the gateway on " + home.Socket(), Err: err,
		Hint: "longstop doctor"}
}

// do makes one exchange and refuses an answer of another API version or one that is an error.
func (c *Client) do(ctx context.Context, q request) (*response, error) {
	r, err := c.exchange(ctx, q)
	// A gateway that is being killed still takes connections. What only looks is asked once more, of
	// whoever is there then.
	harmless := q.method == "GET" || q.again
	for tries := 0; tries < 2 && harmless && errors.Is(err, ErrGone) && !errors.Is(err, os.ErrDeadlineExceeded); tries++ {
		r, err = c.exchange(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	if err := c.check(r); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (c *Client) exchange(ctx context.Context, q request) (*response, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	q.token = c.Token
	return send(ctx, conn, q)
}

func (c *Client) check(r *response) error {
	if r.api == "" {
		return &longstop.Error{Code: longstop.CodeVersionMismatch,
			Message: "what listens on " + c.Home.Socket() + " is not a Longstop gateway", Hint: "longstop doctor"}
	}
	if r.status >= 300 {
		return r.problem()
	}
	if r.api != strconv.Itoa(longstop.APIVersion) {
		return &longstop.Error{Code: longstop.CodeVersionMismatch,
			Message: fmt.Sprintf("this longstop (%s) speaks version %d of the API, the running gateway %s", longstop.Version, longstop.APIVersion, r.api),
			Hint:    "longstop daemon stop (runs go on), then the same command again: it starts the gateway that belongs to it"}
	}
	return nil
}

// call makes an exchange of JSON.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	q := request{method: method, path: target(path, query)}
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("make the request: %w", err)
		}
		q.body, q.length, q.contentType = bytes.NewReader(data), int64(len(data)), "application/json"
	}
	r, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.readJSON(out)
}

func target(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

const v1 = "/api/v1"

func action(id, more string) string { return v1 + "/actions/" + url.PathEscape(id) + more }

// Status asks the gateway about itself.
func (c *Client) Status(ctx context.Context) (s longstop.DaemonStatus, err error) {
	err = c.call(ctx, "GET", v1+"/status", nil, nil, &s)
	return s, err
}

// Stop asks the gateway to end. It answers before it has.
func (c *Client) Stop(ctx context.Context) error {
	return c.call(ctx, "POST", v1+"/stop", nil, nil, nil)
}

// Hosts lists the enrolled hosts.
func (c *Client) Hosts(ctx context.Context) (hosts []longstop.Host, err error) {
	err = c.call(ctx, "GET", v1+"/hosts", nil, nil, &hosts)
	return hosts, err
}

// Enrol enrols a host; note gets lines of progress.
func (c *Client) Enrol(ctx context.Context, e longstop.EnrolRequest, note func(string)) (h longstop.Host, err error) {
	err = c.follow(ctx, v1+"/hosts", e, note, &h)
	return h, err
}

// CheckHost asks a host who it is, now.
func (c *Client) CheckHost(ctx context.Context, name string, note func(string)) (h longstop.Host, err error) {
	err = c.follow(ctx, v1+"/hosts/"+url.PathEscape(name)+"/check", nil, note, &h)
	return h, err
}

// RemoveHost forgets a host.
func (c *Client) RemoveHost(ctx context.Context, name string) error {
	return c.call(ctx, "DELETE", v1+"/hosts/"+url.PathEscape(name), nil, nil, nil)
}

// CreateToken makes a token for an agent.
func (c *Client) CreateToken(ctx context.Context, req longstop.TokenRequest) (made longstop.NewToken, err error) {
	err = c.call(ctx, "POST", v1+"/tokens", nil, req, &made)
	return made, err
}

// Tokens lists all tokens, newest first.
func (c *Client) Tokens(ctx context.Context) (list []longstop.Token, err error) {
	err = c.call(ctx, "GET", v1+"/tokens", nil, nil, &list)
	return list, err
}

// RevokeToken takes a token back.
func (c *Client) RevokeToken(ctx context.Context, name string) error {
	return c.call(ctx, "DELETE", v1+"/tokens/"+url.PathEscape(name), nil, nil, nil)
}

// SpoolStdin sends standard input for a run to come.
func (c *Client) SpoolStdin(ctx context.Context, stdin io.Reader) (s longstop.Stdin, err error) {
	r, err := c.do(ctx, request{method: "POST", path: v1 + "/stdin", body: stdin, length: -1, contentType: "application/octet-stream"})
	if err != nil {
		return s, err
	}
	defer r.Close()
	return s, r.readJSON(&s)
}

// Offsets say from where on a follow stream carries output. A negative one leaves the stream out. Rest, for
// an action that is there, asks for what released processes write after the run's end, too.
type Offsets struct {
	Stdout, Stderr int64
	Rest           bool
}

func (o Offsets) query() url.Values {
	query := url.Values{"stdout": {strconv.FormatInt(o.Stdout, 10)}, "stderr": {strconv.FormatInt(o.Stderr, 10)}}
	if o.Rest {
		query.Set("rest", "1")
	}
	return query
}

// Launch is Run for who waits no longer than for the host's answer, and for no output.
func (c *Client) Launch(ctx context.Context, run longstop.RunRequest) (*Follow, error) {
	query := Offsets{Stdout: -1, Stderr: -1}.query()
	query.Set("follow", "1")
	return c.stream(ctx, "POST", v1+"/actions", query, fastjson.AppendRun(nil, &run))
}

// Run asks for an action and follows it from its first moment.
func (c *Client) Run(ctx context.Context, run longstop.RunRequest, from Offsets) (*Follow, error) {
	query := from.query()
	query.Set("follow", "1")
	return c.stream(ctx, "POST", v1+"/actions", query, fastjson.AppendRun(nil, &run))
}

// Retry asks for the next attempt at an action's work and follows it from its first moment.
func (c *Client) Retry(ctx context.Context, id string, retry longstop.RetryRequest, from Offsets) (*Follow, error) {
	return c.sequel(ctx, action(id, "/retry"), retry, from)
}

// Inquire asks the application about an action's work, by an action of its own, and follows that.
func (c *Client) Inquire(ctx context.Context, id string, inquire longstop.InquireRequest, from Offsets) (*Follow, error) {
	return c.sequel(ctx, action(id, "/inquire"), inquire, from)
}

func (c *Client) sequel(ctx context.Context, path string, ask any, from Offsets) (*Follow, error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	query := from.query()
	query.Set("follow", "1")
	return c.stream(ctx, "POST", path, query, body)
}

// Follow follows an action from the given offsets of its output.
func (c *Client) Follow(ctx context.Context, id longstop.ActionID, from Offsets) (*Follow, error) {
	return c.stream(ctx, "GET", action(string(id), "/follow"), from.query(), nil)
}

// Action looks one action up, by its id or an end of it that fits no other.
func (c *Client) Action(ctx context.Context, id string) (a longstop.Action, err error) {
	err = c.call(ctx, "GET", action(id, ""), nil, nil, &a)
	return a, err
}

// Filter chooses actions.
type Filter struct {
	All     bool // those that are over, too
	Host    string
	Session string
	Before  string // an action id: older ones than it
	Limit   int
}

// Actions lists actions, newest first.
func (c *Client) Actions(ctx context.Context, f Filter) (list []longstop.Action, err error) {
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.All {
		query.Set("all", "1")
	}
	set("host", f.Host)
	set("session", f.Session)
	set("before", f.Before)
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	err = c.call(ctx, "GET", v1+"/actions", query, nil, &list)
	return list, err
}

// Wait waits until the action is final, or for the given time, and returns it as it is then.
func (c *Client) Wait(ctx context.Context, id string, timeout time.Duration) (a longstop.Action, err error) {
	r, err := c.do(ctx, request{method: "GET", patience: timeout + stall,
		path: target(action(id, "/wait"), url.Values{"timeout_ms": {strconv.FormatInt(timeout.Milliseconds(), 10)}})})
	if err != nil {
		return a, err
	}
	defer r.Close()
	return a, r.readJSON(&a)
}

// GiveUp records that someone stopped waiting.
func (c *Client) GiveUp(ctx context.Context, id longstop.ActionID, by string) error {
	return c.call(ctx, "POST", action(string(id), "/waits"), nil, longstop.GiveUp{By: by}, nil)
}

// Inspection is every process of a run's boundary, with the owner's and keeper's.
type Inspection struct {
	Processes []longstop.Process `json:"processes"`
	Owner     *longstop.Process  `json:"owner,omitempty"`
	Keeper    *longstop.Process  `json:"keeper,omitempty"`
	Complete  bool               `json:"complete"`
}

// Inspect asks the host for the processes of a run, now.
func (c *Client) Inspect(ctx context.Context, id string) (i Inspection, err error) {
	err = c.call(ctx, "GET", action(id, "/inspect"), nil, nil, &i)
	return i, err
}

// OutputTimes says when the bytes of a stream came at the host.
func (c *Client) OutputTimes(ctx context.Context, id, stream string) (times longstop.OutputTimes, err error) {
	err = c.call(ctx, "GET", action(id, "/times"), url.Values{"stream": {stream}}, nil, &times)
	return times, err
}

// Raw returns the answers of the host about an action, as the bytes that came.
func (c *Client) Raw(ctx context.Context, id string) (list []longstop.RawAnswer, err error) {
	err = c.call(ctx, "GET", action(id, "/raw"), nil, nil, &list)
	return list, err
}

// Cancel stops a run and returns its action once nothing is left or the host refused; note gets
// lines of progress.
func (c *Client) Cancel(ctx context.Context, id string, note func(string)) (a longstop.Action, err error) {
	err = c.follow(ctx, action(id, "/cancel"), nil, note, &a)
	return a, err
}

// Reconcile asks the host again what became of an action, starting nothing.
func (c *Client) Reconcile(ctx context.Context, id string, note func(string)) (a longstop.Action, err error) {
	err = c.follow(ctx, action(id, "/reconcile"), nil, note, &a)
	return a, err
}

// Checkpoint signs the journal's head, or, where one is given, keeps a checkpoint that a witness signed too.
func (c *Client) Checkpoint(ctx context.Context, cosigned string) (made longstop.Checkpoint, err error) {
	err = c.call(ctx, "POST", v1+"/journal/checkpoints", nil, longstop.CosignedRequest{Cosigned: cosigned}, &made)
	return made, err
}

// JournalFilter chooses journal entries. Empty fields choose all.
type JournalFilter struct {
	Action, Session, Host, Kind string
	Since                       time.Time
	After                       int64 // entries with a larger index; -1 from the first
	Before                      int64 // entries with a smaller index; 0: to the last
	Newest                      bool  // but of one action's: the newest
	Limit                       int
}

// Journal lists entries, oldest first.
func (c *Client) Journal(ctx context.Context, f JournalFilter) (list []longstop.JournalEntry, err error) {
	query := url.Values{"after": {strconv.FormatInt(f.After, 10)}, "limit": {strconv.Itoa(f.Limit)}}
	for name, value := range map[string]string{"action": f.Action, "session": f.Session, "host": f.Host, "kind": f.Kind} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.Newest {
		query.Set("newest", "1")
	}
	if f.Before > 0 {
		query.Set("before", strconv.FormatInt(f.Before, 10))
	}
	if !f.Since.IsZero() {
		query.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	err = c.call(ctx, "GET", v1+"/journal", query, nil, &list)
	return list, err
}

// stream opens a follow stream, with a body of JSON or none.
func (c *Client) stream(ctx context.Context, method, path string, query url.Values, body []byte) (*Follow, error) {
	q := request{method: method, path: target(path, query), patience: stall, again: body == nil}
	if body != nil {
		q.body, q.length, q.contentType = bytes.NewReader(body), int64(len(body)), "application/json"
	}
	r, err := c.do(ctx, q)
	if err != nil {
		return nil, err
	}
	if r.kind != longstop.FollowType {
		r.Close()
		return nil, &longstop.Error{Code: longstop.CodeBadAnswer, Message: "the gateway answered " + r.kind + " where a follow stream was asked for"}
	}
	r.in.patience = stall // heartbeats make silence news
	return &Follow{r: r, events: NewDecoder(r.body)}, nil
}

// follow makes an exchange that answers with notes and one result.
func (c *Client) follow(ctx context.Context, path string, in any, note func(string), out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("make the request: %w", err)
		}
	}
	f, err := c.stream(ctx, "POST", path, url.Values{"follow": {"1"}}, body)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		e, err := f.Next()
		if err == io.EOF {
			return fmt.Errorf("%w: its answer ended early", ErrGone)
		}
		if err != nil {
			return err
		}
		switch e.Kind {
		case longstop.FollowNote:
			note(string(e.Data))
		case longstop.FollowResult:
			if err := json.Unmarshal(e.Data, out); err != nil {
				return &longstop.Error{Code: longstop.CodeBadAnswer, Message: "the gateway's answer cannot be read", Err: err}
			}
			return nil
		}
	}
}

// Output returns the bytes of a stream ("stdout", "stderr") from an offset to what there is of it
// now. An early end is an error of its Read.
func (c *Client) Output(ctx context.Context, id, stream string, offset int64) (io.ReadCloser, error) {
	r, err := c.do(ctx, request{method: "GET", path: target(action(id, "/output"),
		url.Values{"stream": {stream}, "offset": {strconv.FormatInt(offset, 10)}})})
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{r.body, closer(r.Close)}, nil
}

type closer func()

func (c closer) Close() error { c(); return nil }

package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/longstop/longstop"
)

// maxEvent bounds one event of a follow stream.
const maxEvent = 16 << 20

// Event is one event of a follow stream. Data is valid until the next one is read.
type Event struct {
	Kind   longstop.FollowKind
	Offset int64 // of Data's first byte in its stream; stdout and stderr alone
	Data   []byte
}

// Decoder reads the events of a follow stream (longstop.FollowType). It trusts nothing: a malformed
// event is an error, and the decoder is dead from then on.
type Decoder struct {
	in     *bufio.Reader
	buffer []byte
	err    error
}

// NewDecoder reads events from r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{in: bufio.NewReaderSize(r, 4<<10)} }

// Next reads one event. It returns io.EOF between events alone; whether the stream was complete
// is for the reader of the last event to say.
func (d *Decoder) Next() (Event, error) {
	if d.err != nil {
		return Event{}, d.err
	}
	e, err := d.next()
	if err != nil {
		d.err = err
	}
	return e, err
}

func (d *Decoder) next() (Event, error) {
	line, err := d.in.ReadSlice('\n')
	if err != nil {
		if err == io.EOF && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			err = errors.New("an event without a line of its own")
		}
		return Event{}, err
	}
	fields := strings.Split(string(line[:len(line)-1]), " ")
	if len(fields) != 3 || !kindName(fields[0]) {
		return Event{}, fmt.Errorf("not an event: %.80q", line)
	}
	offset, err1 := count(fields[1])
	length, err2 := count(fields[2])
	if err := errors.Join(err1, err2); err != nil {
		return Event{}, fmt.Errorf("event %.80q: %w", line, err)
	}
	if length > maxEvent {
		return Event{}, fmt.Errorf("an event of %d bytes is too long", length)
	}
	if int64(cap(d.buffer)) < length {
		d.buffer = make([]byte, max(length, 64<<10))
	}
	data := d.buffer[:length]
	if _, err := io.ReadFull(d.in, data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Event{}, err
	}
	return Event{Kind: longstop.FollowKind(fields[0]), Offset: offset, Data: data}, nil
}

func kindName(s string) bool {
	for _, c := range s {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return s != ""
}

// count reads a decimal number in its one spelling.
func count(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("bad number %.40q", s)
	}
	return n, nil
}

// Follow is a running follow stream. Close it; that stops nothing but the stream.
type Follow struct {
	r      *response
	events *Decoder
}

// Next is Decoder.Next, with heartbeats and unknown kinds passed over and an error event returned
// as the *longstop.Error it is. A broken or silent stream is ErrGone.
func (f *Follow) Next() (Event, error) {
	for {
		e, err := f.events.Next()
		if err == io.EOF {
			return Event{}, io.EOF
		}
		if err != nil {
			return Event{}, fmt.Errorf("%w: %w", ErrGone, err)
		}
		switch e.Kind {
		case longstop.FollowStdout, longstop.FollowStderr, longstop.FollowDropped, longstop.FollowAction, longstop.FollowNote, longstop.FollowResult, longstop.FollowBeat:
			return e, nil
		case longstop.FollowError:
			problem := new(longstop.Error)
			if err := json.Unmarshal(e.Data, problem); err != nil {
				return Event{}, fmt.Errorf("%w: an error event: %w", ErrGone, err)
			}
			return Event{}, problem
		}
	}
}

// Close ends the stream.
func (f *Follow) Close() { f.r.Close() }

package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Defaults of Options.
const (
	DefaultMaxBody  = 16 << 20
	DefaultMaxNoise = 64 << 10
)

// Options bound a Reader and tell it what to expect.
type Options struct {
	// MaxBody is the longest body accepted; 0 is DefaultMaxBody.
	MaxBody int
	// MaxNoise is how much of what comes before the first frame is kept; 0 is DefaultMaxNoise. What
	// comes beyond it is counted and dropped: how long to wait for a frame is the caller's deadline.
	// Negative: the first byte must begin a frame. Requests are read so, no shell stands before them.
	MaxNoise int
	// Nonce is the nonce of the first frame, where the caller knows it: that of a call of its own,
	// or of the first request on a serve channel. Until a header bears it everything is noise, even
	// what has the form of a frame, and that header is found wherever it begins in its line (a
	// start-up file may have printed without a line feed). A header that bears it and is malformed
	// is an error. Empty: the first line that is a well-formed header begins the first frame.
	Nonce string
	// Data says that frames may carry data behind their JSON.
	Data bool
	// Withdrawals says that a frame may be withdrawn where it ends. Those are passed over.
	Withdrawals bool
	// Ahead, where given, is called with a frame whose last line has yet to come: what is read from it
	// is of use if Next returns it, and nothing otherwise. Not with one of more than MaxBegun.
	Ahead func(nonce string, body []byte)
	// Into, where given, is where each frame is read to, grown as needed: body, Data and Raw are then
	// valid until the next call of Next.
	Into *[]byte
}

// BadFrame says that what came can not be told from something else. Nothing after it is read.
type BadFrame struct {
	Why string
	Cut bool  // nothing wrong came, but the channel ended inside a frame
	Err error // of the transport, where that is why
}

func (e *BadFrame) Error() string {
	if e.Err != nil {
		return "bad frame: " + e.Why + ": " + e.Err.Error()
	}
	return "bad frame: " + e.Why
}

func (e *BadFrame) Unwrap() error { return e.Err }

// Reader reads the frames of one channel. It is strict: once the first frame has begun, every byte
// belongs to a frame, or the reader is dead and returns the same *BadFrame for ever.
type Reader struct {
	in         *bufio.Reader
	maxBody    int
	maxNoise   int
	nonce      string
	noise      []byte
	noiseTotal int64
	begun      bool // the first frame has
	raw        []byte
	data       []byte
	mayData    bool
	mayNot     bool
	ahead      func(nonce string, body []byte)
	into       *[]byte
	dead       error
}

// NewReader reads frames from r.
func NewReader(r io.Reader, options Options) *Reader {
	reader := &Reader{in: bufio.NewReaderSize(r, 64<<10), maxBody: options.MaxBody, maxNoise: options.MaxNoise, nonce: options.Nonce,
		mayData: options.Data, mayNot: options.Withdrawals, ahead: options.Ahead, into: options.Into}
	if reader.maxBody <= 0 || reader.maxBody > limitOfBody {
		reader.maxBody = DefaultMaxBody
	}
	if reader.maxNoise == 0 {
		reader.maxNoise = DefaultMaxNoise
	}
	return reader
}

// Noise returns what came before the first frame, at most MaxNoise bytes of its beginning.
func (r *Reader) Noise() []byte { return r.noise }

// NoiseTotal counts all bytes that came before the first frame, the dropped ones too.
func (r *Reader) NoiseTotal() int64 { return r.noiseTotal }

// Raw returns the exact bytes of the last frame, header and trailer included, or of as much of it
// as came before an error. They are not reused, but for Options.Into.
func (r *Reader) Raw() []byte { return r.raw }

// Data returns what the last frame carried behind its JSON, which is part of Raw.
func (r *Reader) Data() []byte { return r.data }

// Next returns the next frame's nonce and JSON. It returns io.EOF where the channel ends between
// frames, or before the first one; the transport's own error where that breaks between frames; and
// *BadFrame for anything that is not a whole frame: nothing of a frame is handed on before all of it
// is there. Body is not reused, but for Options.Into.
func (r *Reader) Next() (nonce string, body []byte, err error) {
	if r.dead != nil {
		return "", nil, r.dead
	}
	for err = errWithdrawn; err == errWithdrawn; {
		r.raw, r.data = nil, nil
		if r.into != nil {
			r.raw = (*r.into)[:0]
		}
		nonce, body, err = r.next()
		if r.into != nil {
			*r.into = r.raw
		}
	}
	if err != nil {
		r.dead = err
	}
	return nonce, body, err
}

// errWithdrawn is a frame that is not to be.
var errWithdrawn = errors.New("the frame was withdrawn")

func (r *Reader) next() (string, []byte, error) {
	var line []byte
	var err error
	if r.begun || r.maxNoise < 0 {
		line, err = r.header()
	} else {
		line, err = r.firstHeader()
	}
	if err != nil {
		return "", nil, err
	}
	r.begun = true
	r.raw = append(r.raw, line...)
	h, err := parseHeader(line)
	if err != nil {
		return "", nil, &BadFrame{Why: err.Error()}
	}
	if r.nonce != "" && r.nonce != h.nonce {
		return "", nil, &BadFrame{Why: "the first frame bears another nonce than was asked for"}
	}
	r.nonce = ""
	if h.size > 0 && !r.mayData {
		return "", nil, &BadFrame{Why: "a frame with data where none may be"}
	}
	if h.length+h.size > r.maxBody {
		return "", nil, &BadFrame{Why: fmt.Sprintf("a body of %d bytes, over the limit of %d", h.length+h.size, r.maxBody)}
	}
	from := len(line) + h.length
	to := from + h.size
	if err := r.fill(to); err != nil {
		return "", nil, err
	}
	if r.ahead != nil && h.length <= MaxBegun && r.in.Buffered() < trailerLen {
		r.ahead(h.nonce, r.raw[len(line):from:from])
	}
	if err := r.fill(to + trailerLen); err != nil {
		return "", nil, err
	}
	if r.mayNot && bytes.Equal(r.raw[to:], appendTrailer(nil, frameNot, h.nonce)) {
		return "", nil, errWithdrawn
	}
	if !bytes.Equal(r.raw[to:], appendTrailer(nil, frameEnd, h.nonce)) {
		return "", nil, &BadFrame{Why: "the body does not end in its END line: its length is wrong, or something was inserted"}
	}
	if h.size > 0 {
		r.data = r.raw[from:to:to]
	}
	return h.nonce, r.raw[len(line):from:from], nil
}

// header reads the line that must be the next header.
func (r *Reader) header() ([]byte, error) {
	if _, err := r.in.Peek(1); err != nil {
		return nil, err
	}
	// No further than a header can be long: rubbish without a line feed is not waited for.
	line := make([]byte, 0, maxHeader)
	for len(line) < maxHeader {
		c, err := r.in.ReadByte()
		if err != nil {
			r.raw = line
			return nil, &BadFrame{Why: "the channel ended inside a header", Cut: true, Err: unlessEOF(err)}
		}
		line = append(line, c)
		if n := len(line); c == '\n' || n <= len(frameMagic) && line[n-1] != frameMagic[n-1] {
			break
		}
	}
	if _, err := parseHeader(line); err != nil {
		r.raw = line
		return nil, &BadFrame{Why: "bytes between frames or a broken header: " + err.Error()}
	}
	return line, nil
}

// firstHeader passes over noise to the first header. A header ends in a line feed and is at most
// maxHeader long, so that the end of each line is all there is to look at.
func (r *Reader) firstHeader() ([]byte, error) {
	var carried []byte // the end of a line that is longer than the buffer
	atStart := true    // carried begins where a line does
	for {
		part, err := r.in.ReadSlice('\n')
		line := append(carried, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			cut := len(line) - maxHeader
			r.keepNoise(line[:cut])
			carried, atStart = bytes.Clone(line[cut:]), false
			continue
		case err != nil && r.nonce != "" && bytes.Contains(line, []byte(frameMagic+r.nonce)):
			r.raw = bytes.Clone(line)
			return nil, &BadFrame{Why: "the channel ended inside a header", Cut: true, Err: unlessEOF(err)}
		case err != nil:
			r.keepNoise(line)
			return nil, err
		}
		at, err := r.findHeader(line, atStart)
		if err != nil {
			r.raw = bytes.Clone(line)
			return nil, err
		}
		if at >= 0 {
			r.keepNoise(line[:at])
			return bytes.Clone(line[at:]), nil
		}
		r.keepNoise(line)
		carried, atStart = nil, true
	}
}

// findHeader returns where in a whole line of noise the first header begins, or -1.
func (r *Reader) findHeader(line []byte, atStart bool) (int, error) {
	at := bytes.LastIndex(line, []byte(frameMagic))
	if at < 0 {
		return -1, nil
	}
	h, err := parseHeader(line[at:])
	switch {
	case r.nonce == "":
		if err == nil && at == 0 && atStart {
			return 0, nil
		}
		return -1, nil
	case err == nil && h.nonce == r.nonce:
		return at, nil
	case bytes.HasPrefix(line[at+len(frameMagic):], []byte(r.nonce)):
		return -1, &BadFrame{Why: err.Error()}
	}
	return -1, nil
}

func (r *Reader) keepNoise(b []byte) {
	r.noiseTotal += int64(len(b))
	if room := r.maxNoise - len(r.noise); room > 0 {
		r.noise = append(r.noise, b[:min(room, len(b))]...)
	}
}

// fill reads until raw has size bytes. It grows with what has come, never with what a header
// promises, so that a length alone costs no memory.
func (r *Reader) fill(size int) error {
	const step = 2 << 20
	for len(r.raw) < size {
		have := len(r.raw)
		grown := r.raw[:min(size, cap(r.raw))]
		if len(grown) == have {
			grown = make([]byte, min(size, have+max(step, have)), min(size, have+max(step, have))+trailerLen)
			copy(grown, r.raw)
		}
		n, err := io.ReadFull(r.in, grown[have:])
		r.raw = grown[:have+n]
		if err != nil {
			return &BadFrame{Why: fmt.Sprintf("the channel ended %d bytes before the frame did", size-len(r.raw)), Cut: true, Err: unlessEOF(err)}
		}
	}
	return nil
}

func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// ErrNoFrame says that a call ended without any frame: something else ran, or nothing did.
var ErrNoFrame = errors.New("no frame came")

// ReadOne reads the answer of a call that has a channel to itself: the one frame that bears nonce,
// then the end. What stands after the frame, be it a second frame of the same nonce, is refused.
// The reader is returned for its Noise and Raw, also with an error; a channel that ended without a
// frame is ErrNoFrame.
func ReadOne(in io.Reader, nonce string, options Options) (body []byte, r *Reader, err error) {
	options.Nonce, options.Into = nonce, nil
	r = NewReader(in, options)
	_, body, err = r.Next()
	if err == io.EOF {
		return nil, r, ErrNoFrame
	}
	if err != nil {
		return nil, r, err
	}
	raw, data := r.raw, r.data
	again, _, err := r.Next()
	r.raw, r.data = append(raw[:len(raw):len(raw)], r.raw...), data
	switch {
	case err == io.EOF:
		return body, r, nil
	case err != nil:
		return nil, r, err
	case again == nonce:
		return nil, r, &BadFrame{Why: "two frames for one nonce"}
	}
	return nil, r, &BadFrame{Why: "a second frame on a channel of one answer"}
}

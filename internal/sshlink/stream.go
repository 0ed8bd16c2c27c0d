package sshlink

import (
	"io"
	"sync"
)

const (
	chunkBytes  = 32 << 10 // an SSH packet's data
	chunksAhead = 4
)

var chunkPool = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// stream carries one output of a session to its reader, a few chunks ahead of it, so that Close
// frees a reader at once, which x/crypto's Read would not be.
type stream struct {
	session *session
	from    io.Reader
	chunks  chan chunk
	err     error // after the last chunk; written before chunks is closed

	rest chunk // what the reader has not taken of a chunk
}

type chunk struct {
	buf  *[chunkBytes]byte
	data []byte
}

func newStream(s *session, from io.Reader) *stream {
	return &stream{session: s, from: from, chunks: make(chan chunk, chunksAhead)}
}

// pump ends with the stream's end, and no later than the connection's.
func (st *stream) pump() {
	for {
		buf := chunkPool.Get().(*[chunkBytes]byte)
		n, err := st.from.Read(buf[:])
		if n > 0 {
			select {
			case st.chunks <- chunk{buf, buf[:n]}:
			case <-st.session.closed:
				return
			}
		}
		if err != nil {
			st.err = err
			// The server's end-of-file and the connection's end look alike to x/crypto.
			if st.session.link.isLost() {
				st.err = st.session.link.lost(nil)
			}
			close(st.chunks)
			return
		}
	}
}

// next makes st.rest hold bytes, or says why there are none any more.
func (st *stream) next() error {
	if len(st.rest.data) > 0 {
		return nil
	}
	st.recycle()
	select {
	case <-st.session.closed:
		return errClosed
	default:
	}
	select {
	case c, ok := <-st.chunks:
		if !ok {
			return st.err
		}
		st.rest = c
		return nil
	case <-st.session.closed:
		return errClosed
	}
}

func (st *stream) recycle() {
	if st.rest.buf != nil {
		chunkPool.Put(st.rest.buf)
		st.rest = chunk{}
	}
}

func (st *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := st.next(); err != nil {
		return 0, err
	}
	n := copy(p, st.rest.data)
	st.rest.data = st.rest.data[n:]
	return n, nil
}

// WriteTo spares io.Copy a copy.
func (st *stream) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		if err := st.next(); err == io.EOF {
			return total, nil
		} else if err != nil {
			return total, err
		}
		n, err := w.Write(st.rest.data)
		st.rest.data = st.rest.data[n:]
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/longstop/longstop"
)

// stampLayout is RFC 3339 with milliseconds, in local time: what is kept is no finer than a tenth of a second.
const stampLayout = "2006-01-02T15:04:05.000Z07:00"

// stamper prints a stream with the time at which each line began to come at the host. Times are asked for
// again as the stream goes beyond those that are known.
type stamper struct {
	out     io.Writer
	ask     func(context.Context) (longstop.OutputTimes, error)
	trouble func(error) // told of the first time that asking failed; nil: nobody
	in      *time.Location
	next    int64 // offset of the next byte of a stream that is written without offsets
	known   longstop.OutputTimes
	asked   time.Time
	mid     bool // of a line
}

// Write prints what follows, passing over what the host did not keep.
func (s *stamper) Write(data []byte) (n int, err error) {
	for len(data) > 0 {
		s.look(s.next)
		piece := data
		for _, d := range s.known.Dropped {
			if d.From <= s.next && s.next < d.To {
				s.next = d.To
			} else if d.From > s.next {
				piece = data[:min(int64(len(piece)), d.From-s.next)]
				break
			}
		}
		if err := s.put(piece, s.next); err != nil {
			return n, err
		}
		n, data = n+len(piece), data[len(piece):]
	}
	return n, nil
}

// put prints bytes from an offset.
func (s *stamper) put(data []byte, offset int64) error {
	var lines []byte
	for _, c := range data {
		if !s.mid {
			lines = append(s.stamp(lines, offset), ' ')
		}
		lines = append(lines, c)
		s.mid = c != '\n'
		offset++
	}
	s.next = offset
	_, err := s.out.Write(lines)
	return err
}

// stamp appends the time at which a byte came; "-" where nobody knows.
func (s *stamper) stamp(b []byte, offset int64) []byte {
	s.look(offset)
	i, exact := slices.BinarySearchFunc(s.known.Arrivals, offset, func(a longstop.Arrival, offset int64) int {
		return int(max(-1, min(1, a.Offset-offset)))
	})
	if !exact {
		i--
	}
	if i < 0 {
		return append(b, '-')
	}
	return s.known.Arrivals[i].At.In(s.in).AppendFormat(b, stampLayout)
}

// look asks for times where those that are known do not reach an offset, now and then.
func (s *stamper) look(offset int64) {
	if now := time.Now(); offset >= s.known.Total && now.Sub(s.asked) > 100*time.Millisecond {
		s.asked = now
		ctx, cancel := context.WithTimeout(context.Background(), askPatience)
		defer cancel()
		times, err := s.ask(ctx)
		if err == nil {
			s.known = times
		} else if s.trouble != nil {
			s.trouble(err)
			s.trouble = nil
		}
	}
}

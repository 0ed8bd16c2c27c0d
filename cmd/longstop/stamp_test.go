package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

func TestStamps(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 13, 21, 4, 500_000_000, time.UTC)
	times := longstop.OutputTimes{
		Arrivals: []longstop.Arrival{{Offset: 0, At: longstop.At(at)}, {Offset: 6, At: longstop.At(at.Add(time.Second))}},
		Dropped:  []longstop.Dropped{{From: 8, To: 100, Reason: "ENOSPC"}}, Total: 200,
	}
	times.Arrivals = append(times.Arrivals, longstop.Arrival{Offset: 104, At: longstop.At(at.Add(time.Minute))})
	var out strings.Builder
	s := &stamper{out: &out, in: time.FixedZone("", 3600), ask: func(context.Context) (longstop.OutputTimes, error) { return times, nil }}
	// Bytes 0 to 8 and 100 to 112, in pieces that no line ends with.
	for _, piece := range []string{"o", "ne\ntw", "o\nthr", "ee\nfo", "ur\n"} {
		if n, err := s.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	want := "2026-11-29T14:21:04.500+01:00 one\n" +
		"2026-11-29T14:21:04.500+01:00 two\n" +
		"2026-11-29T14:21:05.500+01:00 three\n" +
		"2026-11-29T14:22:04.500+01:00 four\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}

	out.Reset()
	s = &stamper{out: &out, in: time.UTC, ask: func(context.Context) (longstop.OutputTimes, error) {
		return longstop.OutputTimes{}, errors.New("nobody answers")
	}}
	if err := s.put([]byte("a\nb"), 0); err != nil || out.String() != "- a\n- b" {
		t.Errorf("without times: %q, %v", out.String(), err)
	}
}

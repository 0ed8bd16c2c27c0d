package runner

import (
	"context"
	"errors"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// collect marks final runs whose result is durable with whoever asks. One that is not final, or cannot
// be marked now, is left out of the answer and hinders no other; one that was removed already counts.
func collect(ctx context.Context, s *session, request wire.RunRequest) (wire.CollectAnswer, error) {
	var answer wire.CollectAnswer
	var failed error
	for _, id := range request.RunIDs {
		if err := ctx.Err(); err != nil {
			return answer, err
		}
		err := s.collect(id)
		switch longstop.CodeOf(err) {
		case longstop.CodeRefused, longstop.CodeNotFound, longstop.CodeUnreadable, longstop.CodeVersionMismatch:
			continue
		}
		if err != nil && !errors.Is(err, record.ErrNoRecord) {
			failed = err
			continue
		}
		answer.Collected = append(answer.Collected, id)
	}
	if len(answer.Collected) > 0 {
		failed = nil
	}
	return answer, failed
}

func (s *session) collect(id longstop.RunID) error {
	run, err := s.folder.Run(id)
	if err != nil {
		return err
	}
	defer run.Close()
	return run.Collect()
}

// gc removes what retention allows. A run with a released process that is still alive stays.
func gc(_ context.Context, s *session, request wire.GCRequest) (wire.GCAnswer, error) {
	if request.MaxAgeS < 0 {
		return wire.GCAnswer{}, &longstop.Error{Code: longstop.CodeUsage, Message: "an age is not negative"}
	}
	if len(request.RunIDs) > maxAsked {
		return wire.GCAnswer{}, &longstop.Error{Code: longstop.CodeUsage,
			Message: "a request names at most " + itoa(maxAsked) + " runs", Hint: "Ask in parts."}
	}
	gone, more, err := s.folder.GC(record.Retention{
		Runs:   request.RunIDs,
		MaxAge: seconds(request.MaxAgeS),
		Now:    time.Now(),
		InUse:  func(rec longstop.Record) bool { return len(releasedAlive(rec)) > 0 || len(releasedHidden(rec)) > 0 },
	})
	if len(gone) > 0 {
		err = nil // the others are asked about again
	}
	return wire.GCAnswer{Removed: gone, More: more, Short: request.Short && s.folder.Short()}, err
}

// seconds is a number of seconds as a duration, at most about three centuries.
func seconds(s float64) time.Duration {
	if s > 9e9 {
		return 1<<63 - 1
	}
	return time.Duration(s * float64(time.Second))
}

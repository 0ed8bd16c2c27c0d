package runner

import (
	"context"
	"errors"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// collect marks final runs whose result is durable with whoever asks. A run that is not final is
// left out of the answer; one that was removed already counts.
func collect(ctx context.Context, s *session, request wire.RunRequest) (wire.CollectAnswer, error) {
	var answer wire.CollectAnswer
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
			return answer, err
		}
		answer.Collected = append(answer.Collected, id)
	}
	return answer, nil
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
	if request.KeepS < 0 || request.MaxAgeS < 0 {
		return wire.GCAnswer{}, &longstop.Error{Code: longstop.CodeUsage, Message: "a retention is not negative"}
	}
	removed, err := s.folder.GC(record.Retention{
		Keep:   seconds(request.KeepS),
		MaxAge: seconds(request.MaxAgeS),
		Now:    time.Now(),
		InUse:  func(rec longstop.Record) bool { return len(releasedAlive(rec)) > 0 },
	})
	return wire.GCAnswer{Removed: removed}, err
}

// seconds is a number of seconds as a duration, at most about three centuries.
func seconds(s float64) time.Duration {
	if s > 9e9 {
		return 1<<63 - 1
	}
	return time.Duration(s * float64(time.Second))
}

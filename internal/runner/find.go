package runner

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// find tells what a key has.
func find(ctx context.Context, s *session, request wire.FindRequest) (wire.FindAnswer, error) {
	if err := checkKey(request.Key); err != nil {
		return wire.FindAnswer{}, err
	}
	claim, err := s.folder.Find(request.Key)
	if err != nil {
		return wire.FindAnswer{}, err
	}
	return s.found(ctx, claim)
}

// void burns a key, unless it has a run.
func void(ctx context.Context, s *session, request wire.VoidRequest) (wire.VoidAnswer, error) {
	if err := checkKey(request.Key); err != nil {
		return wire.VoidAnswer{}, err
	}
	claim, err := s.folder.Void(request.Key, request.Reason)
	if err != nil {
		return wire.VoidAnswer{}, err
	}
	return s.found(ctx, claim)
}

func checkKey(key string) error {
	if key == "" {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "the request names no key"}
	}
	return nil
}

func (s *session) found(ctx context.Context, claim record.Claim) (wire.FindAnswer, error) {
	answer := wire.FindAnswer{Found: claim.Found, Void: claim.Void, Expired: claim.Expired, RunID: claim.RunID}
	if !claim.Found || claim.Void {
		return answer, nil
	}
	raw, err := s.read(claim.RunID)
	if errors.Is(err, record.ErrNoRecord) {
		// Its launch is on its way, or whoever accepted it died before it began: a keeper sees to that.
		s.heal(ctx)
		raw, err = s.read(claim.RunID)
	}
	if err != nil && !errors.Is(err, record.ErrNoRecord) {
		return wire.FindAnswer{}, err
	}
	answer.Record = raw
	return answer, nil
}

// read returns a run's newest record as its writer signed it.
func (s *session) read(id longstop.RunID) (json.RawMessage, error) {
	run, err := s.folder.Run(id)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	raw, _, err := run.Read()
	return raw, err
}

package runner

import (
	"context"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// The keeper's half of this package as the verbs call it. Each goes from here to its own file when
// that is written.

var errPending = &longstop.Error{Code: longstop.CodeUnsupported, Message: "not built yet"}

func RunKeeper(args []string) int { return exitNoAnswer }
func RunOwner(args []string) int  { return exitNoAnswer }
func RunGate(args []string) int   { return exitNoAnswer }

func EnsureKeeper(ctx context.Context, f *record.Folder) error { return nil }

func Submit(ctx context.Context, f *record.Folder, sub wire.Submit) (wire.SubmitAnswer, error) {
	return wire.SubmitAnswer{}, errPending
}

func Cancel(ctx context.Context, f *record.Folder, req wire.CancelRequest) (wire.CancelAnswer, error) {
	return wire.CancelAnswer{}, errPending
}

func Renew(ctx context.Context, f *record.Folder, req wire.RenewRequest) (wire.RenewAnswer, error) {
	return wire.RenewAnswer{}, errPending
}

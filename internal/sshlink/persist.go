package sshlink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// A server that has too many logins under way closes further connections before it says anything
// (MaxStartups). Nothing can have run before a login, so such a connection is made again, after pauses
// that grow and that chance moves apart.
const (
	dialTries  = 5
	firstPause = 300 * time.Millisecond
)

// errTurnedAway is the cause within an error that says that the server closed a connection before its banner.
var errTurnedAway = errors.New("turned away")

// persist dials until there is a connection, or another reason for none than being turned away.
func persist(ctx context.Context, dial func() (Link, error)) (Link, error) {
	start := time.Now()
	for try, pause := 1, firstPause; ; try, pause = try+1, 2*pause {
		link, err := dial()
		if !errors.Is(err, errTurnedAway) {
			return link, err
		}
		over := try == dialTries
		if !over {
			select {
			case <-time.After(pause/2 + rand.N(pause)):
			case <-ctx.Done():
				over = true
			}
		}
		if over {
			return nil, turnedAway(err, try, time.Since(start))
		}
	}
}

// turnedAway says how often the server was tried.
func turnedAway(err error, tries int, waited time.Duration) error {
	var e *longstop.Error
	if !errors.As(err, &e) {
		return err
	}
	told := *e
	told.Err = nil
	if tries > 1 {
		told.Message += fmt.Sprintf(" (%d times in %v)", tries, waited.Round(100*time.Millisecond))
	}
	return &told
}

// beforeBanner is what an answer without a banner means: said is what came instead of one, why how the
// connection ended. With errTurnedAway it is worth another try.
func beforeBanner(to Target, said, why string) (message, hint string, err error) {
	if said = printable(strings.TrimSpace(said)); len(said) > 200 {
		said = clip(said[:200])
	}
	if why != "" {
		why = ": " + why
	}
	switch {
	case strings.HasPrefix(said, "Not allowed at this time"):
		return "the server lets nobody in from this address for a while (PerSourcePenalties), and said so: " + said,
			"failed logins from this address are why; try again later, or see PerSourcePenalties in sshd_config(5)", nil
	case said != "" && !strings.HasPrefix(said, "Exceeded MaxStartups"):
		return fmt.Sprintf("what answers is no SSH server: it said %q", said),
			"is the port the right one? See: " + to.Command("-v") + " true", nil
	case said != "":
		why = ": " + said
	}
	return "the server closed the connection before saying it speaks SSH" + why,
		"it may be overloaded (MaxStartups in its sshd_config) or refuse this address; try again", errTurnedAway
}

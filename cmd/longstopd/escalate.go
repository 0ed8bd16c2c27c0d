package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/notify"
)

// escalate is how people are told of what waiting does not mend.
type escalate struct {
	Webhook         *webhook `json:"webhook"`
	Command         []string `json:"command"`
	CommandTimeoutS float64  `json:"command_timeout_s"`
}

type webhook struct {
	URL        string  `json:"url"`
	TimeoutS   float64 `json:"timeout_s"`
	SecretFile string  `json:"secret_file"`
}

// Bounds of how long one try may take.
const (
	defaultTellS = 10
	mostTellS    = 300
)

// ways are those that are configured.
func (e escalate) ways() ([]gateway.Way, error) {
	var ways []gateway.Way
	if w := e.Webhook; w != nil {
		timeout, err := tellTime("the webhook's timeout_s", w.TimeoutS)
		if err != nil {
			return nil, err
		}
		if w.SecretFile != "" && !filepath.IsAbs(w.SecretFile) {
			return nil, fmt.Errorf("the webhook's secret_file %q is not an absolute path", w.SecretFile)
		}
		hook, err := notify.NewWebhook(w.URL, w.SecretFile, timeout)
		if err != nil {
			return nil, err
		}
		ways = append(ways, hook)
	}
	timeout, err := tellTime("command_timeout_s", e.CommandTimeoutS)
	if err != nil {
		return nil, err
	}
	switch {
	case e.Command == nil:
		return ways, nil
	case len(e.Command) == 0 || !filepath.IsAbs(e.Command[0]):
		return nil, errors.New("escalate's command is a list of arguments, the first an absolute path")
	}
	return append(ways, &notify.Command{Argv: e.Command, Timeout: timeout}), nil
}

func tellTime(name string, s float64) (time.Duration, error) {
	if s == 0 {
		s = defaultTellS
	}
	if s < 0.1 || s > mostTellS {
		return 0, fmt.Errorf("%s of %v: want 0.1 to %d", name, s, mostTellS)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// tellNotStarted tells people that there is no gateway, once by each way: its store, and with it the
// journal, cannot be opened, so nothing can be kept for a second try. The same trouble within an hour has
// the same id.
func tellNotStarted(home client.Home, ways []gateway.Way, cause error) {
	now := time.Now()
	sum := sha256.Sum256([]byte(home.Dir + "\n" + cause.Error() + "\n" + now.UTC().Format("2006-01-02T15")))
	notice := longstop.Notice{ID: "ntc_" + hex.EncodeToString(sum[:16]), JournalEntry: longstop.JournalEntry{
		Index: -1, At: longstop.At(now), Kind: "gateway_not_started", Body: map[string]any{"message": cause.Error(), "home": home.Dir}}}
	body, err := json.Marshal(notice)
	if err != nil {
		return
	}
	var telling sync.WaitGroup
	for _, way := range ways {
		telling.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), endPatience)
			defer cancel()
			way.Tell(ctx, notice.ID, now, body) // who cannot be told finds the error where the gateway was started
		})
	}
	telling.Wait()
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/redact"
)

// config is what longstopd.json in the gateway's home may hold. A field that is not there has its
// default; one that nobody knows is refused, so that a misspelt one does not go unnoticed.
type config struct {
	Retention retention `json:"retention"`
	Sessions  sessions  `json:"sessions"`
	Redact    secrets   `json:"redact"`
	Witnesses []string  `json:"witnesses"` // public keys, whose cosignatures of the journal's checkpoints are kept
	Escalate  escalate  `json:"escalate"`

	ways   []gateway.Way // of Escalate
	redact *redact.Redactor
}

type retention struct {
	KeepDays   float64 `json:"keep_days"`
	UnreadDays float64 `json:"unread_days"`
	MaxAgeDays float64 `json:"max_age_days"`
	EveryS     float64 `json:"every_s"`
}

// sessions is when they end by themselves.
type sessions struct {
	IdleHours float64 `json:"idle_hours"`
}

const configName = "longstopd.json"

// readConfig reads the configuration of a home; without a file it is the default one.
func readConfig(home client.Home) (config, error) {
	c := config{Retention: retention{KeepDays: 7, UnreadDays: 30, MaxAgeDays: 180, EveryS: 3600}, Sessions: sessions{IdleHours: 24}}
	path := filepath.Join(home.Dir, configName)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		defer file.Close()
		err = c.read(file, home.Dir)
	}
	if err != nil {
		return c, &longstop.Error{Code: longstop.CodeUsage, Message: path + ": " + err.Error(),
			Hint: `as in {"retention": {"keep_days": 7, "unread_days": 30, "max_age_days": 180, "every_s": 3600}, "sessions": {"idle_hours": 24}}`}
	}
	return c, nil
}

// read reads a configuration whose files are named from a folder on.
func (c *config) read(from io.Reader, dir string) error {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the configuration")
	}
	r := c.Retention
	if r.KeepDays <= 0 || r.EveryS < 1 || r.UnreadDays < r.KeepDays || r.MaxAgeDays < r.UnreadDays || r.MaxAgeDays > 36500 || r.EveryS > 1e6 {
		return fmt.Errorf("retention must have 0 < keep_days ≤ unread_days ≤ max_age_days ≤ 36500, and every_s from 1 to 1000000; it has %v, %v, %v and %v",
			r.KeepDays, r.UnreadDays, r.MaxAgeDays, r.EveryS)
	}
	if h := c.Sessions.IdleHours; h <= 0 || h > 1e6 {
		return fmt.Errorf("sessions must have idle_hours from more than 0 to 1000000; it has %v", h)
	}
	var err error
	if c.ways, err = c.Escalate.ways(); err != nil {
		return err
	}
	c.redact, err = c.Redact.redactor(dir)
	return err
}

// secrets is what is never kept nor shown.
type secrets struct {
	LiteralsFile string   `json:"literals_file"` // one on each line; in the home, where it is no absolute path
	Patterns     []string `json:"patterns"`
}

// redactor takes what is secret out of things; nil where nothing is configured.
func (s secrets) redactor(dir string) (*redact.Redactor, error) {
	var literals []string
	if name := s.LiteralsFile; name != "" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("redact: literals_file: %w", err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("redact: literals_file: %s has mode %04o: others could read it; chmod 600 %s", name, info.Mode().Perm(), name)
		}
		text, err := os.ReadFile(name)
		if err == nil {
			literals, err = redact.ReadLiterals(string(text))
		}
		if err != nil {
			return nil, fmt.Errorf("redact: literals_file: %w", err)
		}
	}
	r, err := redact.New(literals, s.Patterns)
	if err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	return r, nil
}

// asGateway is the retention as the gateway takes it.
func (r retention) asGateway() gateway.Retention {
	days := func(n float64) time.Duration { return time.Duration(n * 24 * float64(time.Hour)) }
	return gateway.Retention{Keep: days(r.KeepDays), Unread: days(r.UnreadDays), MaxAge: days(r.MaxAgeDays),
		Every: time.Duration(r.EveryS * float64(time.Second))}
}

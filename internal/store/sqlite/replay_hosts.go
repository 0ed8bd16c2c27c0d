package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
)

// toldHost is what the log tells of a host: members of hostFacts. One that is nil is not there.
type toldHost struct {
	whole   bool // there are no others
	members map[string]json.RawMessage
}

// lastingFacts are those which an enrolment by an earlier version told, and nothing but another enrolment changed.
var lastingFacts = []string{"machine_id", "uid", "state_id", "state_dir", "forced", "direct"}

func (w *standing) applyHost(e *journal.Entry) error {
	patch, err := journal.PatchOf(e.Body, ofHosts)
	if err != nil {
		return err
	}
	h := w.hosts[e.Host]
	if e.Kind == journal.HostEnrolled {
		h = &toldHost{whole: patch != nil, members: map[string]json.RawMessage{}}
		w.hosts[e.Host] = h
	}
	if patch == nil {
		if e.Kind == journal.HostEnrolled {
			return h.enrolledEarlier(e)
		}
		return nil
	}
	if h == nil {
		return fmt.Errorf("it changes host %s, which was not enrolled", e.Host)
	}
	return h.apply(patch)
}

func (h *toldHost) apply(patch []byte) error {
	changes := map[string]json.RawMessage{}
	if err := json.Unmarshal(patch, &changes); err != nil {
		return err
	}
	for name, value := range changes {
		if string(value) == "null" {
			value = nil
		}
		h.members[name] = value
	}
	return nil
}

func (h *toldHost) enrolledEarlier(e *journal.Entry) error {
	var says map[string]json.RawMessage
	if err := json.Unmarshal(e.Body, &says); err != nil {
		return err
	}
	for _, name := range lastingFacts {
		value, told := says[name]
		if string(value) == "false" {
			value = nil // which a row leaves out
		}
		if told {
			h.members[name] = value
		}
	}
	return nil
}

// differs names the first member that is not what the log tells. Of what was taken out of an entry as secret it
// tells nothing.
func (h *toldHost) differs(is map[string]json.RawMessage) string {
	for _, name := range slices.Sorted(maps.Keys(h.members)) {
		want := h.members[name]
		if !bytes.Equal(is[name], want) && !bytes.Contains(want, []byte(redact.Mark)) {
			return name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, told := h.members[name]; h.whole && !told {
			return name
		}
	}
	return ""
}

// members are the facts of a stored host.
func (h *Host) members() (map[string]json.RawMessage, error) {
	facts, err := hostFacts(h)
	if err != nil {
		return nil, err
	}
	var is map[string]json.RawMessage
	return is, json.Unmarshal(facts, &is)
}

// storedHosts calls fn with each row; its error, where a row cannot be read, is a *Difference.
func storedHosts(ctx context.Context, db querier, fn func(name string, h *Host) error) error {
	return eachRow(ctx, db, `SELECT name, max_sessions, json FROM hosts ORDER BY name`, func(r row) error {
		var h Host
		var name, data string
		if err := r.Scan(&name, &h.MaxSessions, &data); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(data), &h.Host); err != nil {
			return &Difference{"host " + name, "json", err.Error()}
		}
		return fn(name, &h)
	})
}

func (w *standing) checkHosts(ctx context.Context, db querier) error {
	seen := map[string]bool{}
	err := storedHosts(ctx, db, func(name string, h *Host) error {
		seen[name] = true
		id := "host " + name
		told := w.hosts[name]
		if told == nil {
			return &Difference{Row: id, Why: "no entry is about it"}
		}
		is, err := h.members()
		if err != nil {
			return err
		}
		field := told.differs(is)
		if field == "" && h.Name != name {
			field = "name"
		}
		if field != "" {
			return &Difference{id, field, "it is not what the journal says"}
		}
		if !told.whole {
			w.inPart(id)
		}
		return nil
	})
	return notStored(err, "host ", w.hosts, seen)
}

// rebuildHosts writes what the log tells over what is stored: what a host said of itself last stays. One of which
// only an earlier version told, and that is not stored, is not made of a part: it is to be enrolled again.
func (w *standing) rebuildHosts(ctx context.Context, stmt *statements, tx *sql.Tx) error {
	stored := map[string]*Host{}
	err := eachRow(ctx, tx, `SELECT name, max_sessions, json FROM hosts`, func(r row) error {
		var h Host
		var name string
		var data []byte
		if err := r.Scan(&name, &h.MaxSessions, &data); err != nil {
			return err
		}
		if json.Unmarshal(data, &h.Host) == nil {
			stored[name] = &h
		}
		return nil
	})
	if err == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM hosts`)
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		told, is := w.hosts[name], stored[name]
		if !told.whole {
			w.inPart("host " + name)
		}
		if is == nil && !told.whole {
			continue
		}
		h, err := told.over(name, is)
		if err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
		data, err := json.Marshal(&h.Host)
		if err == nil {
			_, err = tx.StmtContext(ctx, stmt.putHost).ExecContext(ctx, name, h.MaxSessions, string(data))
		}
		if err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
	}
	return nil
}

// over is a host as the log tells it, and for the rest as it is stored; nil: it is not.
func (h *toldHost) over(name string, stored *Host) (*Host, error) {
	facts := map[string]json.RawMessage{}
	var made struct {
		Host
		Sessions int `json:"max_sessions"`
	}
	if stored != nil {
		is, err := stored.members()
		if err != nil {
			return nil, err
		}
		made.Hello, made.Seen = stored.Hello, stored.Seen
		for member, value := range is {
			if told, is := h.members[member]; !h.whole && !is || bytes.Contains(told, []byte(redact.Mark)) {
				facts[member] = value
			}
		}
	}
	for member, value := range h.members {
		if value != nil && facts[member] == nil {
			facts[member] = value
		}
	}
	data, err := json.Marshal(facts)
	if err == nil {
		err = json.Unmarshal(data, &made)
	}
	made.Name, made.MaxSessions = name, made.Sessions
	return &made.Host, err
}

// notStored is the first row that the log gives and nobody saw, unless there was an error before.
func notStored[T any](err error, what string, told map[string]T, seen map[string]bool) error {
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if !seen[name] {
			return &Difference{Row: what + name, Why: "it is not there"}
		}
	}
	return nil
}

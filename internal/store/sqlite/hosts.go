package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
)

// ofHosts is the name of the hosts' patches.
const ofHosts = "host"

// hostKinds are those of the entries that may change a host.
var hostKinds = []journal.Kind{journal.HostEnrolled, journal.HostChanged, journal.HostRefused, journal.Unreachable, journal.Reachable}

// hostFacts is what the log says of a host, as an object without others in it. What the host said of itself last,
// and when it was seen, is not of it: the next connection says it anew.
func hostFacts(h *Host) ([]byte, error) {
	row := struct {
		longstop.Host
		MaxSessions int `json:"max_sessions,omitempty"`
	}{h.Host, h.MaxSessions}
	row.Hello, row.Seen, row.Unresolved = nil, nil, 0
	return json.Marshal(row)
}

// PutHost makes or replaces a host, without what is secret in what it says of itself, and appends the entry that
// says why, to which it adds what changed. A HostChanged that has no change to tell of is left out.
func (tx *Tx) PutHost(h *Host, why journal.Entry, raws ...Raw) error {
	if err := tx.putHost(h, why, raws); err != nil {
		return fmt.Errorf("put host %s: %w", h.Name, err)
	}
	return nil
}

func (tx *Tx) putHost(h *Host, why journal.Entry, raws []Raw) error {
	if !slices.Contains(hostKinds, why.Kind) {
		return fmt.Errorf("no entry %q changes a host", why.Kind)
	}
	before, err := tx.knownHost(h.Name, why.Kind)
	if err != nil {
		return err
	}
	after, err := hostFacts(h)
	if err != nil {
		return err
	}
	why.Host = h.Name
	secrets := tx.store.secrets
	if field, err := journal.FirstDifference(orEmpty(before), after); err != nil {
		return err
	} else if field != "" {
		_, err = tx.AppendPatch(why, ofHosts, secrets.JSON(before), secrets.JSON(after), raws...)
		if err != nil {
			return err
		}
	} else if why.Kind != journal.HostChanged {
		if _, err := tx.Append(why, raws...); err != nil {
			return err
		}
	}
	h.Hello, _ = redact.Value(secrets, h.Hello)
	data, err := json.Marshal(&h.Host)
	if err != nil {
		return err
	}
	tx.wrote = true
	return tx.store.exec(tx.store.stmt.putHost, h.Name, h.MaxSessions, string(data))
}

// knownHost is what the log says of a host before an entry: nothing, where the entry begins it anew.
func (tx *Tx) knownHost(name string, kind journal.Kind) ([]byte, error) {
	if kind == journal.HostEnrolled {
		return nil, nil
	}
	old, err := tx.Host(name)
	if longstop.CodeOf(err) == longstop.CodeHostUnknown {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return hostFacts(old)
}

func orEmpty(object []byte) []byte {
	if object == nil {
		return []byte("{}")
	}
	return object
}

// Host returns an enrolled host, or longstop.CodeHostUnknown.
func (tx *Tx) Host(name string) (*Host, error) {
	return scanHost(name, tx.store.stmt.host.QueryRow(name))
}

// Enrolled returns longstop.CodeHostUnknown unless such a host is enrolled.
func (tx *Tx) Enrolled(name string) error {
	var there bool
	if err := tx.store.stmt.isEnrolled.QueryRow(name).Scan(&there); err != nil {
		return fmt.Errorf("look for host %s: %w", name, err)
	}
	if !there {
		return hostUnknown(name)
	}
	return nil
}

// DeleteHost takes a host out. Its actions stay.
func (tx *Tx) DeleteHost(name string) error {
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.deleteHost, name); err != nil {
		return fmt.Errorf("delete host %s: %w", name, err)
	}
	return nil
}

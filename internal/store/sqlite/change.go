package sqlite

import (
	"bytes"
	"fmt"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fastjson"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
)

// A projection's row changes with an entry that says by how much (journal.Diff), so that the entries
// alone give the row again: see replay. Another projection does the same: AppendPatch with its name, and
// a line in projections.

// ofActions is the name of the actions' patches.
const ofActions = "action"

// rawNoise is the kind of the raw bytes of an entry that changed an action's ssh_command.noise: they are
// what a login shell printed, and no leaf may hold that.
const rawNoise = "noise"

// stands notes how a row stands in the log.
func (tx *Tx) stands(id string, data []byte) {
	if tx.rows == nil {
		tx.rows = map[string][]byte{}
	}
	tx.rows[id] = data
}

// AppendPatch appends an entry with what changes in a row of a projection, whose JSON is compact, has
// no nulls, and nothing secret; before is nil for a new row.
func (tx *Tx) AppendPatch(e journal.Entry, projection string, before, after []byte, raws ...Raw) (int64, error) {
	patch, err := journal.Diff(before, after)
	if err == nil {
		e.Body, err = journal.WithPatch(tx.store.secrets.JSON(e.Body), projection, patch)
	}
	if err != nil {
		return 0, fmt.Errorf("say what changed: %w", err)
	}
	return tx.append(e, raws)
}

// AppendChange appends an entry with what changed in an action since this update read it, or appended its
// last change. PutAction must follow, with another entry.
func (tx *Tx) AppendChange(a *longstop.Action, why journal.Entry, raws ...Raw) error {
	_, _, err := tx.appendChange(a, why, raws)
	return err
}

// appendChange returns the entry and the action's JSON.
func (tx *Tx) appendChange(a *longstop.Action, why journal.Entry, raws []Raw) (int64, []byte, error) {
	before, ok := tx.rows[string(a.ID)]
	if !ok && a.Revision > 1 {
		if _, err := tx.Action(a.ID); err != nil {
			return 0, nil, err
		}
		before = tx.rows[string(a.ID)]
	}
	*a, _ = redact.Value(tx.store.secrets, *a)
	after := fastjson.AppendAction(make([]byte, 0, 4<<10), a)
	old, was, err := withoutNoise(before)
	if err != nil {
		return 0, nil, err
	}
	now, is, err := withoutNoise(after)
	if err != nil {
		return 0, nil, err
	}
	if is != was {
		raws = append(raws[:len(raws):len(raws)], Raw{Kind: rawNoise, Bytes: []byte(is)})
	}
	entry, err := tx.AppendPatch(why, ofActions, old, now, raws...)
	tx.stands(string(a.ID), after)
	return entry, after, err
}

// withoutNoise takes what a login shell printed out of an action's JSON.
func withoutNoise(data []byte) ([]byte, string, error) {
	if !bytes.Contains(data, []byte(`"noise":`)) {
		return data, "", nil
	}
	a, err := readAction(data)
	if err != nil {
		return nil, "", err
	}
	noise := a.SSHCommand.Noise
	a.SSHCommand.Noise = ""
	return fastjson.AppendAction(nil, a), noise, nil
}

package sqlite

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// MaxRaw is how many bytes of one raw answer are kept; its size is kept whole.
const MaxRaw = 256 << 10

// Tx is one update. What it reads is what it and the updates before it wrote.
type Tx struct {
	store *Store
	wrote bool
	rows  map[string][]byte // of projections that this update read or changed, as they now stand in the log
}

// Raw is bytes that came over the wire, to be kept beside the log.
type Raw struct {
	Kind  string // in lower case and underscores: "submit_answer"
	Bytes []byte
}

// Append adds an entry to the log and returns its index. Index and Raw of e are set here: the raw
// bytes are kept in a table of their own, the entry holds their salted digests.
func (tx *Tx) Append(e journal.Entry, raws ...Raw) (int64, error) {
	e.Body = tx.store.secrets.JSON(e.Body)
	return tx.append(e, raws)
}

// append appends an entry whose body has nothing secret.
func (tx *Tx) append(e journal.Entry, raws []Raw) (int64, error) {
	tree, secrets := &tx.store.tree, tx.store.secrets
	e.By = secrets.Text(e.By)
	e.Index, e.At, e.Raw = tree.Size(), longstop.At(e.At.Time), nil
	salts := make([][]byte, len(raws))
	for i := range raws {
		raws[i].Bytes = secrets.Bytes(raws[i].Bytes)
		raw := raws[i]
		salts[i] = make([]byte, 16)
		rand.Read(salts[i])
		e.Raw = append(e.Raw, journal.RawDigest{Kind: raw.Kind, Bytes: int64(len(raw.Bytes)), Digest: saltedDigest(salts[i], kept(raw))})
	}
	data, err := journal.Encode(e)
	if err != nil {
		return 0, err
	}
	next := tree.Clone()
	hashes := make([]byte, 0, 64)
	for _, hash := range next.Append(data) {
		hashes = append(hashes, hash[:]...)
	}
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.appendEntry, e.Index, optional(string(e.ActionID)), string(e.Kind),
		optional(string(e.SessionID)), optional(e.Host), hashes, data); err != nil {
		return 0, fmt.Errorf("append journal entry %d: %w", e.Index, err)
	}
	if err := tx.file(e.Index); err != nil {
		return 0, fmt.Errorf("file journal entry %d: %w", e.Index, err)
	}
	for i, raw := range raws {
		err := tx.store.exec(tx.store.stmt.addRaw, e.Index, i, optional(string(e.ActionID)), raw.Kind, e.At.UnixMicro(),
			len(raw.Bytes), salts[i], kept(raw))
		if err != nil {
			return 0, fmt.Errorf("keep raw %s: %w", raw.Kind, err)
		}
	}
	*tree = next
	return e.Index, tx.addNotices(&e)
}

// AttachmentKind is the kind of bytes that a person attached: they are kept whole.
const AttachmentKind = "attachment"

func kept(raw Raw) []byte {
	most := MaxRaw
	if raw.Kind == AttachmentKind {
		most = longstop.MaxAttachment
	}
	if raw.Bytes == nil {
		return []byte{}
	}
	return raw.Bytes[:min(len(raw.Bytes), most)]
}

func saltedDigest(salt, data []byte) string {
	h := sha256.New()
	h.Write(salt)
	h.Write(data)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// PutAction makes (Revision 1) or changes an action's projection, and appends the entry that says why,
// to which it adds what changed. What is secret is taken out of a first. a.Revision is the new revision: the stored one must be the one before,
// else ErrStale. A secret, if not nil, is kept as that of a.RunID.
//
// The id, key, session, host and time of creation of an action never change.
func (tx *Tx) PutAction(a *longstop.Action, secret []byte, why journal.Entry, raws ...Raw) error {
	if err := tx.putAction(a, why, raws); err != nil {
		return fmt.Errorf("put action %s revision %d: %w", a.ID, a.Revision, err)
	}
	if secret == nil {
		return nil
	}
	if a.RunID == "" {
		return fmt.Errorf("put action %s: a secret without a run", a.ID)
	}
	if err := tx.store.exec(tx.store.stmt.putSecret, string(a.RunID), string(a.ID), secret); err != nil {
		return fmt.Errorf("put the secret of %s: %w", a.RunID, err)
	}
	return nil
}

func (tx *Tx) putAction(a *longstop.Action, why journal.Entry, raws []Raw) error {
	if a.IdempotencyKey == "" {
		return errors.New("it has no idempotency key")
	}
	entry, data, err := tx.appendChange(a, why, raws)
	if err != nil {
		return err
	}
	s := tx.store
	if a.Revision == 1 {
		return tx.explainTaken(s.exec(s.stmt.insertAction, actionRow(a, entry, data)...), a)
	}
	for _, update := range []*sql.Stmt{s.stmt.updateAction, s.stmt.updateActionIndexed} {
		result, err := update.ExecContext(context.Background(), a.Revision, openOutcome(a), entry, string(data), string(a.ID),
			optional(string(a.RunID)), a.Unresolved(), traitsOf(a))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return err
		}
	}
	return ErrStale
}

// openOutcome is the outcome as lists go by it: an unknown that is nobody's concern any more is "settled".
func openOutcome(a *longstop.Action) string {
	if a.Outcome == longstop.OutcomeUnknown && !a.Unresolved() && !a.NeedsPeople() {
		return settledUnknown
	}
	return string(a.Outcome)
}

const settledUnknown = "settled"

// explainTaken tells apart which unique value an insert found taken.
func (tx *Tx) explainTaken(err error, a *longstop.Action) error {
	if err == nil || !isTaken(err) {
		return err
	}
	if _, err := tx.Action(a.ID); err == nil {
		return ErrStale
	}
	holder, lookup := tx.ActionByKey(a.IdempotencyKey)
	if lookup != nil || holder == nil {
		return err
	}
	return &longstop.Error{Code: longstop.CodeKeyConflict, ActionID: holder.ID,
		Message: fmt.Sprintf("the key %q belongs to %s", a.IdempotencyKey, holder.ID), Hint: "longstop show " + string(holder.ID)}
}

// Action returns an action by its whole id, or longstop.CodeNotFound.
func (tx *Tx) Action(id longstop.ActionID) (*longstop.Action, error) {
	var data []byte
	switch err := tx.store.stmt.actionByID.QueryRow(string(id)).Scan(&data); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, actionNotFound(string(id))
	case err != nil:
		return nil, fmt.Errorf("read an action: %w", err)
	}
	tx.stands(string(id), data)
	return readAction(data)
}

// ActionByKey returns the action that has the idempotency key, nil if none has.
func (tx *Tx) ActionByKey(key string) (*longstop.Action, error) {
	return scanAction(tx.store.stmt.actionByKey.QueryRow(key))
}

// optional stores an empty string as NULL.
func optional(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// backwards reverses an id, which is ASCII.
func backwards(id string) string {
	b := []byte(id)
	slices.Reverse(b)
	return string(b)
}

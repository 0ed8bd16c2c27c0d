package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/wire"
)

// Claim is what a key has: nothing, a run, or a void that burnt it. It is written once, complete
// before the key has it, and never changes. A run's is durable with its first durable record.
type Claim struct {
	Version int    `json:"version"`
	KeyHash string `json:"key_hash"`

	// Of a run. They suffice to write a record of a run whose owner wrote none.
	RunID      longstop.RunID     `json:"run_id,omitempty"`
	ActionID   longstop.ActionID  `json:"action_id,omitempty"`
	SessionID  longstop.SessionID `json:"session_id,omitempty"`
	Digest     string             `json:"digest,omitempty"`
	Lifetime   longstop.Lifetime  `json:"lifetime,omitempty"`
	Leftover   longstop.Leftover  `json:"leftover,omitempty"`
	GraceMS    int64              `json:"grace_ms,omitempty"`
	LeaseUntil longstop.BootTime  `json:"lease_until,omitempty"`
	NotAfter   longstop.BootTime  `json:"not_after,omitempty"`

	// Of a void.
	Void   bool   `json:"void,omitempty"`
	Reason string `json:"reason,omitempty"`

	At     longstop.Time `json:"at"`
	BootID string        `json:"boot_id"` // of the boot that wrote it

	Found   bool `json:"-"` // the key has this claim
	Mine    bool `json:"-"` // and this very call made it
	Expired bool `json:"-"` // its run was removed after its retention; the tombstone has its record
}

// KeyHash is the name that an idempotency key has on the host's disk.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Refusal is why a submit of a request with this digest may not have the run of a key that is
// found: the key is void, its run expired, or the key belongs to another request. Else nil.
func (c Claim) Refusal(digest string) error {
	switch {
	case c.Void:
		return &longstop.Error{Code: longstop.CodeKeyVoid,
			Message: "the key was burnt at " + c.At.Format(time.RFC3339) + because(c.Reason) + ": nothing will ever start under it",
			Hint:    "Start again under a new key."}
	case c.Digest != digest:
		return &longstop.Error{Code: longstop.CodeKeyConflict,
			Message: "the key belongs to another request, of " + string(c.ActionID) + " (" + c.Digest + ", not " + digest + ")",
			Hint:    "Use a new key for new work; longstop show " + string(c.ActionID) + " has the first request."}
	case c.Expired:
		return &longstop.Error{Code: longstop.CodeExpired,
			Message: "the key's run, " + string(c.RunID) + ", ended and was removed after its retention; it does not start again",
			Hint:    "longstop show " + string(c.ActionID) + " has its result; new work needs a new key."}
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// Claim makes run, which Build has just built, the run of key, if nobody has the key yet: exactly
// one claim of a key ever succeeds, whoever races. What it returns has Found set; Mine only if this
// call won. If the key has another run, or is void, what Build made is removed again. A submit that
// finds a run already claimed but not started may start it after Build and Claim of its own, which
// then find the same run and are not Mine.
//
//  1. The record file gets its run's name.
//  2. It is entered in the index of unresolved runs (rebuilt after a boot), before the key can lead
//     anyone to the run.
//  3. It gets the key's name, create-only. From here on nobody else has the key.
//
// Names and file are durable with the run's first durable record (see flushSlots).
func (f *Folder) Claim(run *Run, key string) (Claim, error) {
	hash, id := KeyHash(key), string(run.id)
	if run.built == "" || exists(f.claims, hash) {
		return f.taken(run, hash)
	}
	if err := link(run.dir, run.built, f.claims, id); err != nil && !errors.Is(err, fs.ErrExist) {
		return Claim{}, err
	}
	if err := f.sameRun(run, hash); err != nil {
		unlink(run.dir, run.built)
		return Claim{}, err
	}
	fault.At("record.claim.named")
	if err := link(f.claims, id, f.unresolved, id); err != nil && !errors.Is(err, fs.ErrExist) {
		return Claim{}, err
	}
	fault.At("record.claim.indexed")
	err := link(f.claims, id, f.claims, hash)
	if errors.Is(err, fs.ErrExist) {
		return f.taken(run, hash)
	}
	if err != nil {
		return Claim{}, err
	}
	fault.At("record.claim.linked")
	unlink(run.dir, run.built)
	run.built = ""
	claim := run.claim
	claim.Found, claim.Mine = true, true
	run.claim = claim
	return claim, nil
}

// taken tells who has the key that run is not the first to claim, and removes what was built in
// vain. Where it is the same run, the run is what the other submit built.
func (f *Folder) taken(run *Run, hash string) (Claim, error) {
	if run.built != "" {
		unlink(run.dir, run.built)
		run.built = ""
	}
	claim, err := f.claim(hash)
	if err != nil {
		return Claim{}, err
	}
	if claim.RunID != run.id || claim.Expired {
		run.Close()
		f.forget(run)
		return claim, nil
	}
	run.claim = claim
	if run.dir == nil {
		if run.dir, err = openDir(f.runs, string(run.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Claim{}, unreadable(f.runs.Name()+"/"+string(run.id), err)
		}
	}
	return claim, nil
}

// sameRun refuses a run id that already belongs to another key or request.
func (f *Folder) sameRun(run *Run, hash string) error {
	there, err := f.claim(string(run.id))
	if err != nil {
		return err
	}
	if there.KeyHash != hash || there.Digest != run.claim.Digest {
		return otherRun(run.id)
	}
	return nil
}

func otherRun(id longstop.RunID) error {
	return &longstop.Error{Code: longstop.CodeKeyConflict,
		Message: "run " + string(id) + " belongs to another key or request",
		Hint:    "Start again: each launch needs a run id of its own."}
}

// forget removes what Build and Claim made of a run that lost its key to another. One that has the
// name but is another key's stays: its file is not this key's claim.
func (f *Folder) forget(run *Run) {
	if there, err := f.claim(string(run.id)); err == nil && f.claimed(run.id) && there.RunID == run.id {
		return
	}
	unlink(f.unresolved, string(run.id))
	unlink(f.claims, string(run.id))
	if !exists(f.runs, string(run.id)+"/final") {
		f.removeRun(run.id)
	}
}

// Find returns what key has; Found is false if nothing. It starts and changes nothing.
func (f *Folder) Find(key string) (Claim, error) {
	claim, err := f.claim(KeyHash(key))
	if errors.Is(err, fs.ErrNotExist) {
		return Claim{}, nil
	}
	return claim, err
}

// Void burns key for ever, unless it has a run already; it returns what the key has now. The void
// is complete and durable before it takes the place, create-only, that a run's claim would take.
func (f *Folder) Void(key, reason string) (Claim, error) {
	hash := KeyHash(key)
	if claim, err := f.claim(hash); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return claim, err
	}
	void := Claim{Version: envelopeVersion, KeyHash: hash, Void: true, Reason: clip(reason, 500),
		At: longstop.At(time.Now()), BootID: f.bootID}
	temporary := "void." + randomName()
	if err := f.writeVoid(temporary, void); err != nil {
		return Claim{}, err
	}
	defer unlink(f.claims, temporary)
	fault.At("record.void.written")
	err := link(f.claims, temporary, f.claims, hash)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return Claim{}, err
	}
	mine := err == nil
	claim, err := f.claim(hash)
	if err != nil {
		return Claim{}, err
	}
	claim.Mine = mine
	return claim, f.flush(f.claims, "record.void.flush")
}

func (f *Folder) writeVoid(name string, void Claim) error {
	file, err := openAt(f.claims, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return writeError(f.claims.Name(), err)
	}
	defer file.Close()
	if _, err := file.Write(void.seal()); err != nil {
		unlink(f.claims, name)
		return writeError(file.Name(), err)
	}
	if err := f.flush(file, "record.void.file"); err != nil {
		unlink(f.claims, name)
		return err
	}
	return nil
}

// claim reads the claim file of a key hash or a run. None is fs.ErrNotExist.
func (f *Folder) claim(name string) (Claim, error) {
	head, err := readAll(f.claims, name, headSize)
	if errors.Is(err, fs.ErrNotExist) {
		return Claim{}, err
	}
	if err != nil {
		return Claim{}, unreadable(f.claims.Name()+"/"+name, err)
	}
	claim, err := unsealClaim(head)
	if err == nil && claim.KeyHash != name && string(claim.RunID) != name {
		err = errors.New("it is the claim of another key")
	}
	if err != nil {
		return Claim{}, unreadable(f.claims.Name()+"/"+name, err)
	}
	claim.Found = true
	if id := string(claim.RunID); id != "" && id != name && !exists(f.claims, id) && !f.final(claim) {
		if claim.Expired = exists(f.tombs, id); !claim.Expired {
			return claim, f.nameAgain(name, id)
		}
	}
	return claim, nil
}

// nameAgain gives a claimed run its own name back, and its place in the index, where a power
// failure kept the key's name alone.
func (f *Folder) nameAgain(hash, id string) error {
	for _, dir := range []*os.File{f.claims, f.unresolved} {
		if err := link(f.claims, hash, dir, id); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (c Claim) seal() []byte {
	body, err := json.Marshal(c)
	if err != nil {
		panic("record: a claim always has a JSON form: " + err.Error())
	}
	return seal(kindClaim, 0, body)
}

func unsealClaim(head []byte) (Claim, error) {
	var claim Claim
	_, body, err := unseal(kindClaim, head)
	if err != nil {
		return Claim{}, err
	}
	if err := wire.Tolerant(body, &claim); err != nil {
		return Claim{}, err
	}
	if claim.Version > envelopeVersion {
		return Claim{}, newerVersion(claim.Version)
	}
	if claim.Void {
		return claim, nil
	}
	_, err = longstop.ParseRunID(string(claim.RunID))
	return claim, err
}

// unreadable is the error of a file that is there and cannot be believed. It is kept as it is. That
// we ourselves ran out of something says nothing about the file.
func unreadable(path string, err error) error {
	for _, ours := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, ours) {
			return err
		}
	}
	if code := longstop.CodeOf(err); code == longstop.CodeVersionMismatch || code == longstop.CodeUnreadable {
		return err
	}
	return &longstop.Error{Code: longstop.CodeUnreadable, Message: path + " is damaged",
		Hint: "It is kept as it is, for you to look at; what it said is not known.", Err: err}
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 { // not inside a character
		most--
	}
	return s[:most] + "…"
}

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// A record file is headSize bytes of claim, then slotCount slots of slotSize. A final record has
// finalSize of its own.
const (
	headSize  = 4 << 10
	slotSize  = 12 << 10
	slotCount = 3
	fileSize  = headSize + slotCount*slotSize
	finalSize = 32 << 10
)

// Build makes the folder of a run complete: the claim, room for records and for the final one, the
// request (without environment values, secret and key) and its standard input from the spool.
// Nothing leads to it before Claim. A folder that an earlier submit of the same run left is used
// again; where the key is taken already, nothing is built, and Claim tells by whom.
//
// Nothing is flushed here, nor by Claim: the first durable record takes claim and names with it, in
// one flush, and before it nothing of the run may be let loose. A power failure until then leaves what
// reindex clears away (see leaveUnbegun), and nothing ever ran.
func (f *Folder) Build(sub wire.Submit) (*Run, error) {
	if err := checkSubmit(sub); err != nil {
		return nil, err
	}
	if taken, err := f.claim(KeyHash(sub.Key)); err == nil {
		return &Run{f: f, id: sub.RunID, claim: taken}, nil
	}
	if exists(f.runs, string(sub.RunID)+"/final") || exists(f.tombs, string(sub.RunID)) {
		return nil, otherRun(sub.RunID)
	}
	claim := claimOf(sub, f.bootID)
	head := claim.seal()
	if len(head) > headSize {
		return nil, &longstop.Error{Code: longstop.CodeUsage, Message: "the request's ids and digest do not fit into a claim"}
	}
	run := &Run{f: f, id: sub.RunID, claim: claim}
	fresh := !exists(f.runs, string(sub.RunID))
	if err := f.furnished(run, sub, head, fresh); err != nil {
		if run.dir != nil {
			unlink(run.dir, run.built)
		}
		if fresh && !exists(f.claims, string(sub.RunID)) {
			f.removeRun(sub.RunID)
		}
		run.Close()
		return nil, err
	}
	return run, nil
}

// furnished gives a run its folder, and fills it.
func (f *Folder) furnished(run *Run, sub wire.Submit, head []byte, fresh bool) (err error) {
	var requestName string
	if fresh && f.moveIn(run.id) {
		run.built, requestName = roomRecord, roomRequest
		run.dir, err = openDir(f.runs, string(run.id))
	} else {
		random := randomName()
		run.built, requestName = "record."+random, "request."+random
		if err := makeDir(f.runs, string(run.id)); err != nil {
			return err
		}
		if run.dir, err = openDir(f.runs, string(run.id)); err == nil {
			err = run.furnish(run.built, requestName)
		}
		if err == nil {
			err = f.reserveLog()
		}
	}
	if err != nil {
		return err
	}
	return f.fill(run, sub, head, requestName)
}

// reserve makes the final record's room, and the two names that it needs (see nameFinal), if they are
// not there.
func (r *Run) reserve() error {
	file, err := openAt(r.dir, "final.reserved", unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return writeError(r.dir.Name(), err)
	}
	defer file.Close()
	_, err = retry(func() (int, error) { return 0, unix.Fallocate(int(file.Fd()), 0, 0, finalSize) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		_, err = file.WriteAt(make([]byte, finalSize), 0)
	}
	if err != nil {
		return writeError(file.Name(), err)
	}
	if err := link(r.dir, "final.reserved", r.dir, "final.spare"); err != nil && !errors.Is(err, fs.ErrExist) {
		return writeError(file.Name(), err)
	}
	return nil
}

// takeSpool moves the run's standard input, whole and as announced, from the spool to the run.
func (f *Folder) takeSpool(run *Run, sub wire.Submit) error {
	if sub.Request.StdinBytes == 0 {
		return nil
	}
	err := unix.Renameat(int(f.spool.Fd()), string(sub.RunID), int(run.dir.Fd()), "stdin")
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return writeError(run.dir.Name(), err)
	}
	stdin, err := openAt(run.dir, "stdin", unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return spoolError("none of it was laid down")
	}
	if err != nil {
		return err
	}
	defer stdin.Close()
	h := sha256.New()
	n, err := io.Copy(h, stdin)
	if err != nil {
		return err
	}
	if n != sub.Request.StdinBytes {
		return spoolError(strconv.FormatInt(n, 10) + " of " + strconv.FormatInt(sub.Request.StdinBytes, 10) + " bytes are there")
	}
	if want := sub.Request.StdinSHA256; want != "" && hex.EncodeToString(h.Sum(nil)) != want {
		return spoolError("its SHA-256 is not the announced one")
	}
	return nil
}

func spoolError(why string) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: "the run's standard input is not whole on the host: " + why,
		Hint: "Send it again from the start, then submit again."}
}

// Request is what runs/<run>/request holds: a submit without its key, secret and environment
// values. It is for people and for an owner's heir; a power failure may lose it.
type Request struct {
	RunID       longstop.RunID     `json:"run_id"`
	ActionID    longstop.ActionID  `json:"action_id"`
	SessionID   longstop.SessionID `json:"session_id"`
	EffectToken string             `json:"effect_token,omitempty"`
	Request     longstop.Request   `json:"request"`
	BootID      string             `json:"boot_id"`
	NotAfter    longstop.BootTime  `json:"not_after"`
	LeaseUntil  longstop.BootTime  `json:"lease_until,omitempty"`
}

func requestOf(sub wire.Submit) Request {
	return Request{RunID: sub.RunID, ActionID: sub.ActionID, SessionID: sub.SessionID, EffectToken: sub.EffectToken,
		Request: sub.Request, BootID: sub.BootID, NotAfter: sub.NotAfter, LeaseUntil: sub.LeaseUntil}
}

func claimOf(sub wire.Submit, bootID string) Claim {
	return Claim{Version: envelopeVersion, KeyHash: KeyHash(sub.Key), RunID: sub.RunID, ActionID: sub.ActionID,
		SessionID: sub.SessionID, Digest: sub.Request.Digest, Lifetime: sub.Request.Lifetime, Leftover: sub.Request.Leftover,
		GraceMS: int64(sub.Request.GraceS * 1000), LeaseUntil: sub.LeaseUntil, NotAfter: sub.NotAfter,
		At: longstop.At(time.Now()), BootID: bootID}
}

func checkSubmit(sub wire.Submit) error {
	if _, err := longstop.ParseRunID(string(sub.RunID)); err != nil {
		return &longstop.Error{Code: longstop.CodeUsage, Message: err.Error()}
	}
	if sub.Key == "" || sub.Request.Digest == "" {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "a submit needs an idempotency key and its request's digest"}
	}
	return nil
}

// removeRun removes a run's folder, its final record last.
func (f *Folder) removeRun(id longstop.RunID) error {
	dir, err := openDir(f.runs, string(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := names(dir)
	if err != nil {
		return err
	}
	for _, name := range entries {
		if name != "final" {
			if err := removeAll(dir, name); err != nil {
				return err
			}
		}
	}
	if err := unlink(dir, "final"); err != nil {
		return err
	}
	err = unix.Unlinkat(int(f.runs.Fd()), string(id), unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: dir.Name(), Err: err}
	}
	return nil
}

// removeAll removes a name in dir, with what is in it if a workload put a folder there.
func removeAll(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	root, err := os.OpenRoot(dir.Name())
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(name)
}

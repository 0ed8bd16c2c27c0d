package record

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/wire"
)

// ErrNoRecord says that a run was claimed and nobody wrote a record of it yet: nothing of it was
// started.
var ErrNoRecord = errors.New("the run has no record yet")

// ErrFinal says that the run's final record is there. It never changes.
var ErrFinal = errors.New("the run has its final record")

// Read returns the run's newest record: its bytes as the writer signed them, and what they say. The
// final one, once there is one, else the newest valid slot. ErrNoRecord: none was written. A record
// that is there and is not whole is longstop.CodeUnreadable, one of a newer version
// longstop.CodeVersionMismatch. The MAC is not checked: its secret is elsewhere.
func (r *Run) Read() (raw []byte, rec longstop.Record, err error) {
	for try := 0; ; try++ {
		raw, rec, err = r.readOnce()
		// Slots may be caught in the middle of a write, or the whole record file on its way out
		// after the final record was made. Both pass within microseconds.
		again := longstop.CodeOf(err) == longstop.CodeUnreadable || errors.Is(err, fs.ErrNotExist)
		if !again || try == 20 {
			break
		}
		time.Sleep(time.Duration(try) * 100 * time.Microsecond)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoRun
	}
	return raw, rec, err
}

func (r *Run) readOnce() ([]byte, longstop.Record, error) {
	raw, rec, err := r.readFinal()
	if longstop.CodeOf(err) == longstop.CodeUnreadable {
		if raw, last, ok := r.finalInSlots(); ok {
			return raw, last, nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return raw, rec, err
	}
	raw, err = r.readSlots()
	if err != nil {
		return nil, rec, err
	}
	if len(raw) == 0 {
		return nil, rec, ErrNoRecord
	}
	rec, err = r.parse(raw)
	return raw, rec, err
}

// readFinal reads the final record, on the run's tombstone or in its folder.
func (r *Run) readFinal() ([]byte, longstop.Record, error) {
	var rec longstop.Record
	dir, name := r.f.tombs, string(r.id)
	if r.dir != nil && !exists(dir, name) {
		dir, name = r.dir, "final"
	}
	data, err := readAll(dir, name, finalSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, rec, err
	}
	path := dir.Name() + "/" + name
	if err != nil {
		return nil, rec, unreadable(path, err)
	}
	_, raw, err := unseal(kindRecord, data)
	if err != nil {
		return nil, rec, unreadable(path, err)
	}
	rec, err = r.parse(raw)
	if err == nil && !rec.State.Final() {
		err = unreadable(path, errors.New("its state is not a final one"))
	}
	return raw, rec, err
}

// parse reads a record's JSON and refuses what no owner can have written of this run.
func (r *Run) parse(raw []byte) (longstop.Record, error) {
	var rec longstop.Record
	if err := decode(raw, &rec); err != nil {
		return longstop.Record{}, unreadable(r.Path("record"), err)
	}
	if rec.Version > envelopeVersion {
		return longstop.Record{}, newerVersion(rec.Version)
	}
	if rec.RunID != r.id {
		return longstop.Record{}, unreadable(r.Path("record"), fmt.Errorf("it is of run %q", rec.RunID))
	}
	if err := check(rec); err != nil {
		return longstop.Record{}, unreadable(r.Path("record"), err)
	}
	return rec, nil
}

// check refuses a record whose identities could not be signalled safely, or whose state is not one.
func check(rec longstop.Record) error {
	switch rec.State {
	case longstop.WorkloadQueued, longstop.WorkloadStarting, longstop.WorkloadRunning, longstop.WorkloadLingering,
		longstop.WorkloadCancelling, longstop.WorkloadOrphaned:
	default:
		if !rec.State.Final() {
			return fmt.Errorf("state %q is unknown", rec.State)
		}
	}
	if rec.Version != envelopeVersion {
		return fmt.Errorf("version %d of a record is unknown", rec.Version)
	}
	if m := rec.Main; m != nil {
		if err := checkPID("main.pid", m.PID); err != nil {
			return err
		}
		if err := checkPID("main.pgid", m.PGID); err != nil {
			return err
		}
		if err := checkPID("main.sid", m.SID); err != nil {
			return err
		}
		if m.StartTime == 0 {
			return errors.New("main.start_time is 0, which identifies no process")
		}
	}
	for _, p := range slices.Concat(rec.Released, rec.Survivors, rec.Left) {
		if err := checkPID("pid", p.PID); err != nil {
			return err
		}
	}
	return nil
}

// checkPID refuses numbers that kill(2) takes for something else than one process of a workload's:
// 0 and below are groups, or everything; 1 is the system.
func checkPID(name string, pid int) error {
	if pid <= 1 || pid > 1<<31-1 {
		return fmt.Errorf("%s is %d, which is no process of a run", name, pid)
	}
	return nil
}

func decode(data []byte, into any) error { return wire.Tolerant(data, into) }

// Write writes rec as the run's next record and returns its bytes. It sets Version, RunID, StateID
// and Sequence in rec, and signs with secret; a successor has none. With flush the record is durable
// when Write returns. A record that does not fit is written shorter and says so among its anomalies;
// rec keeps what it has. Final states are refused: Finish writes those. For the holder of the lock
// alone.
func (r *Run) Write(rec *longstop.Record, secret []byte, flush bool) (raw []byte, err error) {
	if err := r.mayWrite(rec, secret); err != nil {
		return nil, err
	}
	if rec.State.Final() {
		return nil, fmt.Errorf("write record: state %q is final", rec.State)
	}
	if r.slots.damaged != nil {
		return nil, r.slots.damaged
	}
	rec.Sequence = r.sequence + 1
	if raw, err = fit(*rec, secret, slotSize); err != nil {
		return nil, err
	}
	fault.At("record.write." + string(rec.State))
	if err := r.writeSlot(seal(kindRecord, rec.Sequence, raw)); err != nil {
		return nil, err
	}
	r.sequence = rec.Sequence
	if flush {
		if err := r.flushSlots("record.write." + string(rec.State) + ".flush"); err != nil {
			return raw, err
		}
	}
	return raw, nil
}

// mayWrite sets what every record of this run says, and refuses one that may not be written.
func (r *Run) mayWrite(rec *longstop.Record, secret []byte) error {
	if r.lock == nil {
		return errors.New("write record: the run's lock is not held")
	}
	if r.slots.final || r.Final() && !r.forged(secret) {
		return ErrFinal
	}
	rec.Version, rec.RunID, rec.StateID = envelopeVersion, r.id, r.f.id
	if err := check(*rec); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// fit signs rec, made shorter until it fits into a room: first descriptors and long commands go,
// then the tails of the lists of processes.
func fit(rec longstop.Record, secret []byte, room int) ([]byte, error) {
	for step := range 24 {
		if raw := wire.Sign(rec, secret); len(raw)+envelopeLength <= room {
			return raw, nil
		}
		shorten(&rec, step)
	}
	return nil, errors.New("write record: it does not fit into its room")
}

func shorten(rec *longstop.Record, step int) {
	lists := []*[]longstop.Process{&rec.Left, &rec.Survivors, &rec.Released}
	if step == 0 {
		for _, list := range lists {
			*list = slices.Clone(*list)
			for i := range *list {
				(*list)[i].Files, (*list)[i].Command = [3]string{}, clip((*list)[i].Command, 80)
			}
		}
		rec.Anomalies = slices.Clone(rec.Anomalies[:min(len(rec.Anomalies), 20)])
		for i := range rec.Anomalies {
			rec.Anomalies[i] = clip(rec.Anomalies[i], 200)
		}
		if rec.LaunchError != nil {
			e := *rec.LaunchError
			e.Path, e.Message = clip(e.Path, 1000), clip(e.Message, 1000)
			rec.LaunchError = &e
		}
		return
	}
	longest := lists[0]
	for _, list := range lists {
		if len(*list) > len(*longest) {
			longest = list
		}
	}
	if n := len(*longest); n > 0 {
		*longest = (*longest)[:n/2]
		rec.Anomalies = append(rec.Anomalies[:len(rec.Anomalies):len(rec.Anomalies)],
			strconv.Itoa(n-n/2)+" more processes were found than the record has room to name")
	}
}

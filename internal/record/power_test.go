package record

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// disk is what a power failure would leave of a folder: for each file and folder, by inode, what it
// was when it was last flushed, beside what it is now. Between the two anything may be found: names
// and 512-byte blocks are kept or lost one by one.
type disk struct {
	root    string
	files   map[uint64][]byte
	folders map[uint64]map[string]uint64
}

func newDisk(t *testing.T, root string) *disk {
	d := &disk{root: root, files: map[uint64][]byte{}, folders: map[uint64]map[string]uint64{}}
	must(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil {
			d.flush(path)
		}
		return err
	}))
	return d
}

func inode(path string) (number uint64, isFolder bool) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0, false
	}
	return st.Ino, st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// flush notes that what is at path now is durable.
func (d *disk) flush(path string) {
	number, isFolder := inode(path)
	if isFolder {
		d.folders[number] = entriesOf(path)
	} else {
		d.files[number], _ = os.ReadFile(path)
	}
}

func entriesOf(path string) map[string]uint64 {
	entries := map[string]uint64{}
	list, _ := os.ReadDir(path)
	for _, entry := range list {
		entries[entry.Name()], _ = inode(path + "/" + entry.Name())
	}
	return entries
}

// fail makes a folder as a power failure now could leave it. pick chooses, for each thing that was
// not flushed, whether it was written nevertheless.
func (d *disk) fail(t *testing.T, to string, pick func() bool) {
	now := map[uint64]string{} // where each inode can be read now
	must(t, filepath.WalkDir(d.root, func(path string, entry os.DirEntry, err error) error {
		number, _ := inode(path)
		now[number] = path
		return err
	}))
	made := map[uint64]string{}
	var build func(number uint64, to string)
	build = func(number uint64, to string) {
		path := now[number]
		if _, isFolder := inode(path); isFolder || d.folders[number] != nil {
			must(t, os.Mkdir(to, 0700))
			now := entriesOf(path)
			if path == "" { // it was removed, and that may not have been written
				now = d.folders[number]
			}
			for name, child := range mixNames(d.folders[number], now, pick) {
				build(child, to+"/"+name)
			}
			return
		}
		if first := made[number]; first != "" {
			must(t, os.Link(first, to))
			return
		}
		data, _ := os.ReadFile(path) // an inode that has no name any more reads as it was flushed
		must(t, os.WriteFile(to, mixBlocks(d.files[number], data, path == "", pick), 0600))
		made[number] = to
	}
	root, _ := inode(d.root)
	build(root, to)
}

func mixNames(durable, now map[string]uint64, pick func() bool) map[string]uint64 {
	mixed := map[string]uint64{}
	for name, number := range durable {
		if now[name] == number || !pick() {
			mixed[name] = number
		}
	}
	for name, number := range now {
		if durable[name] == number || pick() {
			mixed[name] = number
		}
	}
	return mixed
}

func mixBlocks(durable, now []byte, gone bool, pick func() bool) []byte {
	if gone || bytes.Equal(durable, now) {
		return durable
	}
	size := len(durable)
	if pick() {
		size = len(now)
	}
	mixed := make([]byte, size)
	for at := 0; at < size; at += 512 {
		from := durable
		if pick() {
			from = now
		}
		if at < len(from) {
			copy(mixed[at:min(at+512, size)], from[at:])
		}
	}
	return mixed
}

// story is what was promised so far: it must hold after any power failure from then on.
type story struct {
	key      string
	id       longstop.RunID
	claimed  bool   // a durable record was written, and with it the claim
	sequence uint64 // of the newest record whose flush returned
	final    []byte // Finish returned
	over     bool   // Collect returned: no list needs to have it
	voided   string // Void of this key returned
	written  map[string]bool
}

// check opens what a power failure left, as the next boot does, and compares it with the story.
func (s *story) check(dir string) error {
	f, err := open(dir, "the next boot")
	if err != nil {
		return err
	}
	defer f.Close()
	if s.voided != "" {
		if claim, err := f.Find(s.voided); err != nil || !claim.Void {
			return fmt.Errorf("the void: %+v, %v", claim, err)
		}
	}
	claim, err := f.Find(s.key)
	if err != nil {
		return fmt.Errorf("find: %w", err)
	}
	if !claim.Found {
		if s.claimed {
			return errors.New("the claim is gone")
		}
		return nil
	}
	if claim.RunID != s.id || claim.Digest != "sha256:1" {
		return fmt.Errorf("the key has %+v", claim)
	}
	run, err := f.Run(claim.RunID)
	if err != nil {
		return fmt.Errorf("the run of the claim: %w", err)
	}
	defer run.Close()
	raw, rec, err := run.Read()
	switch {
	case errors.Is(err, ErrNoRecord):
		if s.sequence > 0 || s.final != nil {
			return errors.New("a durable record is gone")
		}
	case err != nil:
		return fmt.Errorf("read: %w", err)
	case !s.written[string(raw)]:
		return fmt.Errorf("nobody wrote %s", raw)
	case rec.Sequence < s.sequence:
		return fmt.Errorf("record %d is back, %d was durable", rec.Sequence, s.sequence)
	case s.final != nil && !bytes.Equal(raw, s.final):
		return fmt.Errorf("%s instead of the final record", raw)
	}
	return s.checkIndexes(f, rec)
}

func (s *story) checkIndexes(f *Folder, rec longstop.Record) error {
	page, err := f.List("0.", 0)
	if err != nil {
		return err
	}
	if s.over && len(page.Runs) == 0 {
		return nil
	}
	if len(page.Runs) != 1 || page.Runs[0] != s.id {
		return fmt.Errorf("the list has %v", page.Runs)
	}
	unresolved, err := f.Unresolved()
	if err != nil || (len(unresolved) == 1) == rec.State.Final() {
		return fmt.Errorf("state %q, unresolved %v, %v", rec.State, unresolved, err)
	}
	return nil
}

// outages fails the power again and again in the course of one run's life, each time with nothing
// but what was flushed, with everything, and with mixtures of the two.
type outages struct {
	t      *testing.T
	seed   uint64
	picks  []func() bool
	disk   *disk
	story  *story
	images string
	count  int
}

func newOutages(t *testing.T, f *Folder, s *story) *outages {
	o := &outages{t: t, seed: rand.Uint64(), disk: newDisk(t, f.Dir()), story: s, images: t.TempDir()}
	random := rand.New(rand.NewPCG(o.seed, 0))
	o.picks = []func() bool{func() bool { return false }, func() bool { return true }}
	for range 8 {
		o.picks = append(o.picks, func() bool { return random.IntN(2) == 0 })
	}
	var mu sync.Mutex // flushes that go on side by side are looked at one after the other
	f.flushing = func(file *os.File, done bool) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			o.disk.flush(file.Name())
		}
		o.fail(fmt.Sprintf("at a flush of %s (done: %v)", file.Name(), done))
	}
	return o
}

func (o *outages) fail(where string) {
	for i, pick := range o.picks {
		o.count++
		image := fmt.Sprint(o.images, "/", o.count)
		o.disk.fail(o.t, image, pick)
		if err := o.story.check(image); err != nil {
			o.t.Errorf("seed %d, power lost %s, mixture %d: %v", o.seed, where, i, err)
		}
		os.RemoveAll(image)
	}
}

// TestPowerLoss fails the power before and after every flush of a run's life, and after each step.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]bool{"folder made for it": false, "folder made ahead": true} {
		for whose, dies := range map[string]bool{"ended by its owner": false, "ended by its heir": true} {
			t.Run(name+", "+whose, func(t *testing.T) {
				t.Parallel()
				losePower(t, ahead, dies)
			})
		}
	}
}

func losePower(t *testing.T, ahead, dies bool) {
	f := folder(t)
	sub := submission("k")
	s := &story{key: "k", id: sub.RunID, written: map[string]bool{}}
	o := newOutages(t, f, s)
	if ahead {
		must(t, f.Prepare())
		o.fail("after Prepare")
	}
	run, err := f.Build(sub)
	must(t, err)
	o.fail("after Build")
	_, err = f.Claim(run, "k")
	must(t, err)
	o.fail("after Claim")
	_, err = run.Lock()
	must(t, err)
	rec := longstop.Record{State: longstop.WorkloadStarting}
	write := func(state longstop.WorkloadState, flush bool) {
		rec.State = state
		if state != longstop.WorkloadStarting {
			rec.Main = main24182()
		}
		s.expect(rec, run)
		_, err := run.Write(&rec, []byte("secret"), flush)
		must(t, err)
		if flush {
			s.claimed, s.sequence = true, rec.Sequence
		}
		o.fail("after " + string(state))
	}
	write(longstop.WorkloadStarting, dies) // its own flush only where others follow
	write(longstop.WorkloadRunning, true)
	if !dies { // the work is let through
		run.Settle()
		run.settling <- <-run.settling
		o.fail("after Settle")
	}
	for range 4 { // renewals of its lease, which are not flushed
		write(longstop.WorkloadRunning, false)
	}
	write(longstop.WorkloadLingering, false)
	if dies { // and its heir does not know what was flushed
		run.Close()
		run, err = f.Run(sub.RunID)
		must(t, err)
		_, err = run.Lock()
		must(t, err)
		write(longstop.WorkloadOrphaned, false)
	}
	write(longstop.WorkloadCancelling, true)
	_, err = f.Void("other", "test")
	must(t, err)
	s.voided = "other"
	rec.State = longstop.WorkloadCancelled
	s.expect(rec, run)
	run.OnFinal = func(raw []byte) {
		s.final = raw
		o.fail("when the end is told")
	}
	_, err = run.Finish(&rec, []byte("secret"))
	must(t, err)
	o.fail("after Finish")
	must(t, run.Collect())
	s.over = true
	o.fail("after Collect")
	removed, _, err := f.GC(Retention{Runs: []longstop.RunID{sub.RunID}, Now: time.Now().Add(time.Hour)})
	if err != nil || len(removed) != 1 {
		t.Errorf("removed %v, %v", removed, err)
	}
	o.fail("after GC")
	if o.count < 250 {
		t.Errorf("only %d failures were tried", o.count)
	}
}

// TestPowerLossBeforeCollect fails the power while a run that nobody collected is final, kept, and at
// last removed for its age: its result is there each time.
func TestPowerLossBeforeCollect(t *testing.T) {
	t.Parallel()
	f := folder(t)
	sub := submission("k")
	s := &story{key: "k", id: sub.RunID, written: map[string]bool{}}
	o := newOutages(t, f, s)
	run, err := f.Build(sub)
	must(t, err)
	_, err = f.Claim(run, "k")
	must(t, err)
	_, err = run.Lock()
	must(t, err)
	rec := longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}
	s.expect(rec, run)
	_, err = run.Write(&rec, []byte("secret"), true)
	must(t, err)
	s.claimed, s.sequence = true, rec.Sequence
	rec.State, rec.Result, rec.FinishedAt = longstop.WorkloadFinished, &longstop.Result{ExitCode: new(int)}, longstop.At(time.Now())
	s.expect(rec, run)
	s.final, err = run.Finish(&rec, []byte("secret"))
	must(t, err)
	run.Close()
	for _, later := range []time.Duration{time.Hour, 3 * time.Hour} {
		removed, _, err := f.GC(Retention{Runs: []longstop.RunID{sub.RunID}, MaxAge: 2 * time.Hour, Now: time.Now().Add(later)})
		if s.over = len(removed) == 1; err != nil || s.over != (later > 2*time.Hour) {
			t.Errorf("after %v: removed %v, %v", later, removed, err)
		}
		o.fail("after GC")
	}
}

// expect notes the bytes that the next record will have.
func (s *story) expect(rec longstop.Record, run *Run) {
	rec.Version, rec.RunID, rec.StateID, rec.Sequence = 1, run.id, run.f.id, run.sequence+1
	raw, _ := fit(rec, []byte("secret"), slotSize)
	s.written[string(raw)] = true
}

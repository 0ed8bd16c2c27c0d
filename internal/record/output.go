package record

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// A stream's bytes lie at their own offsets in its file for ever. Those that are not kept are holes in
// it, declared in a file beside it:
//
//  1. Whoever writes declares a range before its bytes go, or before others are kept behind it.
//  2. A reader reads first and looks at what is declared then: what was declared meanwhile may be holes.
//
// The last range of a stream needs no declaration while nothing is behind it: the record has it.

// maxDropped bounds the ranges of a stream that are told apart.
const maxDropped = 16

// dropMissing is the reason of what a final record counts and the file does not have: lost with the
// power, or by somebody who cut it.
const dropMissing = "missing"

// Cover adds a range to those of a stream: what it overlaps is its own from then on. Above maxDropped of
// them the last become one, and what was kept between is given up.
func Cover(list []longstop.Dropped, add longstop.Dropped) []longstop.Dropped {
	var all []longstop.Dropped
	put := func(from, to int64, reason string) {
		if from >= to {
			return
		}
		if last := len(all) - 1; last >= 0 && (len(all) == maxDropped || all[last].To == from && all[last].Reason == reason) {
			all[last].To = to
			return
		}
		all = append(all, longstop.Dropped{From: from, To: to, Reason: reason})
	}
	for _, d := range list {
		put(d.From, min(d.To, add.From), d.Reason)
	}
	put(add.From, add.To, add.Reason)
	for _, d := range list {
		put(max(d.From, add.To), d.To, d.Reason)
	}
	return all
}

// Declare says which ranges of a stream are not kept, for readers and for the writer's heir.
func (r *Run) Declare(stream string, dropped []longstop.Dropped) error {
	data, err := json.Marshal(dropped)
	if err != nil {
		return err
	}
	return r.replace(stream+".dropped", data)
}

// replace puts a small file in the place of another, whole. Nobody but one process does it for a name.
func (r *Run) replace(name string, data []byte) error {
	temporary := name + ".new"
	file, err := r.File(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(data)
	if err == nil {
		err = unix.Renameat(int(r.dir.Fd()), temporary, int(r.dir.Fd()), name)
	}
	if err != nil {
		unlink(r.dir, temporary)
		return writeError(file.Name(), err)
	}
	return nil
}

// Declared are the ranges that Declare said last.
func (r *Run) Declared(stream string) ([]longstop.Dropped, error) {
	if r.dir == nil {
		return nil, nil
	}
	data, err := readAll(r.dir, stream+".dropped", 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list, sound []longstop.Dropped
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, unreadable(r.Path(stream+".dropped"), err)
	}
	for _, d := range list {
		if d.From >= 0 {
			sound = Cover(sound, d)
		}
	}
	return sound, nil
}

// Outputs is what a record says of the run's output, brought to where the files are by now.
func (r *Run) Outputs(said longstop.Output) longstop.Output {
	now, dropped := said, int64(0)
	for i, stream := range []string{"stdout", "stderr"} {
		bytes := []*int64{&now.StdoutBytes, &now.StderrBytes}[i]
		ranges := []*[]longstop.Dropped{&now.StdoutDropped, &now.StderrDropped}[i]
		*bytes = max(*bytes, r.size(stream))
		if *bytes > said.MaxBytes/2 { // less was never cut
			declared, _ := r.Declared(stream)
			for _, d := range declared {
				*ranges = Cover(*ranges, d)
			}
		}
		for _, d := range *ranges {
			*bytes = max(*bytes, d.To)
			dropped += d.To - d.From
			if now.DropReason == "" {
				now.DropReason = d.Reason
			}
		}
	}
	now.DroppedBytes = max(now.DroppedBytes, dropped)
	return now
}

// Stream is a run's kept output on one stream, for reading. What Total and Dropped say holds since the
// last Look.
type Stream struct {
	run     *Run
	name    string
	file    *os.File // nil: not there yet
	over    bool
	Total   int64
	Dropped []longstop.Dropped
}

// Stream reads a stream ("stdout" or "stderr") of the run. Close it.
func (r *Run) Stream(name string) *Stream { return &Stream{run: r, name: name} }

// Close lets go of the file.
func (s *Stream) Close() {
	if s.file != nil {
		s.file.Close()
	}
}

// File is the open file, or nil.
func (s *Stream) File() *os.File { return s.file }

// Look finds out what there is by now. With the output of a final record, to which nothing is added
// any more, that is for ever.
func (s *Stream) Look(final *longstop.Output) (err error) {
	if s.file == nil {
		s.file, err = s.run.File(s.name, unix.O_RDONLY)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	size := int64(0)
	if s.file != nil {
		info, err := s.file.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
	}
	s.Total = size
	if s.over = final != nil; s.over {
		s.Total, s.Dropped = max(size, final.BytesOf(s.name)), final.DroppedOf(s.name)
		if next, _ := s.Skip(size); next < s.Total {
			s.Dropped = Cover(s.Dropped, longstop.Dropped{From: next, To: s.Total, Reason: dropMissing})
		}
		return nil
	}
	// Later than the size: what is in the file behind a range was put there after it was declared.
	s.Dropped, err = s.run.Declared(s.name)
	for _, d := range s.Dropped {
		s.Total = max(s.Total, d.To)
	}
	return err
}

// Skip returns the first offset, from the given one on, of which the bytes were kept or are still to
// come, and what was passed over.
func (s *Stream) Skip(offset int64) (next int64, passed []longstop.Dropped) {
	for _, d := range s.Dropped {
		if d.From <= offset && offset < d.To {
			passed = append(passed, longstop.Dropped{From: offset, To: d.To, Reason: d.Reason})
			offset = d.To
		}
	}
	return offset, passed
}

// Kept returns how far the bytes from an offset on are there.
func (s *Stream) Kept(offset int64) int64 {
	end := s.Total
	for _, d := range s.Dropped {
		if d.From >= offset {
			end = min(end, d.From)
		}
	}
	return end
}

// Read reads bytes from an offset that Skip returned. None, where there are some by Kept: they went
// meanwhile, and Skip passes over them now.
func (s *Stream) Read(buf []byte, offset int64) (n int, err error) {
	most := min(int64(len(buf)), s.Kept(offset)-offset)
	if s.file == nil || most <= 0 {
		return 0, nil
	}
	n, err = s.file.ReadAt(buf[:most], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if s.over {
		return n, nil
	}
	if s.Dropped, err = s.run.Declared(s.name); err != nil {
		return 0, err
	}
	if next, _ := s.Skip(offset); next > offset {
		return 0, nil
	}
	return int(min(int64(n), s.Kept(offset)-offset)), nil
}

package record

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// When a stream's bytes came is kept beside it: entries of an offset and a time, both of 8 bytes, for the
// first byte that came in each while. A stream that came in one while has none: its file's own time is that.
const (
	arrivalSize = 16
	maxArrivals = 4096
	arrivalStep = 100 * time.Millisecond
)

// Arrivals notes when a stream's bytes come: at most one entry in each tenth of a second, and in twice as
// long a while each time that there would be too many. What cannot be written is not noted.
type Arrivals struct {
	run   *Run
	name  string
	every time.Duration
	first longstop.Arrival // not written while it is the only one
	last  time.Time        // of the newest entry
	count int
	file  *os.File
	dead  bool
}

// NoteArrivals goes on with what is noted of a stream, of which so many bytes came before.
func (r *Run) NoteArrivals(stream string, came int64) *Arrivals {
	a := &Arrivals{run: r, name: stream + ".times", every: arrivalStep}
	if came == 0 {
		return a
	}
	if noted, at, err := r.arrivals(stream); err == nil && len(noted) > 0 {
		a.count, a.dead = len(noted), !a.open()
	} else if err == nil {
		a.first, a.last = longstop.Arrival{At: longstop.At(at)}, at
	}
	return a
}

// Came notes that the byte at an offset came now.
func (a *Arrivals) Came(offset int64) {
	now := time.Now()
	if a.dead || now.Sub(a.last) < a.every {
		return
	}
	entry, begun := longstop.Arrival{Offset: offset, At: longstop.At(now)}, !a.last.IsZero()
	a.last = now
	if a.count == 0 && !begun {
		a.first = entry
		return
	}
	var data []byte
	if a.count == 0 && a.file == nil {
		a.dead = !a.open()
		data = appendArrival(data, a.first)
	}
	data = appendArrival(data, entry)
	if a.dead || a.count >= maxArrivals && !a.thin() {
		a.dead = true
		return
	}
	if _, err := a.file.WriteAt(data, int64(a.count)*arrivalSize); err != nil {
		a.dead = true
	}
	a.count += len(data) / arrivalSize
}

func (a *Arrivals) open() bool {
	a.Close()
	var err error
	a.file, err = a.run.File(a.name, unix.O_RDWR|unix.O_CREAT)
	return err == nil
}

// thin leaves every second entry.
func (a *Arrivals) thin() bool {
	all := make([]byte, a.count*arrivalSize)
	if _, err := a.file.ReadAt(all, 0); err != nil {
		return false
	}
	var kept []byte
	for i := 0; i < a.count; i += 2 {
		kept = append(kept, all[i*arrivalSize:(i+1)*arrivalSize]...)
	}
	if a.run.replace(a.name, kept) != nil || !a.open() {
		return false
	}
	a.count, a.every = len(kept)/arrivalSize, 2*a.every
	return true
}

// Close lets go of the file.
func (a *Arrivals) Close() {
	if a.file != nil {
		a.file.Close()
	}
}

func appendArrival(b []byte, a longstop.Arrival) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Offset))
	return binary.LittleEndian.AppendUint64(b, uint64(a.At.UnixMicro()))
}

// Arrivals are when a stream's bytes came: those from each offset on at its time, or little later. Of files
// that the work writes itself, nothing is known.
func (r *Run) Arrivals(stream string) ([]longstop.Arrival, error) {
	noted, at, err := r.arrivals(stream)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && len(noted) == 0 && r.size(stream) > 0 {
		noted = []longstop.Arrival{{At: longstop.At(at)}}
	}
	return noted, err
}

// arrivals are the entries that are there, and the time of the stream's file.
func (r *Run) arrivals(stream string) ([]longstop.Arrival, time.Time, error) {
	file, err := r.File(stream, unix.O_RDONLY)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	data, err := readAll(r.dir, stream+".times", 2*maxArrivals*arrivalSize)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, err
	}
	var all []longstop.Arrival
	for ; len(data) >= arrivalSize; data = data[arrivalSize:] {
		offset, at := int64(binary.LittleEndian.Uint64(data)), int64(binary.LittleEndian.Uint64(data[8:]))
		if n := len(all); offset < 0 || n > 0 && offset <= all[n-1].Offset {
			break // not ours
		}
		all = append(all, longstop.Arrival{Offset: offset, At: longstop.At(time.UnixMicro(at))})
	}
	return all, info.ModTime(), nil
}

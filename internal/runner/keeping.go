package runner

import (
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/record"
)

// keeping is where a stream's bytes go: each to its own offset of a file. Of a stream that grows over
// its bound, head and tail are kept, half of it each, and what lies between becomes a hole in the file.
// Where there can be no holes the head is kept and the rest dropped. All but sofar is for one goroutine.
type keeping struct {
	run  *record.Run
	name string
	file *os.File // nil: it could not be made, and why says so
	why  string

	most, head, step int64 // bound; its first half; how much is cut out at once. A bound of 0 is none
	cut              int64 // what lies between head and here is a hole, or ought to be
	holes            holes
	declared         bool // what is dropped is, all of it, for readers and heirs to see

	times *record.Arrivals

	mu      sync.Mutex
	at      int64 // of the next byte
	dropped []longstop.Dropped
	reason  string // of the last that was dropped
}

// holes says whether the file system makes them.
type holes int

const (
	untried holes = iota
	able
	unable
)

// block is what holes begin and end at: a page, and a block of all but exotic file systems.
const block = 4 << 10

// bound sets how much is kept. A file is larger than that by one step at most, and by what is written at
// once (1 MiB), but at its end by no more than a block.
func (k *keeping) bound(most int64) {
	k.most = most
	k.head = most / 2 &^ (block - 1)
	k.step = max(most/16, 1<<20)
}

// open opens the file, and goes on where whoever had it before left it: what that had declared as cut
// out may not have been yet.
func (k *keeping) open() {
	file, err := k.run.File(k.name, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		k.why = errnoOf(err)
		return // nowhere to keep it; the work goes on
	}
	k.file, k.times = file, k.run.NoteArrivals(k.name, k.at)
	declared, _ := k.run.Declared(k.name) // what cannot be read, or believed, is said anew
	k.declared = slices.Equal(declared, k.dropped)
	k.cut = k.head
	for _, d := range declared {
		if d.Reason == longstop.DroppedOverMax && d.From == k.head && k.able() {
			k.cut = d.To
			k.punch(k.head, k.cut)
		}
	}
}

// mostAtOnce is how much may be taken at once.
func (k *keeping) mostAtOnce(most int) int {
	if k.most > 0 {
		return int(min(int64(most), k.step))
	}
	return most
}

// refusal is why nothing can be kept now; empty: it can.
func (k *keeping) refusal() string {
	if k.file == nil {
		return k.why
	}
	if why := k.trim(k.step); why != "" {
		return why
	}
	if !k.declared { // what is kept next lies behind a gap
		if err := k.run.Declare(k.name, k.dropped); err != nil {
			return errnoOf(err)
		}
		k.declared = true
	}
	return ""
}

// trim cuts out what is neither head nor tail, where that is at least so much, and says why it could not.
//
//  1. The range is declared: no reader takes the hole for what the work wrote, no heir for kept.
//  2. The hole is made. Whoever dies in between has an heir, who makes it (open).
func (k *keeping) trim(least int64) (why string) {
	if k.most == 0 || k.at < k.most {
		return ""
	}
	if !k.able() {
		return longstop.DroppedOverMax
	}
	to := (k.at - (k.most - k.head)) &^ (block - 1)
	if to-k.cut < least {
		return ""
	}
	dropped := record.Cover(k.dropped, longstop.Dropped{From: k.head, To: to, Reason: longstop.DroppedOverMax})
	if err := k.run.Declare(k.name, dropped); err != nil {
		return errnoOf(err)
	}
	fault.At("capture.declared")
	k.mu.Lock()
	k.dropped, k.declared, k.reason = dropped, true, longstop.DroppedOverMax
	k.mu.Unlock()
	why = k.punch(k.cut, to)
	fault.At("capture.cut")
	k.cut = to
	return why
}

// able finds out, once, whether there can be holes: by one where there is nothing yet.
func (k *keeping) able() bool {
	if k.holes == untried {
		k.holes = able
		if beyond := (k.at + k.most) &^ (block - 1); k.punch(beyond+block, beyond+2*block) != "" {
			k.holes = unable
		}
	}
	return k.holes == able
}

func (k *keeping) punch(from, to int64) (why string) {
	for {
		err := unix.Fallocate(int(k.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		if err == nil {
			return ""
		}
		if err != unix.EINTR {
			return boundary.Errno(err)
		}
	}
}

// keep notes bytes that were written at the stream's end.
func (k *keeping) keep(n int64) {
	if n > 0 {
		k.times.Came(k.at)
	}
	k.mu.Lock()
	k.at += n
	k.mu.Unlock()
}

// lose notes bytes that were not. They have their offsets all the same.
func (k *keeping) lose(n int64, reason string) {
	if n == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropped = record.Cover(k.dropped, longstop.Dropped{From: k.at, To: k.at + n, Reason: reason})
	k.at += n
	k.reason, k.declared = reason, false
}

// sofar is how far the stream has come, and without which bytes.
func (k *keeping) sofar() (at int64, dropped []longstop.Dropped, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at, k.dropped, k.reason
}

// close leaves no more of the stream than is to be kept.
func (k *keeping) close() {
	if k.file == nil {
		return
	}
	k.trim(1)
	if !k.declared { // if this fails, the record says it
		k.run.Declare(k.name, k.dropped)
	}
	k.times.Close()
	k.file.Close()
}

// errnoOf is the name of an error's errno, or the error.
func errnoOf(err error) string {
	if name := boundary.Errno(err); name != "" {
		return name
	}
	return err.Error()
}

package runner

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// changes tells when files changed, by one inotify(7) instance for all who ask: a user has few of
// them. What it tells is a hint to look again; whoever waits also looks by itself now and then,
// since some file systems, and splice(2) on kernels before 6.6, change files without a word. Where
// there is no instance to be had, looking is all there is.
type changes struct {
	answering *answering // what is not to be told twice; nil: nobody is told of runs

	mu      sync.Mutex
	tried   bool
	file    *os.File // nil: no instance
	watched map[int32]map[*changeWatch]bool
}

func newChanges() *changes { return &changes{watched: map[int32]map[*changeWatch]bool{}} }

// changeWatch is one file or folder that somebody waits for.
type changeWatch struct {
	c  *changes
	wd int32 // -1: not told

	changed chan struct{}
	mu      sync.Mutex
	names   map[string]bool // of files of the folder that changed
	missed  bool            // some were not told
}

// maxNames bounds what a folder's watch remembers between two looks.
const maxNames = 4096

// watch begins to wait for events of mask on path. It never fails: see told.
func (c *changes) watch(path string, mask uint32) *changeWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &changeWatch{c: c, wd: -1, changed: make(chan struct{}, 1), names: map[string]bool{}}
	if !c.tried {
		c.tried = true
		c.start()
	}
	if c.file == nil {
		return w
	}
	wd, err := unix.InotifyAddWatch(int(c.file.Fd()), path, mask|unix.IN_MASK_ADD)
	if err != nil {
		return w
	}
	w.wd = int32(wd)
	if c.watched[w.wd] == nil {
		c.watched[w.wd] = map[*changeWatch]bool{}
	}
	c.watched[w.wd][w] = true
	return w
}

func (c *changes) start() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	c.file = os.NewFile(uintptr(fd), "inotify")
	go c.listen(c.file)
}

// listen hands events on until the instance is closed.
func (c *changes) listen(file *os.File) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := file.Read(buffer)
		if err != nil {
			return
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			length := int(binary.NativeEndian.Uint32(rest[12:]))
			name := rest[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+length]
			rest = rest[unix.SizeofInotifyEvent+length:]
			c.tell(wd, mask, string(bytes.TrimRight(name, "\x00")))
		}
	}
}

func (c *changes) tell(wd int32, mask uint32, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for _, watches := range c.watched {
			for w := range watches {
				w.tell("", true)
			}
		}
		return
	}
	for w := range c.watched[wd] {
		w.tell(name, mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0)
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(c.watched, wd)
	}
}

func (c *changes) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
	c.tried = true
}

func (w *changeWatch) tell(name string, missed bool) {
	w.mu.Lock()
	if len(w.names) >= maxNames {
		missed = true
	} else if name != "" {
		w.names[name] = true
	}
	w.missed = w.missed || missed
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// told reports whether changes are told at all; else looking is all there is.
func (w *changeWatch) told() bool { return w.wd >= 0 }

// take returns the names in the folder that changed since the last call; missed says that there
// may be others.
func (w *changeWatch) take() (names map[string]bool, missed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names, missed = w.names, w.missed
	w.names, w.missed = map[string]bool{}, false
	return names, missed
}

// wait returns at a change, after a while, or with the context's error.
func (w *changeWatch) wait(ctx context.Context, while time.Duration) error {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-w.changed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the wait.
func (w *changeWatch) stop() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	watches := w.c.watched[w.wd]
	if !watches[w] {
		return
	}
	delete(watches, w)
	if len(watches) == 0 {
		delete(w.c.watched, w.wd)
		if w.c.file != nil {
			unix.InotifyRmWatch(int(w.c.file.Fd()), uint32(w.wd))
		}
	}
}

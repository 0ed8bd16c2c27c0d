package hostsim

import (
	"maps"

	"github.com/longstop/longstop"
)

// disk is a host's state folder: what was written, and what of it a power failure leaves.
type disk struct {
	page    folder // as its processes see it
	platter folder // as it was flushed
}

type folder struct {
	claims    map[string]claim // by key
	records   map[longstop.RunID][]byte
	finals    map[longstop.RunID][]byte
	output    map[longstop.RunID]string
	collected map[longstop.RunID]bool
	removed   map[longstop.RunID]bool // finals and claims stay
}

// claim is what a key has: a run, or a void.
type claim struct {
	void     bool
	key      string
	run      longstop.RunID
	digest   string
	bootID   string
	notAfter longstop.BootTime
	first    longstop.Record // what can be said of a run whose owner wrote nothing
}

func newFolder() folder {
	return folder{map[string]claim{}, map[longstop.RunID][]byte{}, map[longstop.RunID][]byte{}, map[longstop.RunID]string{},
		map[longstop.RunID]bool{}, map[longstop.RunID]bool{}}
}

func newDisk() *disk { return &disk{newFolder(), newFolder()} }

// clone copies the maps; what they hold is never changed in place.
func (f folder) clone() folder {
	return folder{maps.Clone(f.claims), maps.Clone(f.records), maps.Clone(f.finals), maps.Clone(f.output),
		maps.Clone(f.collected), maps.Clone(f.removed)}
}

// flush makes durable what belongs to one key and its run.
func (d *disk) flush(key string) {
	c, ok := d.page.claims[key]
	if !ok {
		return
	}
	d.platter.claims[key] = c
	carry(d.page.records, d.platter.records, c.run)
	carry(d.page.finals, d.platter.finals, c.run)
	carry(d.page.output, d.platter.output, c.run)
}

func carry[V any](from, to map[longstop.RunID]V, id longstop.RunID) {
	if v, ok := from[id]; ok {
		to[id] = v
	}
}

// lose is a power failure.
func (d *disk) lose() { d.page = d.platter.clone() }

// newest is the record that a reader takes.
func (f *folder) newest(id longstop.RunID) (raw []byte, final bool) {
	if raw, ok := f.finals[id]; ok {
		return raw, true
	}
	return f.records[id], false
}

// claimed returns the claim of a run.
func (f *folder) claimed(id longstop.RunID) (claim, bool) {
	for _, c := range f.claims {
		if c.run == id && !c.void {
			return c, true
		}
	}
	return claim{}, false
}

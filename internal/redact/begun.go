package redact

import (
	"regexp/syntax"
	"unicode/utf8"
)

// program runs a pattern as a machine of many threads (Pike), to tell what package regexp does not: whether
// a match may have begun that what follows would complete, or make longer.
type program struct{ *syntax.Prog }

func compile(text string) (program, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return program{}, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	return program{prog}, err
}

// threads are the places in the program that are reached, each with where in the text the first began that
// reached it.
type threads struct {
	start []int // by place; -1: nobody is there
	order []uint32
}

func newThreads(n int) *threads {
	t := &threads{start: make([]int, n)}
	for i := range t.start {
		t.start[i] = -1
	}
	return t
}

func (t *threads) clear() {
	for _, pc := range t.order {
		t.start[pc] = -1
	}
	t.order = t.order[:0]
}

// begun is the earliest place at the end of b where a match may have begun that is not over; len(b): nowhere.
// It looks at the last MaxMatch bytes. A group does not matter: what lies in the whole match is held back.
func (p program) begun(b []byte) int {
	from := max(0, len(b)-MaxMatch)
	for from > 0 && from < len(b) && !utf8.RuneStart(b[from]) {
		from++
	}
	now, next := newThreads(len(p.Inst)), newThreads(len(p.Inst))
	before := rune(-1)
	if from > 0 {
		before, _ = utf8.DecodeLastRune(b[:from])
	}
	for at := from; at < len(b); {
		c, size := utf8.DecodeRune(b[at:])
		if !utf8.FullRune(b[at:]) {
			break // the rest of it is still to come
		}
		p.follow(now, uint32(p.Start), at, before, c, false)
		for _, pc := range now.order {
			if inst := &p.Inst[pc]; consumes(inst) && inst.MatchRune(c) {
				after := rune(-1)
				whole := at+size < len(b)
				if whole {
					after, _ = utf8.DecodeRune(b[at+size:])
				}
				p.follow(next, inst.Out, now.start[pc], c, after, !whole)
			}
		}
		now.clear()
		now, next = next, now
		before = c
		at += size
	}
	earliest := len(b)
	for _, pc := range now.order {
		if inst := &p.Inst[pc]; consumes(inst) || inst.Op == syntax.InstEmptyWidth {
			earliest = min(earliest, now.start[pc])
		}
	}
	return earliest
}

func consumes(inst *syntax.Inst) bool {
	switch inst.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// follow adds a place, and what is reached from there without a character. Where what comes after is not known,
// a condition on it stays a place of its own, and may hold.
func (p program) follow(t *threads, pc uint32, start int, before, after rune, unknown bool) {
	if old := t.start[pc]; old >= 0 && old <= start {
		return
	}
	if t.start[pc] < 0 {
		t.order = append(t.order, pc)
	}
	t.start[pc] = start
	switch inst := &p.Inst[pc]; inst.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		p.follow(t, inst.Out, start, before, after, unknown)
		p.follow(t, inst.Arg, start, before, after, unknown)
	case syntax.InstCapture, syntax.InstNop:
		p.follow(t, inst.Out, start, before, after, unknown)
	case syntax.InstEmptyWidth:
		if unknown || syntax.EmptyOp(inst.Arg)&^syntax.EmptyOpContext(before, after) == 0 {
			p.follow(t, inst.Out, start, before, after, unknown)
		}
	}
}

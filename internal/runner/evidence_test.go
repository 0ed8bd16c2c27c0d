package runner

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// What is wrong is named, and costs nothing of the rest.
func TestEvidenceIsReadStrictly(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range longstop.MaxEvidence + 3 {
		many += fmt.Sprintf("k%d=v\n", i)
	}
	for _, c := range []struct {
		text string
		want string // as fmt prints maps: sorted
		odd  string // one piece of each anomaly
	}{
		{"", "map[]", ""},
		{"revision=4f2c\nschema.version=42\nsum=a=b\nempty=\nlast=no newline", "map[empty: last:no newline revision:4f2c schema.version:42 sum:a=b]", ""},
		{"a=1\nno line\n=x\n1k=2\nk k=3\n\nb=ü\n", "map[a:1 b:ü]", "line 2 is not|line 3 is not|line 4 is not|line 5 is not"},
		{"a=\xff\nb=x\x1b[2J\nc=ok\r\nd=1\n", "map[d:1]", "value of a is not|value of b is not|value of c is not"},
		{"a=1\na=2\na=2\n", "map[a:2]", "a was given twice"},
		{"a=" + strings.Repeat("x", longstop.MaxEvidenceValue+1) + "\nb=1\n", "map[b:1]", "value of a has 513 bytes"},
		{strings.Repeat("x", longstop.MaxEvidenceKey+1) + "=1\nb=1\n", "map[b:1]", "line 1 is not"},
		{"b=1\n" + strings.Repeat("#\n", 20), "map[b:1]", "line 2|line 3|line 4|line 5|line 6|and 15 more"},
		{"b=1\n" + strings.Repeat("x", longstop.MaxEvidenceInFile), "map[b:1]", "more than 16384 bytes"},
	} {
		evidence, odd := parseEvidence([]byte(c.text))
		if got := fmt.Sprint(evidence); got != c.want {
			t.Errorf("%.40q: %s, want %s", c.text, got, c.want)
		}
		pieces := strings.Split(c.odd, "|")
		if c.odd == "" {
			pieces = nil
		}
		for i, piece := range pieces {
			if i >= len(odd) || !strings.Contains(odd[i], piece) {
				t.Errorf("%.40q: %q does not say %q", c.text, odd, piece)
			}
		}
		if len(odd) != len(pieces) {
			t.Errorf("%.40q: %q", c.text, odd)
		}
	}
	if evidence, odd := parseEvidence([]byte(many)); len(evidence) != longstop.MaxEvidence || len(odd) != 3 {
		t.Errorf("%d kept, %q", len(evidence), odd)
	}
	big := strings.Repeat("x", longstop.MaxEvidenceValue)
	if evidence, odd := parseEvidence([]byte("a=" + big + "\nb=" + big + "\nc=" + big + "\nd=" + big + "\ne=1\n")); len(evidence) != 4 || len(odd) != 1 {
		t.Errorf("%d kept, %q", len(evidence), odd)
	}
}

func TestProgressIsTheLastLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "",
		"\n\r \n":                 "",
		"one\ntwo\n":              "two",
		"10%\r20%\r30%":           "30% 30",
		"copying (42.5%) of 7\n":  "copying (42.5%) of 7 42.5",
		"at 140%\n":               "at 140%",
		"1.2.3%\n":                "1.2.3%",
		"ok\n\x1b[1mbold\n":       "odd",
		"ok\n\xff\n":              "odd",
		strings.Repeat("ä", 2000): strings.Repeat("ä", 100),
		"done\t3/4":               "done 3/4",
	} {
		got := ""
		switch p, odd := parseProgress([]byte(text)); {
		case odd != "":
			got = "odd"
		case p != nil && p.Percent != nil:
			got = fmt.Sprint(p.Line, " ", *p.Percent)
		case p != nil:
			got = p.Line
		}
		if got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

func FuzzEvidence(f *testing.F) {
	f.Add([]byte("revision=4f2c\nschema=42\n"))
	f.Add([]byte("a=1\na=2\n=\n\xff=1\nk=\x00\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		evidence, odd := parseEvidence(data)
		room := 0
		for key, value := range evidence {
			if room += len(key) + len(value); !isKey(key) || !clean(value) {
				t.Errorf("%q=%q", key, value)
			}
		}
		if len(evidence) > longstop.MaxEvidence || room > longstop.MaxEvidenceBytes || len(odd) > maxOddities+1 {
			t.Errorf("%d entries of %d bytes, %d anomalies", len(evidence), room, len(odd))
		}
		if p, _ := parseProgress(data); p != nil && (len(p.Line) > longstop.MaxProgressLine || !clean(p.Line)) {
			t.Errorf("%q", p.Line)
		}
	})
}

func TestEvidenceAndProgressOfARun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`echo revision=4f2c > "$LONGSTOP_EVIDENCE"; echo "step 1 (25%)" > "$LONGSTOP_PROGRESS"
		until [ -e go ]; do sleep 0.01; done; echo schema=42 >> "$LONGSTOP_EVIDENCE"; echo nonsense >> "$LONGSTOP_EVIDENCE"; echo done >> "$LONGSTOP_PROGRESS"`)
	l.submit(sub)
	rec := l.until(sub.RunID, "progress", func(r longstop.Record) bool { return r.Progress != nil })
	if rec.State != longstop.WorkloadRunning || rec.Progress.Line != "step 1 (25%)" || *rec.Progress.Percent != 25 || rec.Progress.At.IsZero() || rec.Evidence["revision"] != "4f2c" {
		t.Errorf("while it runs: %s", show(rec))
	}
	os.WriteFile(l.path("go"), nil, 0600)
	rec = l.final(sub.RunID)
	if !exited(rec, 0) || fmt.Sprint(rec.Evidence) != "map[revision:4f2c schema:42]" || rec.Progress.Line != "done" || len(rec.Anomalies) != 1 || rec.EffectProof != "" {
		t.Errorf("at its end: %s", show(rec))
	}
}

// Links and what is no file lead nowhere, and that is said.
func TestEvidenceFollowsNoLinks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`echo secret=1 > secret; ln -s "$PWD/secret" "$LONGSTOP_EVIDENCE"; mkfifo "$LONGSTOP_PROGRESS"`)
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 0) || rec.Evidence != nil || rec.Progress != nil || len(rec.Anomalies) != 2 {
		t.Errorf("%s", show(rec))
	}
}

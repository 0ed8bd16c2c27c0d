package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRow(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]row{
		"| launch | ssh | 3.00 ms | 4.00 ms | 0.75 | ≤ 1.2 |":          {"launch", "ssh", 3, 4, "ms", "≤ 1.2"},
		"| flushes | conmon | 3.00 flushes | 0.00 flushes | – |  |":    {"flushes", "conmon", 3, 0, "flushes", ""}, // a peer with none of them
		"| flushes waited for |  | 3.96 flushes | – | – | ≤ 4 |":       {what: "flushes waited for", ours: 3.96, unit: "flushes", aim: "≤ 4"},
		"| left | tsp | 0.00 left | 100.00 left | 0.00 |  |":           {"left", "tsp", 0, 100, "left", ""},
		"| speed | `cat` | 1234.57 MB/s | 1000.00 MB/s | 1.23 | ≥ 1 |": {"speed", "`cat`", 1234.567, 1000, "MB/s", "≥ 1"},
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v:\n%s\nwant\n%s", r, got, want)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	if got := join(nil); got != "" {
		t.Errorf("no rows: %q", got)
	}
	r := row{what: "a", ours: 1, unit: "ms"}
	if got, want := join([]row{r, r}), r.String()+"\n"+r.String(); got != want {
		t.Errorf("two rows: %q, want %q", got, want)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   []float64
		want float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{1, 1000, 2}, 2},   // one that is far off changes nothing
		{[]float64{4, 1, 3, 2}, 3},   // of two in the middle, the upper
		{[]float64{2, 2, 2, 0.5}, 2}, // of ours and theirs alike: nobody has the better of it
	} {
		if got := median(slices.Clone(c.of)); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.of, got, c.want)
		}
	}
}

func TestBeside(t *testing.T) {
	t.Parallel()
	peers := []party{{name: "conmon"}, {name: "tsp"}}
	want := []row{{"life", "conmon: as it says", 3, 5, "ms", "≤ 1"}, {"life", "tsp: as it says", 3, 6, "ms", "≤ 1"}}
	if got := beside("life", "as it says", 3, []float64{5, 6}, peers, "≤ 1", "ms"); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := beside("life", "", 3, []float64{5, 6}, peers, "", "ms"); got[1] != (row{"life", "tsp", 3, 6, "ms", ""}) {
		t.Errorf("with nothing to say: %+v", got[1])
	}
}

// Parties are measured in turn, rested before each, the first two rounds for nothing; slow ones less often.
func TestTimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		rounds := map[string]int{}
		last := time.Now()
		ms, err := timed(7, []party{{name: "a"}, {name: "b", slow: true}}, func(p party) (time.Duration, error) {
			if rested := time.Since(last); rested < rest {
				t.Errorf("%s was given %v of rest", p.name, rested)
			}
			last = time.Now()
			order = append(order, p.name)
			rounds[p.name]++
			if p.name == "b" {
				return time.Duration(rounds["b"]) * time.Second, nil
			}
			if rounds["a"] <= 2 {
				return time.Hour, nil // cold
			}
			return time.Duration(rounds["a"]) * time.Millisecond, nil
		})
		if err != nil || !slices.Equal(ms, []float64{6, 2000}) { // 3 to 9 ms; 1 and 2 s
			t.Errorf("medians %v, %v", ms, err)
		}
		if want := []string{"a", "a", "a", "b", "a", "a", "a", "a", "b", "a", "a"}; !slices.Equal(order, want) {
			t.Errorf("in turn: %v, want %v", order, want)
		}
	})
}

// A line is a flush, unless it is about an end, a signal, or the second half of a call.
func TestFlushesIn(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	if got := flushesIn(log); got != 0 {
		t.Errorf("without a log: %v", got)
	}
	content := "12 record.running\n7 fsync(4) = 0\n7 +++ exited with 0 +++\n9 --- SIGCHLD {si_signo=SIGCHLD} ---\n9 fdatasync(5 <unfinished ...>\n9 <... fdatasync resumed>) = 0\n"
	if err := os.WriteFile(log, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := flushesIn(log); got != 3 {
		t.Errorf("flushes: %v, want 3", got)
	}
}

func TestAnsibleJob(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"", "Traceback", `{"started": 0, "results_file": "/x"}`} {
		if _, err := ansibleJob(said); err == nil {
			t.Errorf("%q is taken for a job", said)
		}
	}
	file := filepath.Join(t.TempDir(), "j1.7")
	w, err := ansibleJob(`{"started": 1, "finished": 0, "ansible_job_id": "j1.7", "results_file": "` + file + `"}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"cmd": ["true"], "rc": 0}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.ended(); err != nil {
		t.Error(err)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	if got := rate(3_000_000, 2*time.Second); got != 1.5 {
		t.Errorf("3 MB in 2 s: %v MB/s", got)
	}
}

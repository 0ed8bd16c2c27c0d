package record

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

func TestArrivals(t *testing.T) {
	t.Parallel()
	run := claimed(t, folder(t), "k")
	grow := func(size int64) {
		t.Helper()
		file, err := run.File("stdout", unix.O_RDWR|unix.O_CREAT)
		must(t, err)
		defer file.Close()
		must(t, file.Truncate(size))
	}
	if list, err := run.Arrivals("stdout"); err != nil || len(list) > 0 {
		t.Errorf("of a stream that is not there: %v, %v", list, err)
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		after := func(d time.Duration) longstop.Time { return longstop.At(begun.Add(d)) }
		a := run.NoteArrivals("stdout", 0)
		a.Came(0)
		time.Sleep(50 * time.Millisecond)
		a.Came(10)
		grow(20)
		if list, err := run.Arrivals("stdout"); err != nil || len(list) != 1 || list[0].Offset != 0 {
			t.Errorf("what came at once: %v, %v", list, err)
		}
		time.Sleep(60 * time.Millisecond)
		a.Came(20)
		time.Sleep(99 * time.Millisecond)
		a.Came(30)
		a.Close()
		time.Sleep(time.Second)
		grow(40)
		heir := run.NoteArrivals("stdout", 40)
		heir.Came(40)
		defer heir.Close()
		want := []longstop.Arrival{{Offset: 0, At: after(0)}, {Offset: 20, At: after(110 * time.Millisecond)}, {Offset: 40, At: after(1209 * time.Millisecond)}}
		list, err := run.Arrivals("stdout")
		if err != nil || len(list) != len(want) {
			t.Fatalf("%v, want %v; %v", list, want, err)
		}
		for i := range want {
			if !list[i].At.Equal(want[i].At.Time) || list[i].Offset != want[i].Offset {
				t.Errorf("%d: %v, want %v", i, list[i], want[i])
			}
		}
		// A day of a line each tenth of a second is kept in few entries, evenly.
		for i := range int64(864_000) {
			time.Sleep(arrivalStep)
			heir.Came(50 + i)
		}
		if list, err = run.Arrivals("stdout"); err != nil || len(list) > maxArrivals || len(list) < maxArrivals/4 {
			t.Fatalf("%d entries of a day, %v", len(list), err)
		}
		for i := 3; i < len(list)-1; i++ {
			if d := list[i+1].At.Sub(list[i].At.Time); d > 2*heir.every {
				t.Fatalf("nothing for %v at %d of %d", d, i, len(list))
			}
		}
	})
	info, err := os.Stat(run.Path("stdout.times"))
	must(t, err)
	if info.Size() > maxArrivals*arrivalSize {
		t.Errorf("%d bytes", info.Size())
	}
}

// What anybody may have written into the folder is read as far as it makes sense.
func FuzzArrivals(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef!"))
	f.Add(appendArrival(appendArrival(nil, longstop.Arrival{Offset: 1}), longstop.Arrival{Offset: 2}))
	dir := folder(f)
	run := claimed(f, dir, "k")
	must(f, os.WriteFile(run.Path("stdout"), []byte("x"), 0600))
	f.Fuzz(func(t *testing.T, data []byte) {
		must(t, os.WriteFile(run.Path("stdout.times"), data, 0600))
		list, err := run.Arrivals("stdout")
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(list); i++ {
			if list[i].Offset <= list[i-1].Offset {
				t.Fatalf("not in order: %v", list)
			}
		}
		must(t, os.WriteFile(run.Path("stdout.dropped"), data, 0600))
		ranges, err := run.Declared("stdout")
		if err != nil && longstop.CodeOf(err) != longstop.CodeUnreadable {
			t.Fatal(err)
		}
		for i, d := range ranges {
			if d.From < 0 || d.To <= d.From || i > 0 && d.From < ranges[i-1].To {
				t.Fatalf("not in order: %v", ranges)
			}
		}
	})
}

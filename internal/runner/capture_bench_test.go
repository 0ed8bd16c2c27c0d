package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// BenchmarkCapture moves 2 GB of a program's output into a run's file, and has cat(1) move the same: of-cat is
// the ratio of their speeds, each the median of rounds in turn.
func BenchmarkCapture(b *testing.B) {
	for _, bound := range []int64{0, longstop.DefaultOutputMax} {
		b.Run(fmt.Sprintf("bound=%d", bound), func(b *testing.B) {
			b.ReportAllocs()
			var ours, cats []float64
			for b.Loop() {
				for range 3 {
					ours = append(ours, captured(b, bound))
					cats = append(cats, catted(b))
				}
			}
			slices.Sort(ours)
			slices.Sort(cats)
			b.ReportMetric(ours[len(ours)/2], "MB/s")
			b.ReportMetric(cats[len(cats)/2], "cat-MB/s")
			b.ReportMetric(ours[len(ours)/2]/cats[len(cats)/2], "of-cat")
		})
	}
}

const benchBytes = 2 << 30

// writing starts a program that writes so much into a pipe.
func writing(b *testing.B, write int) *exec.Cmd {
	b.Helper()
	out := os.NewFile(uintptr(write), "pipe")
	defer out.Close()
	cmd := exec.Command("head", "-c", fmt.Sprint(benchBytes), "/dev/zero")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return cmd
}

func speed(begun time.Time) float64 { return benchBytes / 1e6 / time.Since(begun).Seconds() }

func captured(b *testing.B, bound int64) float64 {
	b.Helper()
	l := newLab(b)
	defer os.RemoveAll(l.dir)
	sub := l.script("true")
	run, err := l.f.Build(sub)
	if err != nil {
		b.Fatal(err)
	}
	defer run.Close()
	var reads, writes [2]int
	for i := range reads {
		if reads[i], writes[i], err = outputPipe(); err != nil {
			b.Fatal(err)
		}
	}
	c := newCapture(run, reads, longstop.Output{MaxBytes: bound})
	begun := time.Now()
	c.start()
	unix.Close(writes[1])
	cmd := writing(b, writes[0])
	<-c.streams[0].idle
	took := speed(begun)
	cmd.Wait()
	if out := c.end(); out.StdoutBytes != benchBytes || bound == 0 && out.DroppedBytes != 0 {
		b.Fatalf("%+v", out)
	}
	return took
}

func catted(b *testing.B) float64 {
	b.Helper()
	name := filepath.Join(b.TempDir(), "copy")
	defer os.Remove(name)
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	read, write, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	defer read.Close()
	fd, err := unix.FcntlInt(write.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	write.Close()
	if err != nil {
		b.Fatal(err)
	}
	cat := exec.Command("cat")
	cat.Stdin, cat.Stdout = read, file
	begun := time.Now()
	if err := cat.Start(); err != nil {
		b.Fatal(err)
	}
	cmd := writing(b, fd)
	if err := cat.Wait(); err != nil {
		b.Fatal(err)
	}
	took := speed(begun)
	cmd.Wait()
	return took
}

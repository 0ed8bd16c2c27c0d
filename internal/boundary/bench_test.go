package boundary

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

const hundred = `for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 600 & done; done; exec sleep 600`

// BenchmarkKillToEmpty is the stopping of 100 setsid'd processes, from the first KILL until it is
// proven that nothing is left (all of them reaped, too), beside cgroup.kill alone until populated 0, in
// turn, as medians.
func BenchmarkKillToEmpty(b *testing.B) {
	home := testHome(b)
	var bare, cgroup, tree []time.Duration
	for range b.N {
		bare = append(bare, bareKill(b, home))
		cgroup = append(cgroup, killHundred(b, home))
		tree = append(tree, killHundred(b, Home{}))
	}
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2].Microseconds())
	}
	alone := median(bare)
	b.ReportMetric(alone, "bare-µs")
	b.ReportMetric(median(cgroup), "cgroup-µs")
	b.ReportMetric(median(tree), "tree-µs")
	b.ReportMetric(median(cgroup)/alone, "cgroup/bare")
	b.ReportMetric(median(tree)/alone, "tree/bare")
}

func killHundred(b *testing.B, home Home) time.Duration {
	o := own(b, job{Home: home.Dir, Script: hundred})
	for len(o.do("look").Seen) != 101 {
	}
	s := o.do("kill")
	if !s.Empty {
		b.Fatal("not empty")
	}
	o.end()
	return s.Took
}

func bareKill(b *testing.B, home Home) time.Duration {
	c, err := home.Create(longstop.NewRunID())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	cmd := exec.Command("/bin/sh", "-c", hundred)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: c.FD()}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for n := 0; n != 101; {
		procs, _, err := c.Procs()
		if err != nil {
			b.Fatal(err)
		}
		n = len(procs)
	}
	begun := time.Now()
	if err := os.WriteFile(filepath.Join(c.Place().Path, "cgroup.kill"), []byte("1"), 0); err != nil {
		b.Fatal(err)
	}
	if err := c.WaitEmpty(time.Now().Add(10 * time.Second)); err != nil {
		b.Fatal(err)
	}
	took := time.Since(begun)
	cmd.Wait()
	if err := c.Remove(time.Second); err != nil {
		b.Error(err)
	}
	return took
}

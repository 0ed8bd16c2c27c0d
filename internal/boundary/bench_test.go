package boundary

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

const hundred = `for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 600 & done; done; exec sleep 600`

// BenchmarkKillToEmpty is the stopping of 100 setsid'd processes, from the first KILL to proven empty
// (all of them reaped), beside cgroup.kill alone, to populated 0, of the same.
func BenchmarkKillToEmpty(b *testing.B) {
	home := testHome(b)
	var ours, tree, bare time.Duration
	for range b.N {
		bare += bareKill(b, home)
		ours += killHundred(b, home)
		tree += killHundred(b, Home{})
	}
	b.ReportMetric(float64(bare.Microseconds())/float64(b.N), "bare-µs")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "cgroup-µs")
	b.ReportMetric(float64(tree.Microseconds())/float64(b.N), "tree-µs")
	b.ReportMetric(float64(ours)/float64(bare), "cgroup/bare")
	b.ReportMetric(float64(tree)/float64(bare), "tree/bare")
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

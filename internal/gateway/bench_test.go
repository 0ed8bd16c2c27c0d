package gateway_test

import (
	"testing"

	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// BenchmarkRun launches `true` over a warm serve channel and waits until its end is durable; beside
// it, a bare exec of `true` over a warm connection.
func BenchmarkRun(b *testing.B) {
	bench := newBench(b, sshtest.Options{})
	req := script("")
	req.Request.Script, req.Request.Argv = "", []string{"true"}
	bench.wait(bench.run(req).ID)
	b.Run("longstop", func(b *testing.B) {
		flushes := bench.store.Flushes()
		for b.Loop() {
			bench.wait(bench.run(req).ID)
		}
		b.ReportMetric(float64(bench.store.Flushes()-flushes)/float64(b.N), "flushes/op")
	})
	b.Run("accepted", func(b *testing.B) {
		for b.Loop() {
			bench.run(req)
		}
	})
	b.Run("longstop-8", func(b *testing.B) {
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				a, err := bench.Run(b.Context(), req, operator, gateway.Told{})
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := bench.Wait(b.Context(), string(a.ID)); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("exec", func(b *testing.B) {
		link, err := bench.tap.Dialer.Dial(b.Context(), sshlink.Target{Name: bench.server.Alias, SSHConfig: bench.config})
		bench.must(err)
		defer link.Close()
		for b.Loop() {
			if _, err := sshlink.Run(b.Context(), link, "true", nil, 1<<10); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOutput reads a finished run's 64 MB of output; beside it, `cat` of as much over a warm
// connection.
func BenchmarkOutput(b *testing.B) {
	bench := newBench(b, sshtest.Options{})
	const size = 64 << 20
	a := bench.wait(bench.run(script("head -c 67108864 /dev/urandom")).ID)
	b.Run("longstop", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if got := len(bench.output(a.ID, "stdout")); got != size {
				b.Fatalf("%d bytes", got)
			}
		}
	})
	b.Run("cat", func(b *testing.B) {
		hosts, err := bench.Hosts(b.Context())
		bench.must(err)
		link, err := bench.tap.Dialer.Dial(b.Context(), sshlink.Target{Name: bench.server.Alias, SSHConfig: bench.config})
		bench.must(err)
		defer link.Close()
		b.SetBytes(size)
		for b.Loop() {
			if _, err := sshlink.Run(b.Context(), link, "cat "+hosts[0].StateDir+"/runs/"+string(a.RunID)+"/stdout", nil, size+1); err != nil {
				b.Fatal(err)
			}
		}
	})
}

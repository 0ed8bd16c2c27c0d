//go:build hosts

package systemd

import (
	"slices"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

func BenchmarkLiveStart(b *testing.B) {
	kind := live(b, false).kind
	spec := func() Service {
		return Service{Name: ServiceName(longstop.NewRunID()), Argv: []string{"/bin/true"}, StartWithin: 20 * time.Second, StopWithin: time.Second}
	}
	m := live(b, false)
	ways := []struct {
		name  string
		start func() error
		took  []time.Duration
	}{
		{name: "connected", start: func() error { _, err := m.StartService(b.Context(), spec()); return err }},
		{name: "connecting", start: func() error {
			m, err := Connect(b.Context(), kind)
			if err != nil {
				return err
			}
			defer m.Close()
			_, err = m.StartService(b.Context(), spec())
			return err
		}},
		{name: "systemd-run", start: func() error {
			return m.command("systemd-run", "-q", "-p", "Type=exec", "/bin/true").Run()
		}},
	}
	for b.Loop() {
		for i := range ways {
			began := time.Now()
			if err := ways[i].start(); err != nil {
				b.Fatal(err)
			}
			ways[i].took = append(ways[i].took, time.Since(began))
		}
	}
	for _, way := range ways {
		slices.Sort(way.took)
		b.ReportMetric(float64(way.took[len(way.took)/2].Microseconds())/1000, way.name+"-ms")
	}
}

func BenchmarkLiveRead(b *testing.B) {
	m := live(b, false)
	s := service(b, m, "sleep 600")
	mustStart(b, m, s)
	for b.Loop() {
		mustRead(b, m, s.Name)
	}
}

func BenchmarkLiveLook(b *testing.B) {
	live(b, false)
	for b.Loop() {
		Look(b.Context(), "deploy")
	}
}

// Command bench measures Longstop beside its peers, in one run, and prints ratios: absolute times
// belong to a machine, ratios to the product. What a client sees is measured over an SSH server on
// loopback, with a gateway and a home of its own; what happens on a host, on one that is made for it
// (test/rig). It uses the binaries that `make build` leaves in bin.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// row is one line of the table: what, against what, the ratio and the aim.
type row struct {
	what, against string  // against nothing: there is no peer
	ours, theirs  float64 // in unit
	unit          string
	aim           string
}

func (r row) String() string {
	theirs, ratio := "–", "–"
	if r.against != "" {
		theirs = fmt.Sprintf("%.2f %s", r.theirs, r.unit)
	}
	if r.theirs != 0 {
		ratio = fmt.Sprintf("%.2f", r.ours/r.theirs)
	}
	return fmt.Sprintf("| %s | %s | %.2f %s | %s | %s | %s |", r.what, r.against, r.ours, r.unit, theirs, ratio, r.aim)
}

const header = "| what | against | ours | theirs | ratio | aim |\n|---|---|---|---|---|---|"

// options are the command's flags.
type options struct {
	bin, faults, only   string
	rounds              int
	inside              bool
	finished, megabytes int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder with longstop, longstopd and longstop-runner")
	flag.StringVar(&o.faults, "faults", "bin/faults", "the same with fault hooks compiled in, for slow flushes; empty: leave that part out")
	flag.StringVar(&o.only, "only", "", "take one measure alone: latency, throughput, output, flushes or host, or of the host's host/launch, life, end, memory, cancel, flushes, finished or output")
	flag.IntVar(&o.rounds, "n", 60, "rounds of each latency measure; the medians are compared")
	flag.IntVar(&o.finished, "finished", 20000, "finished runs in the folder that is compared with an empty one (docs/benchmarks.md: 100000)")
	flag.IntVar(&o.megabytes, "output", 2048, "MiB of output that are moved on the host")
	flag.BoolVar(&o.inside, "inside", false, "used by itself: measure on this host, a rig's")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	measure := gatewaySide
	if o.inside {
		measure = measureHere
	}
	if err := measure(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// gatewaySide is what is measured from the client's side, over SSH on loopback, and then the host's.
func gatewaySide(ctx context.Context, o options) error {
	there, onHost := strings.CutPrefix(o.only, "host")
	if !onHost {
		if err := overSSH(ctx, o); err != nil || o.only != "" {
			return err
		}
	}
	o.only = strings.TrimPrefix(there, "/")
	return measureOnRig(ctx, o)
}

func overSSH(ctx context.Context, o options) error {
	w, err := newWorld(ctx, o.bin, nil)
	if err != nil {
		return err
	}
	defer w.close()
	fmt.Printf("Server: %s on loopback. Medians of %d rounds, taken in turn.\n\n%s\n", w.server.Software, o.rounds, header)
	for _, measure := range []struct {
		name string
		take func(context.Context, *world, int) ([]row, error)
	}{{"latency", latency}, {"throughput", throughput}, {"output", output}} {
		if o.only != "" && o.only != measure.name {
			continue
		}
		rows, err := measure.take(ctx, w, o.rounds)
		if err != nil {
			return err
		}
		fmt.Println(join(rows))
	}
	if o.faults == "" || o.only != "" && o.only != "flushes" {
		return nil
	}
	rows, err := flushes(ctx, o.faults, o.rounds)
	if err != nil {
		return err
	}
	fmt.Println(join(rows))
	return nil
}

func join(rows []row) string {
	lines := make([]string, len(rows))
	for i, r := range rows {
		lines[i] = r.String()
	}
	return strings.Join(lines, "\n")
}

// Command bench measures Longstop beside its peers, in one run, and prints ratios: absolute times
// belong to a machine, ratios to the product. It uses an SSH server on loopback, a gateway and a
// home of its own, and the binaries that `make build` leaves in bin.
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
	what, against string
	ours, theirs  float64 // in unit; theirs 0: no peer
	unit          string
	aim           string
}

func (r row) String() string {
	ratio := "–"
	if r.theirs != 0 {
		ratio = fmt.Sprintf("%.2f", r.ours/r.theirs)
	}
	theirs := "–"
	if r.theirs != 0 {
		theirs = fmt.Sprintf("%.2f %s", r.theirs, r.unit)
	}
	return fmt.Sprintf("| %s | %s | %.2f %s | %s | %s | %s |", r.what, r.against, r.ours, r.unit, theirs, ratio, r.aim)
}

const header = "| what | against | ours | theirs | ratio | aim |\n|---|---|---|---|---|---|"

func main() {
	bin := flag.String("bin", "bin", "folder with longstop, longstopd and longstop-runner")
	faults := flag.String("faults", "bin/faults", "the same with fault hooks compiled in, for slow flushes; empty: leave that part out")
	only := flag.String("only", "", "take one measure alone: latency, throughput, output or memory")
	n := flag.Int("n", 60, "rounds of each latency measure; the medians are compared")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *bin, *faults, *only, *n); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, faults, only string, n int) error {
	w, err := newWorld(ctx, bin, nil)
	if err != nil {
		return err
	}
	defer w.close()
	fmt.Printf("Server: %s on loopback. Medians of %d rounds, taken in turn.\n\n%s\n", w.server.Software, n, header)
	for _, measure := range []struct {
		name string
		take func(context.Context, *world, int) ([]row, error)
	}{{"latency", latency}, {"throughput", throughput}, {"output", output}, {"memory", memory}} {
		if only != "" && only != measure.name {
			continue
		}
		rows, err := measure.take(ctx, w, n)
		if err != nil {
			return err
		}
		fmt.Println(join(rows))
	}
	if faults == "" || only != "" {
		return nil
	}
	rows, err := flushes(ctx, faults, n)
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

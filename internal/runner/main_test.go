package runner

import (
	"os"
	"testing"
)

// The test binary is also keeper and owner: they are started as /proc/self/exe.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "keeper", "owner", "serve", "version":
			os.Exit(Main(os.Args[1:]))
		case "sweeps":
			os.Exit(testSweeps())
		case "unheard":
			os.Exit(testUnheard(os.Args[2]))
		}
	}
	takeUmask()
	status := m.Run()
	if dir, err := built(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

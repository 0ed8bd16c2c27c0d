package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// writerEnv makes this test binary a process that writes to the database it names until it is
// killed, and says on standard output what Update has said is on the disk.
const writerEnv = "LONGSTOP_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver makes actions of five revisions each, four at a time.
func writeForEver(path string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for w := range 4 {
		go func() {
			for {
				a := newAction(fmt.Sprintf("web-%d", w))
				for revision := range int64(5) {
					a.Revision = revision + 1
					if a.Revision == 5 {
						a.Launch.State = longstop.LaunchRejected
					}
					err := s.Update(context.Background(), func(tx *Tx) error {
						return tx.PutAction(a, []byte("secret of "+a.RunID), entryFor(a, journal.Observed), Raw{"record", []byte(a.ID)})
					})
					if err != nil {
						failed <- err
					}
					fmt.Printf("%s %d\n", a.ID, a.Revision)
				}
			}
		}()
	}
	return <-failed
}

// TestKilledWriter (law 4, intent before effect): what Update returned for is there after SIGKILL
// at any moment, entries and projections agree, and the log goes on where it was.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "home", "longstop.db")
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	acknowledged := map[string]int64{}
	var kept []journal.Head
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		runAndKill(t, path, 20+random.IntN(400), acknowledged)
		s, err := Open(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		head, err := s.Verify(t.Context(), kept...)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		kept = append(kept, head)
		checkReplay(t, s, acknowledged)
		must(t, s.Close())
		if t.Failed() {
			t.Fatalf("after round %d", round)
		}
	}
	t.Logf("%d entries, %d actions acknowledged", kept[len(kept)-1].Size, len(acknowledged))
}

// runAndKill starts a writer, kills it when it has said so many lines, and notes all it said.
func runAndKill(t *testing.T, path string, lines int, acknowledged map[string]int64) {
	t.Helper()
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), writerEnv+"="+path)
	var said strings.Builder
	writer.Stderr = &said
	out, err := writer.StdoutPipe()
	must(t, err)
	must(t, writer.Start())
	n := 0
	for scanner := bufio.NewScanner(out); scanner.Scan(); n++ {
		if n == lines {
			must(t, writer.Process.Kill())
		}
		var id string
		var revision int64
		if _, err := fmt.Sscan(scanner.Text(), &id, &revision); err == nil {
			acknowledged[id] = max(acknowledged[id], revision)
		}
	}
	writer.Wait()
	if n <= lines {
		t.Fatalf("the writer ended by itself after %d lines: %s", n, said.String())
	}
}

// checkReplay holds the projections against the log alone: each action is what its last entry
// left, and nothing acknowledged is missing.
func checkReplay(t *testing.T, s *Store, acknowledged map[string]int64) {
	t.Helper()
	if _, err := s.CheckProjections(t.Context()); err != nil {
		t.Error(err)
	}
	for id, revision := range acknowledged {
		if a, err := s.Action(t.Context(), id); err != nil || a.Revision < revision {
			t.Errorf("%s: revision %d was acknowledged, and %+v is there (%v)", id, revision, a, err)
		}
	}
}

// TestTornWAL: power lost while the write-ahead log was being written leaves some beginning of it,
// perhaps with rubbish after. Any of them opens as a whole number of updates.
func TestTornWAL(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "home", "longstop.db")
	s := open(t, path)
	a := newAction("web-1")
	for i := range 30 {
		a.Revision = int64(i + 1)
		put(t, s, a, journal.Observed, Raw{"record", []byte("as it came")})
	}
	database, err := os.ReadFile(path)
	must(t, err)
	wal, err := os.ReadFile(path + "-wal")
	must(t, err)
	if len(wal) < 100_000 {
		t.Fatalf("the WAL has only %d bytes: it was checkpointed", len(wal))
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	sizes := map[int64]bool{}
	for range 40 {
		// The first fifth has the schema: a database without one is made anew, rightly.
		cut := len(wal)/3 + random.IntN(len(wal)*2/3)
		rubbish := make([]byte, random.IntN(5000))
		for i := range rubbish {
			rubbish[i] = byte(random.Uint32())
		}
		torn := filepath.Join(t.TempDir(), "longstop.db")
		must(t, os.Chmod(filepath.Dir(torn), 0o700))
		must(t, os.WriteFile(torn, database, 0o600))
		must(t, os.WriteFile(torn+"-wal", append(wal[:cut:cut], rubbish...), 0o600))
		s, err := Open(torn)
		if err != nil {
			t.Fatalf("seed %d, cut at %d of %d: %v", seed, cut, len(wal), err)
		}
		head, err := s.Verify(t.Context())
		if err != nil {
			t.Errorf("seed %d, cut at %d of %d: %v", seed, cut, len(wal), err)
		}
		checkReplay(t, s, nil)
		sizes[head.Size] = true
		must(t, s.Close())
	}
	if len(sizes) < 5 {
		t.Errorf("only %d different ends were tried", len(sizes))
	}
}

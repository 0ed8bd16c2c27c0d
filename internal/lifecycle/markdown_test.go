package lifecycle_test

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/states.md")

const statesPage = "../../docs/states.md"

func TestStatesPage(t *testing.T) {
	t.Parallel()
	want := markdown()
	if *update {
		if err := os.WriteFile(statesPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(statesPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/states.md is not what the tables say: go generate ./internal/lifecycle")
	}
	for _, line := range strings.Split(want, "\n") {
		if strings.Count(line, "|") > 2 && strings.Contains(line, "| |") {
			t.Errorf("an empty cell: %s", line)
		}
	}
}

package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A gateway that is killed while it starts is started again; one that ends by itself says why, once.
func TestStartAgainWhenKilled(t *testing.T) {
	for name, c := range map[string]struct{ script, want, fails string }{
		"killed once":    {`[ $(wc -l <tries) -ge 2 ] || kill -KILL $$; echo ready >&3`, "1\n1\n", ""},
		"killed always":  {`kill -KILL $$`, "1\n1\n1\n", "ended before it listened: it was killed"},
		"ends by itself": {`echo 'no such luck'; exit 1`, "1\n", "ended before it listened: no such luck"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			home := Home{Dir: filepath.Join(dir, "home"), Runtime: filepath.Join(dir, "home", "run")}
			script := "#!/bin/sh\ncd " + dir + "\necho 1 >>tries\n" + c.script + "\n"
			if err := os.WriteFile(filepath.Join(dir, "longstopd"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			err := Start(t.Context(), home)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v", err)
			}
			if tries, _ := os.ReadFile(filepath.Join(dir, "tries")); string(tries) != c.want {
				t.Errorf("started %q", tries)
			}
		})
	}
}

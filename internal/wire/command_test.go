package wire

import (
	"strings"
	"testing"
)

func TestParseCommand(t *testing.T) {
	t.Parallel()
	const runner = "/home/u/.local/share/longstop/longstop-runner-0123456789ab"
	if path, verb, err := ParseCommand(Command(runner, VerbServe)); path != runner || verb != VerbServe || err != nil {
		t.Errorf("what a gateway sends: %q %q %v", path, verb, err)
	}
	for _, command := range []string{"", " ", "id", "serve", "serve /bin/r", "bin/r serve", "~/r serve", "/bin/r", "/bin/r ", " /bin/r serve", "/bin/r  serve",
		"/bin/r serve ", "/bin/r serve\n", "/bin/r serve\x00", "/bin/r serve; id", "/bin/r serve id", "/bin/r serve --state-dir /x", "/bin/r\tserve",
		"/bin/../r serve", "/bin//r serve", "/bin/r$(id) serve", "/bin/'r serve", "/bin/r Serve", "/bin/r sérve", "/bin/r -serve", "/bin/r\nserve",
		"exec sh -c 'echo ok'", "sftp-server", "/usr/lib/openssh/sftp-server", "scp -t /tmp", "/bin/r serve|id", "/bin/r ser\u200bve"} {
		if path, verb, err := ParseCommand(command); err == nil {
			t.Errorf("%q was read as %q %q", command, path, verb)
		}
	}
}

// FuzzParseCommand: what is taken is a path and a verb that write the same command again, with nothing
// in it that any shell reads as more than two words.
func FuzzParseCommand(f *testing.F) {
	for _, seed := range []string{"/usr/local/bin/longstop-runner serve", "/bin/r cancel", "exec sh -c 'id'", "/bin/r serve; id", "/bin/../r serve"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) {
		path, verb, err := ParseCommand(command)
		if err != nil {
			return
		}
		if Command(path, verb) != command || verb == "" || path[0] != '/' ||
			strings.ContainsAny(command, "\x00\t\n\r\"'`$\\;&|<>()[]{}*?!~#=%") || strings.Count(command, " ") != 1 || strings.Contains(path, "/../") {
			t.Errorf("%q was read as %q %q", command, path, verb)
		}
	})
}

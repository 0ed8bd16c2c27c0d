package longstop_test

import (
	"io/fs"
	"testing"

	"github.com/longstop/longstop"
)

func TestMachineID(t *testing.T) {
	t.Parallel()
	const one, other = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	const etc, dbus = "/etc/machine-id", "/var/lib/dbus/machine-id"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"neither":       {nil, ""},
		"as written":    {map[string]string{etc: one + "\n", dbus: other + "\n"}, one},
		"no line end":   {map[string]string{etc: one}, one},
		"first boot":    {map[string]string{etc: "uninitialized\n"}, ""},
		"empty":         {map[string]string{etc: ""}, ""},
		"of D-Bus":      {map[string]string{etc: "uninitialized\n", dbus: other + "\n"}, other},
		"D-Bus alone":   {map[string]string{dbus: other}, other},
		"too short":     {map[string]string{etc: one[1:] + "\n"}, ""},
		"no hex":        {map[string]string{etc: "g" + one[1:] + "\n"}, ""},
		"a second line": {map[string]string{etc: one + "\n" + other + "\n"}, one},
	} {
		got := longstop.MachineID(func(path string) ([]byte, error) {
			text, ok := c.files[path]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		})
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

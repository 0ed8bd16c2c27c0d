package api

import (
	"bytes"
	"testing"

	"github.com/longstop/longstop"
)

func TestForced(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, &fake{})
	setup, err := c.ForcedSetup(t.Context(), longstop.EnrolRequest{Name: "web-1", Forced: true, Runner: "/opt/r"})
	if err != nil || setup.User != "deploy" || setup.Runner != "/opt/r" || len(setup.Keys) != 1 || setup.Keys[0].Line != "key of web-1" {
		t.Errorf("%+v, %v", setup, err)
	}
	binary, err := c.Runner(t.Context(), "amd64")
	if err != nil || !bytes.Equal(binary, bytes.Repeat([]byte("\x7fELF"), 1<<18)) {
		t.Errorf("%d bytes, %v", len(binary), err)
	}
	if _, err := c.Runner(t.Context(), "x/../y"); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("of a strange machine: %v", err)
	}
}

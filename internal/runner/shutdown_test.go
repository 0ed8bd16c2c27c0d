package runner

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeBus answers on one connection as a bus does: the line of the handshake, then what it is given.
func fakeBus(t *testing.T, answers ...[]byte) (path string, asked <-chan string) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := listen(int(f.Fd()), "bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.file.Close() })
	said := make(chan string, 1)
	go func() {
		c, err := l.accept()
		if err != nil {
			return
		}
		defer c.close()
		line, _ := readLine(c.file)
		io.WriteString(c.file, "OK 1234\r\n")
		for _, a := range answers {
			c.file.Write(a)
		}
		buf := make([]byte, 4096)
		n, _ := c.file.Read(buf)
		said <- line + "\n" + string(buf[:n])
		io.Copy(io.Discard, c.file)
	}()
	return filepath.Join(dir, "bus"), said
}

// reply is a bus's message of a kind, to the call with that serial.
func dbusReply(kind byte, serial uint32, body []byte) []byte {
	fields := dbusBytes{5, 1, 'u', 0}
	fields.number(serial)
	fields.field(7, 's', "org.freedesktop.DBus")
	message := dbusBytes{'l', kind, 1, 1}
	message.number(uint32(len(body)))
	message.number(99)
	message.number(uint32(len(fields)))
	message = append(message, fields...)
	message.pad(8)
	return append(message, body...)
}

func variant(s string) []byte {
	body := dbusBytes("\x01s\x00")
	body.text(s)
	return body
}

func TestSystemState(t *testing.T) {
	t.Parallel()
	hello, acquired := dbusReply(2, 1, variant(":1.7")), dbusReply(4, 0, variant(":1.7"))
	path, asked := fakeBus(t, hello, acquired, dbusReply(2, 2, variant("stopping")))
	state, err := systemState(path, time.Now().Add(5*time.Second))
	if err != nil || state != "stopping" {
		t.Errorf("%q, %v", state, err)
	}
	if words := <-asked; !strings.Contains(words, "AUTH EXTERNAL 3") || !strings.Contains(words, "BEGIN\r\n") || !strings.Contains(words, "SystemState") {
		t.Errorf("asked %q", words)
	}
	for name, answers := range map[string][][]byte{
		"an error":         {hello, dbusReply(3, 2, variant("no"))},
		"no string":        {dbusReply(2, 2, []byte("\x01u\x00\x00\x01\x00\x00\x00"))},
		"a short body":     {dbusReply(2, 2, variant("stopping")[:9])},
		"another endian":   {bytes.Replace(dbusReply(2, 2, variant("x")), []byte("l"), []byte("B"), 1)},
		"a length like no": {append([]byte{'l', 2, 0, 1}, bytes.Repeat([]byte{0xff}, 12)...)},
	} {
		path, _ := fakeBus(t, answers...)
		if state, err := systemState(path, time.Now().Add(300*time.Millisecond)); err == nil {
			t.Errorf("%s: %q", name, state)
		}
	}
	// Somebody who says nothing is not waited for.
	path, _ = fakeBus(t)
	began := time.Now()
	if _, err := systemState(path, began.Add(100*time.Millisecond)); err == nil || time.Since(began) > 3*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if _, err := systemState("/nowhere/bus", time.Now()); err == nil {
		t.Error("nobody is there")
	}
}

// The bus of this machine, where it has one.
func TestSystemStateHere(t *testing.T) {
	t.Parallel()
	if unix.Access(systemBus, unix.W_OK) != nil || unix.Access("/run/systemd/system", unix.F_OK) != nil {
		t.Skip("no systemd with a bus here")
	}
	if state, err := systemState(systemBus, time.Now().Add(5*time.Second)); err != nil || state == "" || strings.ContainsAny(state, "\x00 \n") {
		t.Errorf("%q, %v", state, err)
	}
}

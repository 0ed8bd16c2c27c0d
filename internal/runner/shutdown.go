package runner

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// systemStopping reports whether systemd is taking the system down, which `systemctl
// is-system-running` calls stopping. Where nobody answers in half a second, it is whether logins are
// refused, which a shutdown does first (pam_nologin(8)). Anything else is no.
//
// It speaks D-Bus itself: an owner proves that nothing is left of a run by having no child, and so
// starts no helpers.
func systemStopping() bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return false
	}
	state, err := systemState(systemBus, time.Now().Add(500*time.Millisecond))
	if err != nil { // the bus goes down before those that are in no unit of systemd's do
		return exists("/run/nologin")
	}
	return state == "stopping"
}

// systemBus is where D-Bus's own specification has it; the bus stays up while systemd does.
const systemBus = "/run/dbus/system_bus_socket"

// systemState reads the service manager's SystemState by way of the bus at a path.
func systemState(path string, deadline time.Time) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	conn := os.NewFile(uintptr(fd), path)
	defer conn.Close()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return "", fmt.Errorf("connect to %s: %w", path, err)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))
	if _, err := io.WriteString(conn, "\x00AUTH EXTERNAL "+uid+"\r\n"); err != nil {
		return "", err
	}
	if line, err := readLine(conn); err != nil || !strings.HasPrefix(line, "OK") {
		return "", fmt.Errorf("%s: not let in: %q, %w", path, line, err)
	}
	calls := []byte("BEGIN\r\n")
	calls = append(calls, dbusCall(1, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")...)
	calls = append(calls, dbusCall(2, "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.DBus.Properties", "Get",
		"org.freedesktop.systemd1.Manager", "SystemState")...)
	if _, err := conn.Write(calls); err != nil {
		return "", err
	}
	return readSystemState(conn)
}

// readLine reads to CR LF, a byte at a time: what follows is of another form.
func readLine(r io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < 1024 {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", err
		}
		if line = append(line, b[0]); strings.HasSuffix(string(line), "\r\n") {
			return string(line[:len(line)-2]), nil
		}
	}
	return "", fmt.Errorf("no end of line")
}

// dbusCall is a method call with string arguments, as the D-Bus specification has it: little endian,
// version 1.
func dbusCall(serial uint32, destination, path, iface, member string, arguments ...string) []byte {
	var body dbusBytes
	for _, a := range arguments {
		body.text(a)
	}
	var fields dbusBytes
	fields.field(1, 'o', path)
	fields.field(2, 's', iface)
	fields.field(3, 's', member)
	fields.field(6, 's', destination)
	if len(arguments) > 0 {
		fields.pad(8)
		fields = append(fields, 8, 1, 'g', 0, byte(len(arguments)))
		fields = append(fields, strings.Repeat("s", len(arguments))...)
		fields = append(fields, 0)
	}
	message := dbusBytes{'l', 1, 0, 1}
	message.number(uint32(len(body)))
	message.number(serial)
	message.number(uint32(len(fields)))
	message = append(message, fields...)
	message.pad(8)
	return append(message, body...)
}

// dbusBytes is D-Bus data being written, at an offset that is a multiple of eight.
type dbusBytes []byte

func (b *dbusBytes) pad(to int) {
	for len(*b)%to != 0 {
		*b = append(*b, 0)
	}
}

func (b *dbusBytes) number(n uint32) {
	b.pad(4)
	*b = binary.LittleEndian.AppendUint32(*b, n)
}

func (b *dbusBytes) text(s string) {
	b.number(uint32(len(s)))
	*b = append(append(*b, s...), 0)
}

func (b *dbusBytes) field(code byte, kind byte, value string) {
	b.pad(8)
	*b = append(*b, code, 1, kind, 0)
	b.text(value)
}

// readSystemState passes over messages until the reply to the call with serial 2: a variant that
// holds a string.
func readSystemState(r io.Reader) (string, error) {
	for {
		var head [16]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", err
		}
		if head[0] != 'l' {
			return "", fmt.Errorf("D-Bus: byte order %q", head[0])
		}
		fields, length := binary.LittleEndian.Uint32(head[12:]), binary.LittleEndian.Uint32(head[4:])
		if fields > 64<<10 || length > 64<<10 {
			return "", fmt.Errorf("D-Bus: a message of %d bytes", fields+length)
		}
		rest := make([]byte, (fields+7)/8*8+length)
		if _, err := io.ReadFull(r, rest); err != nil {
			return "", err
		}
		body := rest[(fields+7)/8*8:]
		const reply = 2
		if head[1] != reply || replySerial(rest[:fields]) != 2 {
			if head[1] == 3 && replySerial(rest[:fields]) == 2 {
				return "", fmt.Errorf("D-Bus: the manager answered with an error")
			}
			continue
		}
		if len(body) < 8 || string(body[:3]) != "\x01s\x00" {
			return "", fmt.Errorf("D-Bus: the answer is no string")
		}
		n := binary.LittleEndian.Uint32(body[4:])
		if uint32(len(body)) < 8+n {
			return "", fmt.Errorf("D-Bus: the answer is short")
		}
		return string(body[8 : 8+n]), nil
	}
}

// replySerial finds the header field REPLY_SERIAL (5), the only one of ours that is a number.
func replySerial(fields []byte) uint32 {
	for at := 0; at+8 <= len(fields); at++ {
		if at%8 == 0 && string(fields[at:at+4]) == "\x05\x01u\x00" {
			return binary.LittleEndian.Uint32(fields[at+4:])
		}
	}
	return 0
}

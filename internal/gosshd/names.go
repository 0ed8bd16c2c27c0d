package gosshd

import (
	"net"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// signalName is a signal as RFC 4254 §6.10 writes it: without SIG.
func signalName(s syscall.Signal) string {
	name := unix.SignalName(s)
	if name == "" {
		return "UNKNOWN@longstop"
	}
	return strings.TrimPrefix(name, "SIG")
}

// connection is the value of SSH_CONNECTION: client's address and port, server's address and port.
func connection(c ssh.ConnMetadata) string {
	var words []string
	for _, addr := range []net.Addr{c.RemoteAddr(), c.LocalAddr()} {
		host, port, err := net.SplitHostPort(addr.String())
		if err != nil {
			host, port = "UNKNOWN", "65535"
		}
		words = append(words, host, port)
	}
	return strings.Join(words, " ")
}

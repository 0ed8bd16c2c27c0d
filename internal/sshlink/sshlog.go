package sshlink

import (
	"strings"
)

// transcript is what ssh logged of one login (LogLevel DEBUG1), read line by line. The lines are
// OpenSSH's own words; those of a server's banner are among them, so nothing after the host key
// was checked is taken from a line that such a banner could forge and that matters to the check.
type transcript struct {
	host, port string   // what ssh connected to
	connected  bool     // TCP
	proxied    bool     // by a jump host or ProxyCommand
	jump       string   // the jump host's name, if by one
	before     string   // the first line that the server said before its banner
	software   string   // the server's
	keyType    string   // of the host key it showed: "ssh-ed25519"
	hostKey    string   // "SHA256:…"
	accepted   string   // fingerprint of the last key that it accepted
	method     string   // that ended the login
	partial    string   // method that it accepted, asking for another
	offered    int      // keys
	certified  []string // files of those that are certificates
	weak       bool     // of an RSA key it would take a signature with SHA-1 alone
	plain      []string
}

func parseLog(text string) transcript {
	var t transcript
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		debug, isDebug := strings.CutPrefix(line, "debug1: ")
		if isDebug {
			t.debug(debug)
		} else if said, ok := plainLine(line); ok {
			t.said(said)
		}
	}
	return t
}

func (t *transcript) facts() Facts {
	f := Facts{Auth: t.method, HostKey: t.hostKey, Server: t.software}
	if t.method == "publickey" || t.method == "hostbased" {
		f.Key = t.accepted
	}
	return f
}

func (t *transcript) debug(line string) {
	switch {
	case strings.HasPrefix(line, "Connecting to "):
		// Connecting to 127.0.0.1 [127.0.0.1] port 22.
		if words := strings.Fields(strings.TrimSuffix(line, ".")); len(words) > 2 {
			t.host, t.port = words[2], words[len(words)-1]
		}
	case strings.HasPrefix(line, "Executing proxy command: "):
		t.proxied = true
		if words := strings.Fields(line); strings.Contains(line, " -W ") { // ProxyJump is ssh -W … NAME
			t.jump = words[len(words)-1]
		}
	case line == "Connection established.":
		t.connected = true
	case strings.HasPrefix(line, "kex_exchange_identification: banner line 0: "):
		t.before = strings.TrimPrefix(line, "kex_exchange_identification: banner line 0: ")
	case strings.Contains(line, "remote software version "):
		_, t.software, _ = strings.Cut(line, "remote software version ")
	case strings.HasPrefix(line, "Server host key: ") && t.hostKey == "":
		// The first: before it nobody but ssh and its configuration could have written one.
		t.keyType, t.hostKey = lastFingerprint(line)
	case strings.HasPrefix(line, "Server host certificate: ") && t.hostKey == "":
		// Server host certificate: TYPE SHA256:…, serial 0 ID "…" CA TYPE SHA256:… valid forever
		line, _, _ = strings.Cut(line, ",")
		t.keyType, t.hostKey = lastFingerprint(line)
	case strings.HasPrefix(line, "Offering public key: "):
		// Offering public key: PATH TYPE SHA256:… explicit
		t.offered++
		if kind, fingerprint := lastFingerprint(line); strings.HasSuffix(kind, "-CERT") {
			path, _, _ := strings.Cut(strings.TrimPrefix(line, "Offering public key: "), " "+kind+" "+fingerprint)
			t.certified = append(t.certified, path+"-cert.pub", path) // IdentityFile's, CertificateFile
		}
	case line == "send_pubkey_test: no mutual signature algorithm":
		t.weak = true
	case strings.HasPrefix(line, "Server accepts key: "):
		_, t.accepted = lastFingerprint(line)
	}
}

func (t *transcript) said(line string) {
	if rest, ok := strings.CutPrefix(line, "Authenticated "); ok {
		method, tail, ok := betweenQuotes(rest)
		switch {
		case !ok:
		case strings.HasPrefix(rest, "to "):
			// Authenticated to h ([127.0.0.1]:22) using "publickey".
			t.method = method
			return
		case strings.Contains(tail, "partial success"):
			// Authenticated using "publickey" with partial success.
			t.partial = method
			return
		}
	}
	t.plain = append(t.plain, line)
}

// lastFingerprint finds "TYPE SHA256:…" in a line that may hold a path with spaces before it.
func lastFingerprint(line string) (kind, fingerprint string) {
	words := strings.Fields(line)
	for i := len(words) - 1; i > 0; i-- {
		if strings.HasPrefix(words[i], "SHA256:") {
			return words[i-1], words[i]
		}
	}
	return "", ""
}

func betweenQuotes(s string) (quoted, rest string, ok bool) {
	_, s, ok = strings.Cut(s, `"`)
	if !ok {
		return "", "", false
	}
	return strings.Cut(s, `"`)
}

// plainLines are the lines of a log meant for people.
func plainLines(text string) []string {
	var plain []string
	for line := range strings.Lines(text) {
		if said, ok := plainLine(strings.TrimRight(line, "\r\n")); ok {
			plain = append(plain, said)
		}
	}
	return plain
}

func plainLine(line string) (string, bool) {
	line = strings.TrimSpace(printable(line))
	switch {
	case line == "", strings.HasPrefix(line, "debug"), strings.HasPrefix(line, "Transferred: "),
		strings.HasPrefix(line, "Bytes per second: "), strings.Trim(line, "@") == "":
		return "", false
	}
	return line, true
}

// printable keeps a line that others wrote from acting on a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

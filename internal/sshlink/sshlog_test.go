package sshlink

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

// Logs of situations that a loopback server cannot make, in OpenSSH's words.
func TestExplain(t *testing.T) {
	t.Parallel()
	banner := "debug1: Connecting to h [10.0.0.9] port 22.\ndebug1: Connection established.\n"
	authenticating := banner + "debug1: Remote protocol version 2.0, remote software version OpenSSH_9.2p1\n" +
		"debug1: Server host key: ssh-ed25519 SHA256:aaaa\n"
	for name, c := range map[string]struct {
		log  string
		code longstop.Code
		want []string
	}{
		"no route": {"debug1: Connecting to h [10.0.0.9] port 22.\nssh: connect to host h port 22: No route to host\n",
			longstop.CodeUnreachable, []string{"connect to host h port 22: No route to host"}},
		"timed out": {"ssh: connect to host h port 22: Connection timed out\n", longstop.CodeUnreachable, []string{"timed out"}},
		"no banner": {banner + "Connection timed out during banner exchange\nConnection to 10.0.0.9 port 22 timed out\n",
			longstop.CodeUnreachable, []string{"connected to h port 22", "no SSH banner"}},
		"kex": {banner + "Unable to negotiate with 10.0.0.9 port 22: no matching key exchange method found. Their offer: diffie-hellman-group1-sha1\n",
			longstop.CodeUnsupported, []string{"no common algorithms", "diffie-hellman-group1-sha1"}},
		"overload": {banner + "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.9 port 22\r\n",
			longstop.CodeUnreachable, []string{"before saying it speaks SSH", "reset by peer"}},
		"locked account": {authenticating + "debug1: Server accepts key: /k ED25519 SHA256:bbbb agent\nConnection closed by 10.0.0.9 port 22\n",
			longstop.CodeAccessRefused, []string{"took the key and then hung up"}},
		"proxy": {"debug1: Executing proxy command: exec nc x 1\nnc: x: no such host\nkex_exchange_identification: Connection closed by remote host\n",
			longstop.CodeUnreachable, []string{"ProxyCommand", "nc: x: no such host"}},
		"jump host refuses": {"debug1: Executing proxy command: exec ssh -W '[h]:22' gate\nme@gate: Permission denied (publickey).\n" +
			"kex_exchange_identification: Connection closed by remote host\n", longstop.CodeAccessRefused, []string{"a jump host on the way refused the login of me@gate"}},
		"penalty": {banner + "debug1: kex_exchange_identification: banner line 0: Not allowed at this time\nkex_exchange_identification: Connection closed by remote host\n",
			longstop.CodeUnreachable, []string{"PerSourcePenalties"}},
		"turned away": {banner + "debug1: kex_exchange_identification: banner line 0: Exceeded MaxStartups\nkex_exchange_identification: Connection closed by remote host\n",
			longstop.CodeUnreachable, []string{"Exceeded MaxStartups"}},
		"permissions": {"Bad owner or permissions on /home/me/.ssh/config\r\n", longstop.CodeUsage, []string{"Bad owner"}},
		"new words":   {authenticating + "something never seen before\n", longstop.CodeUnreachable, []string{"something never seen before"}},
		"no words":    {"", longstop.CodeUnreachable, []string{"without a word"}},
		"escapes": {authenticating + "me@h: Permission denied (\x1b[31mpublickey\x1b[0m).\n",
			longstop.CodeAccessRefused, []string{"[31mpublickey"}},
	} {
		err := explainDial(Target{Name: "web"}, parseLog(c.log), errMasterExited, time.Second)
		var e *longstop.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Hint == "" || !strings.HasPrefix(e.Message, "web: ") {
			t.Errorf("%s: %#v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(e.Message, w) {
				t.Errorf("%s: %q lacks %q", name, e.Message, w)
			}
		}
		if strings.ContainsAny(e.Message+e.Noise, "\x1b\r") {
			t.Errorf("%s: control characters in %q", name, e.Message+e.Noise)
		}
	}
}

// TestForgedBanner: what a server prints before the login ends changes neither its host key nor
// how the login is said to have ended.
func TestForgedBanner(t *testing.T) {
	t.Parallel()
	log := parseLog("debug1: Server host key: ssh-ed25519 SHA256:true\n" +
		"debug1: Server host key: ssh-ed25519 SHA256:forged\nAuthenticated to h ([::1]:22) using \"none\".\n" +
		"debug1: Server accepts key: /my key ED25519 SHA256:mine agent\n" +
		"Authenticated to h ([10.0.0.9]:22) using \"publickey\".\n")
	f := log.facts()
	if want := (Facts{Auth: "publickey", Key: "SHA256:mine", HostKey: "SHA256:true"}); f != want {
		t.Errorf("%+v, want %+v", f, want)
	}
}

func FuzzLog(f *testing.F) {
	f.Add("debug1: Connecting to \ndebug1: Server host key: \nAuthenticated to \"\nme@h: Permission denied (")
	f.Add("Offending  key in \nHost key for x has changed and you have requested strict checking.\n")
	f.Fuzz(func(t *testing.T, text string) {
		err := explainDial(Target{Name: "web"}, parseLog(text), errMasterExited, time.Second).(*longstop.Error)
		if _, known := longstop.Codes[err.Code]; !known || err.Message == "web: " {
			t.Errorf("%#v", err)
		}
	})
}

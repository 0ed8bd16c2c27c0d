package sshlink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// explainDial says why ssh could not log in, from what it logged.
func explainDial(to Target, t transcript, cause error, waited time.Duration) error {
	e := &longstop.Error{Code: longstop.CodeUnreachable, Noise: clip(strings.Join(t.plain, "\n"))}
	say := func(format string, args ...any) { e.Message = to.Name + ": " + fmt.Sprintf(format, args...) }
	if t.host != "" && !t.proxied && t.software == "" {
		if line, ok := t.find(beforeBannerSigns); ok {
			_, why, _ := strings.Cut(line, ": ")
			message, hint, err := beforeBanner(to, t.before, why)
			say("%s", message)
			e.Hint, e.Err = hint, err
			return e
		}
	}
	for _, rule := range troubles {
		if line, ok := t.find(rule.sign); ok {
			e.Code = rule.code
			message, hint := rule.say(to, t, line)
			if rule.code == longstop.CodeUnreachable && t.tookKey() {
				e.Code, message, hint = longstop.CodeAccessRefused, "the server took the key and then hung up: "+line, lockedHint
			}
			say("%s", message)
			e.Hint = hint
			return e
		}
	}
	switch {
	case errors.Is(cause, context.Canceled):
		say("connecting was given up")
		e.Err = cause
	case errors.Is(cause, errMasterExited) && len(t.plain) > 0:
		say("%s", t.plain[len(t.plain)-1])
		e.Hint = "see: " + to.Command("-v") + " true"
	case errors.Is(cause, errMasterExited):
		say("ssh ended without a word")
		e.Hint = "see: " + to.Command("-v") + " true"
	default:
		say("%s in %v", t.stage(), waited.Round(100*time.Millisecond))
		e.Hint = "see: " + to.Command("-v") + " true"
		if !errors.Is(cause, context.DeadlineExceeded) {
			e.Err = cause
		}
	}
	return e
}

// stage is what did not happen, for a login that took too long.
func (t *transcript) stage() string {
	switch {
	case t.method != "":
		return "logged in, but ssh did not open its control socket"
	case t.hostKey != "":
		return "the host key was good, but the login did not end"
	case t.software != "":
		return "the server answered, but the key exchange did not end"
	case t.connected:
		return fmt.Sprintf("connected to %s port %s, but no SSH banner came", t.host, t.port)
	case t.proxied:
		return "no answer through the jump host or ProxyCommand"
	case t.host != "":
		return fmt.Sprintf("no connection to %s port %s", t.host, t.port)
	}
	return "ssh did not begin to connect"
}

// trouble is one kind of failed login: a sign of it in ssh's words, and what to say.
type trouble struct {
	sign []string // any of these, within one line
	code longstop.Code
	say  func(to Target, t transcript, line string) (message, hint string)
}

// find returns the first line that has a sign.
func (t *transcript) find(signs []string) (string, bool) {
	for _, line := range t.plain {
		for _, sign := range signs {
			if strings.Contains(line, sign) {
				return line, true
			}
		}
	}
	return "", false
}

var beforeBannerSigns = []string{"kex_exchange_identification: "}

// troubles are tried in order: the more telling first, since ssh says several things at once.
var troubles = []trouble{
	{[]string{"REVOKED HOST KEY DETECTED", "is marked as revoked"}, longstop.CodeHostKeyChanged, sayRevoked},
	{[]string{"REMOTE HOST IDENTIFICATION HAS CHANGED", "has changed and you have requested strict checking"}, longstop.CodeHostKeyChanged, sayChanged},
	{[]string{"host key is known for", "Host key verification failed"}, longstop.CodeHostKeyUnknown, sayUnknown},
	{[]string{"Too many authentication failures"}, longstop.CodeAccessRefused, sayTooMany},
	{[]string{"Permission denied ("}, longstop.CodeAccessRefused, sayRefused},
	{[]string{"Could not resolve hostname"}, longstop.CodeUnreachable, func(to Target, t transcript, line string) (string, string) {
		return strings.TrimPrefix(line, "ssh: "), "check the name, and what " + to.Command("-G") + " says of it"
	}},
	{[]string{"Unable to negotiate with", "no matching host key type", "no matching key exchange"}, longstop.CodeUnsupported, func(to Target, t transcript, line string) (string, string) {
		return "no common algorithms: " + line, theirsHint
	}},
	{[]string{"Connection timed out during banner exchange", "banner exchange: Connection to"}, longstop.CodeUnreachable, func(to Target, t transcript, line string) (string, string) {
		return fmt.Sprintf("connected to %s port %s, but no SSH banner came in time", t.host, t.port), "is that an SSH server? See: " + to.Command("-v") + " true"
	}},
	{[]string{"connect to host", "connect to address"}, longstop.CodeUnreachable, func(to Target, t transcript, line string) (string, string) {
		return strings.TrimPrefix(line, "ssh: "), nobodyThere(to)
	}},
	{beforeBannerSigns, longstop.CodeUnreachable, sayNoWay},
	{[]string{"Bad configuration option", "Bad owner or permissions", "Can't open user config file", "bad configuration options"}, longstop.CodeUsage, func(to Target, t transcript, line string) (string, string) {
		return "ssh does not take its configuration: " + line, "mend it, then see: " + to.Command("-G")
	}},
	{[]string{"Connection closed by", "Connection reset by", "Received disconnect from", "Disconnected from"}, longstop.CodeUnreachable, sayHungUp},
}

// nobodyThere is the hint for a server that did not take the connection.
func nobodyThere(to Target) string {
	return "is an SSH server running there, on that port, and the network up? See: " + to.Command("-v") + " true"
}

func sayRevoked(to Target, t transcript, line string) (string, string) {
	return fmt.Sprintf("the host key is marked as revoked%s", t.keyWords()), "do not connect before you know why"
}

func sayChanged(to Target, t transcript, line string) (string, string) {
	kind, fingerprint := t.keyType, t.hostKey
	message := "the host key has changed" + keyWords(kind, fingerprint)
	if t.atJump() {
		_, sent, _ := strings.Cut(strings.Join(t.plain, "\n"), "sent by the remote host is\n")
		sent, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimSpace(sent), "."), "\n")
		message = fmt.Sprintf("the host key of the jump host %s has changed (%s)", t.hopIn("Host key for ", " has changed"), strings.TrimSuffix(sent, "."))
	}
	if where, ok := t.find([]string{"Offending "}); ok {
		_, where, _ = strings.Cut(where, " key in ")
		message += fmt.Sprintf("; %s has another", where)
	}
	hint := "if that is right: ssh-keygen -R " + to.Name + ", then connect once with " + to.Command()
	if remove, ok := t.find([]string{"ssh-keygen -f "}); ok {
		hint = "if that is right: " + strings.TrimSpace(remove) + ", then connect once with " + to.Command()
	}
	return message, hint + "; if not, somebody may be in between"
}

func sayUnknown(to Target, t transcript, line string) (string, string) {
	if t.atJump() {
		return fmt.Sprintf("the host key of the jump host %s is not known", t.hopIn("host key is known for ", " and you")),
			"check it, then connect once with " + Target{Name: t.jump, SSHConfig: to.SSHConfig}.Command()
	}
	return "the host key is not known" + t.keyWords(), unknownKeyHint(to, t.host, t.port)
}

// atJump reports whether a jump host's ssh failed: it logs less, and fails first.
func (t *transcript) atJump() bool { return t.jump != "" && t.hostKey == "" }

// hopIn is the jump host that a line names between the two texts: of several, the one that it is about.
func (t *transcript) hopIn(before, after string) string {
	if line, ok := t.find([]string{before}); ok {
		_, hop, _ := strings.Cut(line, before)
		if hop, _, ok := strings.Cut(hop, after); ok && hop != t.jump {
			return fmt.Sprintf("%s (on the way to %s)", hop, t.jump)
		}
	}
	return t.jump + " (or of one on the way to it)"
}

func unknownKeyHint(to Target, host, port string) string {
	hint := "check it, then connect once with " + to.Command()
	if to.SSHConfig != "" || host == "" {
		return hint
	}
	scan := "ssh-keyscan " + host
	if port != "" && port != "22" {
		scan = "ssh-keyscan -p " + port + " " + host
	}
	return "check it, then: " + scan + " >> ~/.ssh/known_hosts, or connect once with " + to.Command()
}

func sayTooMany(to Target, t transcript, line string) (string, string) {
	if t.atJump() {
		return "a jump host gave up: " + line, "name the right key for it in ssh_config: IdentityFile, with IdentitiesOnly yes; see: " +
			Target{Name: t.jump, SSHConfig: to.SSHConfig}.Command("-v") + " true"
	}
	return fmt.Sprintf("the server gave up after %d keys: too many authentication failures", t.offered),
		"name the right key for this host in ssh_config: IdentityFile, with IdentitiesOnly yes"
}

func sayRefused(to Target, t transcript, line string) (string, string) {
	_, methods, _ := strings.Cut(line, "Permission denied (")
	methods = strings.TrimSuffix(methods, ").")
	who := strings.TrimSuffix(line[:strings.Index(line, "Permission denied (")], ": ")
	switch {
	case t.atJump():
		return fmt.Sprintf("a jump host on the way refused the login of %s (it takes %s)", who, methods),
			"is the key in its authorized_keys, and the account open? See: " + Target{Name: t.jump, SSHConfig: to.SSHConfig}.Command("-v") + " true"
	case t.partial != "":
		return fmt.Sprintf("the server took %s and asks for more (%s), which nobody is here to answer", t.partial, methods),
			"allow this key to log in alone"
	case t.weak:
		return weakWords(who), weakHint
	case t.offered == 0:
		return fmt.Sprintf("the login of %s was refused: no key was offered; the server takes %s", who, methods),
			"unlock the key (ssh-add), or name it in ssh_config (IdentityFile); see: " + to.Command("-v") + " true"
	}
	message, hint := doubts(t.certified, time.Now())
	return fmt.Sprintf("the login of %s was refused (%d %s offered; the server takes %s)", who, t.offered, plural(t.offered, "key", "keys"), methods) + message,
		join("is the key in the host's authorized_keys, and the account open? See: "+to.Command("-v")+" true", hint)
}

func sayNoWay(to Target, t transcript, line string) (string, string) {
	return "the jump host or ProxyCommand gave no connection: " + t.plain[0], "see: " + to.Command("-v") + " true"
}

func sayHungUp(to Target, t transcript, line string) (string, string) {
	return line, "see: " + to.Command("-v") + " true"
}

// tookKey reports whether the login ended after the server had accepted a key, as sshd ends it where PAM
// refuses the account.
func (t *transcript) tookKey() bool { return t.hostKey != "" && t.method == "" && t.accepted != "" }

const lockedHint = "the account may be locked or expired; the server's own log says why"

func weakWords(who string) string {
	return fmt.Sprintf("the login of %s was refused: of an RSA key the server takes no signature but one with SHA-1, which is not given", who)
}

const theirsHint = "allow one of theirs for this host in ssh_config, if you must"

const weakHint = "log in with another kind of key (ssh-keygen -t ed25519), or have the server's SSH renewed"

func (t *transcript) keyWords() string { return keyWords(t.keyType, t.hostKey) }

func keyWords(kind, fingerprint string) string {
	if fingerprint == "" {
		return ""
	}
	return fmt.Sprintf(" (%s %s)", kind, fingerprint)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// clip bounds what is kept of others' words: the end, where ssh says what went wrong.
func clip(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-most:], "")
}

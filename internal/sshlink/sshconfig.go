package sshlink

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kevinburke/ssh_config"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// resolveHere reads ssh_config without ssh. What the parser does not know, such as Match exec, is
// an error: a setting that was meant to hold must not be passed over.
func resolveHere(to Target) (settings, error) {
	name, userName, port, err := splitName(to.Name)
	if err != nil {
		return nil, err
	}
	s := settings{}
	for _, path := range configFiles(to) {
		if err := s.read(path, to.SSHConfig != "", name); err != nil {
			return nil, &longstop.Error{Code: longstop.CodeUsage,
				Message: fmt.Sprintf("%s: %s cannot be read without an ssh binary", to.Name, path),
				Hint:    "give the host a file of its own (--ssh-config), or install OpenSSH's client", Err: err}
		}
	}
	prefer := func(key string, values ...string) {
		for _, v := range values {
			if v != "" && s.first(key) == "" {
				s[key] = []string{v}
			}
		}
	}
	if userName != "" {
		s["user"] = []string{userName}
	}
	if port != "" {
		s["port"] = []string{port}
	}
	if me, err := user.Current(); err == nil {
		prefer("user", me.Username)
	}
	prefer("port", "22")
	prefer("hostname", name)
	s["hostname"] = []string{strings.NewReplacer("%h", name, "%%", "%").Replace(s.first("hostname"))}
	prefer("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
	prefer("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
	if len(s["identityfile"]) == 0 {
		s["identityfile"] = []string{"~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ecdsa_sk", "~/.ssh/id_ed25519", "~/.ssh/id_ed25519_sk"}
	}
	return s, nil
}

// embeddedKeys are the settings that the embedded transport follows, or refuses.
var embeddedKeys = []string{"HostName", "Port", "User", "IdentityFile", "IdentitiesOnly", "IdentityAgent",
	"UserKnownHostsFile", "GlobalKnownHostsFile", "HostKeyAlias", "ProxyJump", "ProxyCommand"}

func (s settings) read(path string, must bool, name string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return nil
	} else if err != nil {
		return err
	}
	config, err := ssh_config.DecodeBytes(data)
	if err == nil {
		err = matchesHost(path, data, 0)
	}
	if err != nil {
		return err
	}
	for _, key := range embeddedKeys {
		values, err := config.GetAll(name, key)
		if err != nil {
			return err
		}
		key = strings.ToLower(key)
		s[key] = append(s[key], values...)
	}
	return nil
}

// matchesHost refuses Match host, which the parser would hold against the name that was given, and ssh against
// what HostName makes of it.
func matchesHost(path string, data []byte, depth int) error {
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(strings.ToLower(line))
		switch {
		case len(words) > 1 && words[0] == "match" && words[1] == "host":
			return fmt.Errorf("%s: %q is not followed", path, strings.TrimSpace(line))
		case len(words) < 2 || words[0] != "include" || depth > 5:
			continue
		}
		for _, pattern := range strings.Fields(line)[1:] {
			if pattern = (settings{}).expand(pattern); !filepath.IsAbs(pattern) {
				pattern = filepath.Join((settings{}).expand("~/.ssh"), pattern)
			}
			included, _ := filepath.Glob(pattern) // the parser has judged it
			for _, file := range included {
				text, err := os.ReadFile(file)
				if err == nil {
					err = matchesHost(file, text, depth+1)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func configFiles(to Target) []string {
	if to.SSHConfig != "" {
		return []string{to.SSHConfig}
	}
	home, _ := os.UserHomeDir()
	return []string{filepath.Join(home, ".ssh", "config"), "/etc/ssh/ssh_config"}
}

// splitName takes host, user@host and ssh://[user@]host[:port] apart.
func splitName(target string) (host, userName, port string, err error) {
	if strings.HasPrefix(target, "ssh://") {
		u, err := url.Parse(target)
		if err != nil || u.Hostname() == "" {
			return "", "", "", &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("%q is not a host's name", target), Err: err}
		}
		return u.Hostname(), u.User.Username(), u.Port(), nil
	}
	if at := strings.LastIndexByte(target, '@'); at >= 0 {
		return target[at+1:], target[:at], "", nil
	}
	return target, "", "", nil
}

// knownHosts reads the files of known host keys that exist. ssh -G writes a list without quotes, so
// a whole value that is a file is one, spaces included.
func (s settings) knownHosts() (*knownhosts.HostKeyDB, error) {
	var files []string
	for _, key := range []string{"userknownhostsfile", "globalknownhostsfile"} {
		paths := []string{s.first(key)}
		if !isFile(s.expand(paths[0])) {
			paths = strings.Fields(paths[0])
		}
		for _, path := range paths {
			if path = s.expand(path); isFile(path) {
				files = append(files, path)
			}
		}
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return nil, &longstop.Error{Code: longstop.CodeUsage, Message: "read the known host keys", Err: err,
			Hint: "mend the line it names"}
	}
	return db, nil
}

// hostKeyAlgorithms asks a server for one of the keys that are known of it. What an authority has
// signed may be of any kind, not only the authority's own.
func hostKeyAlgorithms(known *knownhosts.HostKeyDB, name string) []string {
	var algorithms []string
	for _, key := range known.HostKeys(name) {
		if key.Cert {
			algorithms = []string{ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01,
				ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01}
			break
		}
	}
	for _, a := range known.HostKeyAlgorithms(name) {
		if !slices.Contains(algorithms, a) && a != ssh.KeyAlgoRSA && a != ssh.CertAlgoRSAv01 { // SHA-1
			algorithms = append(algorithms, a)
		}
	}
	if len(algorithms) == 0 {
		return ssh.SupportedAlgorithms().HostKeys
	}
	return algorithms
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// agentSocket is where the agent listens, or "".
func (s settings) agentSocket() string {
	switch v := s.first("identityagent"); {
	case v == "" || v == "SSH_AUTH_SOCK":
		return os.Getenv("SSH_AUTH_SOCK")
	case v == "none":
		return ""
	case strings.HasPrefix(v, "$"):
		return os.Getenv(strings.Trim(v[1:], "{}"))
	default:
		return s.expand(v)
	}
}

// expand replaces ~ and the tokens of ssh_config(5) that paths use.
func (s settings) expand(path string) string {
	home, _ := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(home, rest)
	}
	if !strings.Contains(path, "%") {
		return path
	}
	local := ""
	if me, err := user.Current(); err == nil {
		local = me.Username
	}
	return strings.NewReplacer("%%", "%", "%d", home, "%u", local, "%r", s.first("user"), "%h", s.first("hostname"), "%p", s.first("port")).Replace(path)
}

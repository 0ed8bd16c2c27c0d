package sshlink

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Identity is a public key that a login would be tried with.
type Identity struct {
	Key         string // as authorized_keys has it: type and base64, without a comment
	Fingerprint string // "SHA256:…"
	From        string // the file, or "the agent"
}

// Login is as whom, and with which public keys, ssh would log in to a target.
type Login struct {
	User string
	Keys []Identity // in the order in which ssh offers them
}

// Login reads the target's configuration (ssh -G) and asks the agent. Private keys stay where they are:
// a key file without its .pub beside it, or the agent, is not known.
func (d *OpenSSH) Login(ctx context.Context, to Target) (Login, error) {
	if err := checkName(to.Name); err != nil {
		return Login{}, err
	}
	path, err := d.find()
	if err != nil {
		return Login{}, err
	}
	s, err := resolveBySSH(ctx, path, to)
	if err != nil {
		return Login{}, err
	}
	return s.login(ctx), nil
}

// Login is OpenSSH.Login for the last hop of the route.
func (d *Embedded) Login(ctx context.Context, to Target) (Login, error) {
	if err := checkName(to.Name); err != nil {
		return Login{}, err
	}
	hops, err := d.hops(ctx, to)
	if err != nil {
		return Login{}, err
	}
	return hops[len(hops)-1].login(ctx), nil
}

// login lists the keys in ssh's order: those that the agent holds, the configured ones first, and only
// then those that are in files alone.
func (s settings) login(ctx context.Context) Login {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout) // an agent may hang
	defer cancel()
	held := agentKeys(ctx, s.agentSocket())
	var first, last []Identity
	configured := map[string]bool{}
	for _, path := range s["identityfile"] {
		path = s.expand(path)
		key := publicOf(path)
		if key == nil {
			continue
		}
		configured[string(key.Marshal())] = true
		if slices.ContainsFunc(held, func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), key.Marshal()) }) {
			first = append(first, identity(key, path+", held by the agent"))
		} else {
			last = append(last, identity(key, path))
		}
	}
	if !strings.EqualFold(s.first("identitiesonly"), "yes") {
		for _, key := range held {
			if !configured[string(key.Marshal())] {
				first = append(first, identity(key, "the agent"))
			}
		}
	}
	return Login{User: s.first("user"), Keys: append(first, last...)}
}

// publicOf is the public key of a key file, which IdentityFile may also name itself.
func publicOf(path string) ssh.PublicKey {
	for _, file := range []string{path + ".pub", path} {
		switch key := readPublic(file).(type) {
		case nil:
		case *ssh.Certificate:
			return key.Key
		default:
			return key
		}
	}
	return nil
}

func identity(key ssh.PublicKey, from string) Identity {
	return Identity{Key: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), Fingerprint: fingerprint(key), From: from}
}

// agentKeys are the plain keys that an agent holds; none where there is no agent.
func agentKeys(ctx context.Context, socket string) (keys []ssh.PublicKey) {
	if socket == "" {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	list, _ := agent.NewClient(struct{ io.ReadWriter }{conn}).List() // an agent that does not answer has no keys to offer
	for _, held := range list {
		key, err := ssh.ParsePublicKey(held.Blob)
		if _, certificate := key.(*ssh.Certificate); err == nil && !certificate {
			keys = append(keys, key)
		}
	}
	return keys
}

package sshlink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// keyring offers keys to a server in ssh's order: those of IdentityFile first, by file or by the
// agent that holds them, then the agent's others unless IdentitiesOnly is set.
type keyring struct {
	hop   settings
	agent net.Conn // nil: none
	stop  func() bool

	offered   int
	certified []string // files of those that are certificates
	locked    []string // files whose passphrase nobody is here to type
	signed    string   // fingerprint of the key that signed last: the one the server accepted
}

func openKeyring(ctx context.Context, hop settings) *keyring {
	k := &keyring{hop: hop}
	if path := hop.agentSocket(); path != "" {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
			k.agent = conn
			k.stop = context.AfterFunc(ctx, func() { conn.Close() }) // an agent may ask a person, who is away
		}
	}
	return k
}

func (k *keyring) close() {
	if k.agent != nil {
		k.stop()
		k.agent.Close()
	}
}

func (k *keyring) signers() ([]ssh.Signer, error) {
	var held []ssh.Signer
	if k.agent != nil {
		held, _ = agent.NewClient(struct{ io.ReadWriter }{k.agent}).Signers() // without an agent the files remain
	}
	var all []ssh.Signer
	for _, path := range k.hop["identityfile"] {
		all = append(all, k.fromFile(k.hop.expand(path), held)...)
	}
	if !strings.EqualFold(k.hop.first("identitiesonly"), "yes") {
		all = append(all, held...)
	}
	return k.once(all), nil
}

// fromFile reads a private key, or finds in the agent the one whose public key is there.
func (k *keyring) fromFile(path string, held []ssh.Signer) []ssh.Signer {
	signer, public := readKey(path)
	if signer == nil && public != nil {
		if signer = find(held, public); signer == nil {
			k.locked = append(k.locked, path)
		}
	}
	if signer == nil {
		return nil
	}
	if cert, ok := readPublic(path + "-cert.pub").(*ssh.Certificate); ok {
		if certified, err := ssh.NewCertSigner(cert, signer); err == nil {
			k.certified = append(k.certified, path+"-cert.pub")
			return []ssh.Signer{certified, signer}
		}
	}
	return []ssh.Signer{signer}
}

// readKey returns a usable key, or the public half of one that is locked or elsewhere.
func readKey(path string) (ssh.Signer, ssh.PublicKey) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, readPublic(path + ".pub")
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err == nil {
		return signer, nil
	}
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) && locked.PublicKey != nil {
		return nil, locked.PublicKey
	}
	if public := readPublic(path + ".pub"); public != nil {
		return nil, public
	}
	return nil, readPublic(path) // IdentityFile may name the public key of one in the agent
}

func readPublic(path string) ssh.PublicKey {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return nil
	}
	return key
}

func find(signers []ssh.Signer, key ssh.PublicKey) ssh.Signer {
	for _, s := range signers {
		if bytes.Equal(s.PublicKey().Marshal(), key.Marshal()) {
			return s
		}
	}
	return nil
}

// once drops repeats, and notes each key that signs.
func (k *keyring) once(signers []ssh.Signer) []ssh.Signer {
	seen := map[string]bool{}
	var kept []ssh.Signer
	for _, s := range signers {
		id := string(s.PublicKey().Marshal())
		if seen[id] {
			continue
		}
		seen[id] = true
		if a, ok := s.(ssh.AlgorithmSigner); ok { // all of x/crypto's are
			kept = append(kept, &noted{a, k})
		}
	}
	k.offered = len(kept)
	return kept
}

// noted is a signer that says so when it signs: a server is asked first whether it takes a key,
// so the one that signs is the one it took.
type noted struct {
	ssh.AlgorithmSigner
	ring *keyring
}

func (n *noted) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	sig, err := n.AlgorithmSigner.SignWithAlgorithm(rand, data, algorithm)
	if err == nil {
		n.ring.signed = fingerprint(n.PublicKey())
	}
	return sig, err
}

// Algorithms are those that the key may sign with: no server is given a signature with SHA-1.
func (n *noted) Algorithms() []string {
	key := n.PublicKey()
	if cert, ok := key.(*ssh.Certificate); ok {
		key = cert.Key
	}
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}

package loopback

import (
	"crypto/ed25519"
	"encoding/pem"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
)

type keys struct{ host, login ssh.Signer }

// makeKeys writes a host key, a login key and the file of keys that may log in.
func (s *Server) makeKeys() (keys, error) {
	var k keys
	var err error
	s.KeyPath = filepath.Join(s.Dir, "id_ed25519")
	if k.host, err = WriteKey(s.hostKeyPath()); err != nil {
		return k, err
	}
	if k.login, err = WriteKey(s.KeyPath); err != nil {
		return k, err
	}
	s.HostKey = k.host.PublicKey()
	s.HostKeyFP = ssh.FingerprintSHA256(s.HostKey)
	s.KeyFP = ssh.FingerprintSHA256(k.login.PublicKey())
	return k, os.WriteFile(s.authorizedPath(), ssh.MarshalAuthorizedKey(k.login.PublicKey()), 0o600)
}

func (s *Server) hostKeyPath() string    { return filepath.Join(s.Dir, "host_ed25519") }
func (s *Server) authorizedPath() string { return filepath.Join(s.Dir, "authorized_keys") }

// WriteKey makes an ed25519 key pair as ssh-keygen does: path and path.pub.
func WriteKey(path string) (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "longstop")
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	return signer, os.WriteFile(path+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o644)
}

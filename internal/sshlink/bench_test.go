package sshlink

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// What a Link costs over x/crypto used directly: `go test -bench . -run xxx`.

// plain is x/crypto without any of this package.
func plain(b *testing.B, s *sshtest.Server) *ssh.Client {
	b.Helper()
	data, err := os.ReadFile(s.KeyPath)
	if err != nil {
		b.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(data)
	if err != nil {
		b.Fatal(err)
	}
	c, err := ssh.Dial("tcp", s.Addr, &ssh.ClientConfig{User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: ssh.FixedHostKey(s.HostKey)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// runner runs a command, its output thrown away.
type runner func(command string) error

func runners(b *testing.B) map[string]runner {
	s := sshtest.Start(b, sshtest.Options{MaxSessions: 100}) // or plain meets refusals at eight
	client := plain(b, s)
	all := map[string]runner{"plain": func(command string) error {
		session, err := client.NewSession()
		if err != nil {
			return err
		}
		defer session.Close()
		session.Stdout = struct{ io.Writer }{io.Discard}
		return session.Run(command)
	}}
	for name, dialer := range transports {
		l, err := dialer(b).Dial(b.Context(), target(s))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		through := func(exec func(context.Context, string) (Channel, error)) runner {
			return func(command string) error {
				ch, err := exec(b.Context(), command)
				if err != nil {
					return err
				}
				defer ch.Close()
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{ch.Stdout()}, make([]byte, 256<<10)); err != nil {
					return err
				}
				if e := ch.Wait(); e.Status != 0 {
					return fmt.Errorf("%+v", e)
				}
				return nil
			}
		}
		all[name], all[name+"-stream"] = through(l.Exec), through(l.Stream)
	}
	return all
}

func BenchmarkExec(b *testing.B) {
	for name, run := range runners(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := run("true"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExecEightAtOnce(b *testing.B) {
	for name, run := range runners(b) {
		b.Run(name, func(b *testing.B) {
			work := make(chan struct{})
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range work {
						if err := run("true"); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			all.Wait()
		})
	}
}

func BenchmarkDownload(b *testing.B) {
	const size = 64 << 20
	for name, run := range runners(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if err := run(fmt.Sprintf("head -c %d /dev/zero", size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

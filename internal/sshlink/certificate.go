package sshlink

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/crypto/ssh"
)

// doubts are what the times of certificates say of a refusal: a message where one does not hold by this machine's
// clock, a hint where it does and may not by the host's. A server says neither.
func doubts(files []string, now time.Time) (message, hint string) {
	for _, file := range files {
		cert, ok := readPublic(file).(*ssh.Certificate)
		if !ok {
			continue
		}
		from, to := time.Unix(int64(min(cert.ValidAfter, math.MaxInt64)), 0), time.Unix(int64(min(cert.ValidBefore, math.MaxInt64)), 0)
		bounded := cert.ValidBefore < math.MaxInt64 // else for ever: ssh.CertTimeInfinity
		clock := now.Format(time.RFC3339)
		switch {
		case now.Before(from):
			return fmt.Sprintf("; the certificate %s is valid from %s on, and the clock here says %s (%v too early)",
				file, from.Format(time.RFC3339), clock, from.Sub(now).Round(time.Second)), "is the clock here right?"
		case bounded && !now.Before(to):
			return fmt.Sprintf("; the certificate %s was valid until %s, and the clock here says %s (%v too late)",
				file, to.Format(time.RFC3339), clock, now.Sub(to).Round(time.Second)), "have the key certified anew"
		case cert.ValidAfter > 0 && bounded:
			hint = fmt.Sprintf("the certificate %s is valid from %s to %s: is the host's clock right?", file, from.Format(time.RFC3339), to.Format(time.RFC3339))
		}
	}
	return "", hint
}

// join is two hints.
func join(first, second string) string {
	if second == "" {
		return first
	}
	return second + "; else: " + first
}

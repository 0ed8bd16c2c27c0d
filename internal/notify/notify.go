// Package notify tells people by the ways that they configured: a webhook, or a command of their own. It
// tells once and says whether the other side took it; when to tell again is the caller's.
package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Webhook tells by a POST of JSON, as described by Standard Webhooks (standardwebhooks.com): the headers
// webhook-id, webhook-timestamp and, with a secret, webhook-signature, an HMAC-SHA256 over all three of
// id, time and body. Redirects are not followed: what is told goes to the one address that was configured.
type Webhook struct {
	URL     string
	Secret  []byte // nil: not signed
	Timeout time.Duration

	client http.Client
}

// NewWebhook makes a webhook. secretFile, if not empty, has the secret: "whsec_" and base64, or any bytes.
func NewWebhook(address, secretFile string, timeout time.Duration) (*Webhook, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return nil, errors.New("the webhook's url is not one of https:// or http://")
	}
	w := &Webhook{URL: address, Timeout: timeout}
	w.client = http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if secretFile == "" {
		return w, nil
	}
	if w.Secret, err = readSecret(secretFile); err != nil {
		return nil, err
	}
	return w, nil
}

// leastSecret is how many bytes a secret has at least.
const leastSecret = 16

func readSecret(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("the webhook's secret: %w", err)
	}
	secret := bytes.TrimSpace(data)
	if encoded, marked := bytes.CutPrefix(secret, []byte("whsec_")); marked {
		if secret, err = base64.StdEncoding.DecodeString(string(encoded)); err != nil {
			return nil, fmt.Errorf("the webhook's secret %s: what follows whsec_ is not base64", name)
		}
	}
	if len(secret) < leastSecret {
		return nil, fmt.Errorf("the webhook's secret %s has %d bytes: want at least %d", name, len(secret), leastSecret)
	}
	return secret, nil
}

// Name names the way.
func (w *Webhook) Name() string { return "webhook" }

// Tell posts a notice. Nil: the other side answered 2xx. An error says nothing of the address, which may
// have a secret in it.
func (w *Webhook) Tell(ctx context.Context, id string, at time.Time, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook's request cannot be made")
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "longstopd")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", stamp)
	if w.Secret != nil {
		req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(w.sign(id, stamp, body)))
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("the webhook: %w", bare(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fmt.Errorf("the webhook answered %d: a redirect is not followed", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode >= 300:
		return fmt.Errorf("the webhook answered %d %s", resp.StatusCode, strings.ToLower(http.StatusText(resp.StatusCode)))
	}
	return nil
}

func (w *Webhook) sign(id, stamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, w.Secret)
	fmt.Fprintf(mac, "%s.%s.", id, stamp)
	mac.Write(body)
	return mac.Sum(nil)
}

// bare is an error without the address that net/http puts before it.
func bare(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		if of.Timeout() {
			return errors.New("no answer in time")
		}
		return of.Err
	}
	return err
}

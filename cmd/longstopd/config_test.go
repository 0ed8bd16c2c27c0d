package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop/internal/client"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	home := client.Home{Dir: t.TempDir()}
	c, err := readConfig(home)
	if r := c.Retention.asGateway(); err != nil || r.Keep != 7*24*time.Hour || r.MaxAge != 180*24*time.Hour || r.Every != time.Hour {
		t.Errorf("without a file: %+v, %v", r, err)
	}
	for text, want := range map[string]string{
		`{"retention": {"keep_days": 0.5}}`:       "",
		`{}`:                                      "",
		`{"retention": {"keep_dais": 1}}`:         `unknown field "keep_dais"`,
		`{"retention": {"keep_days": 0}}`:         "0 < keep_days",
		`{"retention": {"keep_days": 60}}`:        "unread_days",
		`{"retention": {"unread_days": 500}}`:     "max_age_days",
		`{"retention": {"every_s": 0.1}}`:         "every_s",
		`{"retention": {"max_age_days": "long"}}`: "cannot unmarshal",
		`{"escalate": {"webhook": {"url": "https://h.example/x"}, "command": ["/bin/true"]}}`: "",
		`{"escalate": {"webhook": {"url": "ftp://h.example"}}}`:                               "https://",
		`{"escalate": {"webhook": {"url": "h.example"}}}`:                                     "https://",
		`{"escalate": {"webhook": {"url": "https://h.example", "timeout_s": 1e9}}}`:           "timeout_s",
		`{"escalate": {"webhook": {"url": "https://h.example", "secret_file": "s"}}}`:         "absolute",
		`{"escalate": {"webhook": {"url": "https://h.example", "secret_file": "/no/such"}}}`:  "no such file",
		`{"escalate": {"command": []}}`:                                                       "list of arguments",
		`{"escalate": {"command": ["page"]}}`:                                                 "absolute path",
		`{"escalate": {"commands": ["/bin/page"]}}`:                                           "unknown field",
		`{} {}`: "something follows",
		``:      "EOF",
		`{"retention": {"keep_days": 1e300, "unread_days": 1}}`: "0 < keep_days",
	} {
		path := filepath.Join(home.Dir, configName)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readConfig(home)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

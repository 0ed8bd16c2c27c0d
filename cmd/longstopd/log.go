package main

import (
	"os"
	"sync/atomic"

	"github.com/longstop/longstop/internal/redact"
)

// logOutput is where the log goes: standard error, without what is configured as secret. A record is one Write.
type logOutput struct {
	secrets atomic.Pointer[redact.Redactor]
}

func (o *logOutput) Write(record []byte) (int, error) {
	if _, err := os.Stderr.WriteString(o.secrets.Load().Text(string(record))); err != nil {
		return 0, err
	}
	return len(record), nil
}

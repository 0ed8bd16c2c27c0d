package sshlink

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/longstop/longstop"
)

// Result is a command that was run to its end.
type Result struct {
	Stdout, Stderr []byte
	Exit           Exit
}

// Run starts command, feeds it stdin (nil: empty) and reads both streams to their end, each up to
// limit bytes (more is an error). ctx bounds all of it, except reading stdin, which should be a file
// or bytes at hand. For short commands of our own. With an error, Result holds what had come.
func Run(ctx context.Context, link Link, command string, stdin io.Reader, limit int) (Result, error) {
	ch, err := link.Exec(ctx, command)
	if err != nil {
		return Result{}, err
	}
	defer ch.Close()
	stop := context.AfterFunc(ctx, func() { ch.Close() })
	defer stop()
	var all sync.WaitGroup
	if stdin == nil {
		stdin = bytes.NewReader(nil)
	}
	all.Go(func() {
		io.Copy(ch.Stdin(), stdin) // a command need not read it all; its exit says what became of it
		ch.Stdin().Close()
	})
	var stdout, stderr bounded
	all.Go(func() { stdout.readAll(ch, ch.Stdout(), limit) })
	all.Go(func() { stderr.readAll(ch, ch.Stderr(), limit) })
	all.Wait()
	result := Result{Stdout: stdout.data, Stderr: stderr.data, Exit: ch.Wait()}
	switch {
	case ctx.Err() != nil:
		err = &longstop.Error{Code: longstop.CodeTimeout, Message: "the command did not end in time; it may go on", Err: ctx.Err()}
	case stdout.err != nil && stdout.err != errClosed:
		err = stdout.err
	default:
		err = stderr.err
	}
	return result, err
}

// bounded is a stream read to its end, up to a limit.
type bounded struct {
	data []byte
	err  error
}

func (b *bounded) readAll(ch Channel, r io.Reader, limit int) {
	b.data, b.err = io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if len(b.data) > limit {
		b.data = b.data[:limit]
		b.err = fmt.Errorf("the command wrote more than %d bytes", limit)
		ch.Close()
	}
}

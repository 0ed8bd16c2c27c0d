package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// starter is the command that started this daemon and waits on a pipe to hear how it went
// (client.ReadyEnv). Nil: nobody does.
type starter struct{ pipe *os.File }

func takeStarter() *starter {
	fd, err := strconv.Atoi(os.Getenv(client.ReadyEnv))
	os.Unsetenv(client.ReadyEnv)
	if err != nil || fd < 3 {
		return nil
	}
	syscall.CloseOnExec(fd)
	return &starter{os.NewFile(uintptr(fd), "ready")}
}

func (s *starter) say(text string) {
	if s != nil {
		io.WriteString(s.pipe, text)
		s.pipe.Close()
	}
}

func (s *starter) ready() { s.say(client.ReadyWord) }

func (s *starter) failed(err error) {
	problem := &longstop.Error{Code: longstop.CodeInternal, Message: "the gateway could not start: " + err.Error()}
	var known *longstop.Error
	if errors.As(err, &known) {
		problem.Hint = known.Hint
		if longstop.Codes[known.Code].Exit == longstop.ExitOurs { // of a folder or a socket here, not of any host
			problem.Code = known.Code
		}
	}
	text, _ := json.Marshal(problem)
	s.say(string(text))
}

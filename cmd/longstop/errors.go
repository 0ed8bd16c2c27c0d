package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// fail says an error, and what happened to the work, and returns the exit status.
func (a *app) fail(err error) int {
	problem := asError(err)
	code := a.errorStatus(problem)
	if a.json {
		text, _ := json.Marshal(map[string]*longstop.Error{"error": problem})
		fmt.Fprintf(a.out, "%s\n", text)
	}
	a.talk.problem(errorText(problem, a.fate(problem, code)))
	return code
}

// asError finds the *longstop.Error in err and keeps the words wrapped around it.
func asError(err error) *longstop.Error {
	if errors.Is(err, client.ErrAbsent) {
		return &longstop.Error{Code: longstop.CodeInternal, Message: "no gateway runs", Hint: "longstop daemon start"}
	}
	var known *longstop.Error
	switch {
	case errors.As(err, &known):
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &longstop.Error{Code: longstop.CodeInternal, Message: "the gateway does not answer", Hint: "longstop daemon status"}
	case errors.Is(err, client.ErrGone):
		return &longstop.Error{Code: longstop.CodeInternal, Message: err.Error(), Hint: "the same command again; longstop doctor if it stays so"}
	default:
		return &longstop.Error{Code: longstop.CodeInternal, Message: err.Error()}
	}
	told := *known
	told.Message, told.Err = err.Error(), nil
	return &told
}

// errorStatus is the exit status of an error: longstop.Codes for run; for wait of one what it says
// of the outcome; everything else is our own error (254).
func (a *app) errorStatus(e *longstop.Error) int {
	exit, known := longstop.Codes[e.Code]
	switch {
	case !known:
		return longstop.ExitOurs
	case a.rejected && (exit.Exit == longstop.ExitUnknown || e.Code == longstop.CodeVersionMismatch): // of the host's runner
		return longstop.ExitNotStarted
	case a.verb == "run":
		return exit.Exit
	case a.verb == "wait" && (exit.Exit == longstop.ExitUnknown || exit.Exit == longstop.ExitStillRunning):
		return exit.Exit
	}
	return longstop.ExitOurs
}

// fate says what an error of run means for the work.
func (a *app) fate(e *longstop.Error, code int) string {
	switch {
	case a.verb != "run":
		return ""
	case code == longstop.ExitNotStarted || !a.begun || e.Code == longstop.CodeUsage && e.ActionID == "":
		return "Nothing was started."
	case e.ActionID != "":
		return "What became of it: longstop show " + string(e.ActionID)
	}
	return "Whether anything was started is not known here: longstop ps -a"
}

// printed is what an error says was printed instead of an answer: by the host's login shell, or by ssh,
// which did not come that far. Nothing where the message has it already.
func printed(e *longstop.Error) string {
	noise := strings.TrimSpace(e.Noise)
	if noise == "" || strings.Contains(e.Message, strconv.Quote(noise)) || strings.HasSuffix(e.Message, strings.TrimPrefix(noise, "ssh: ")) {
		return ""
	}
	who := "It printed: "
	switch e.Code {
	case longstop.CodeHostKeyUnknown, longstop.CodeHostKeyChanged, longstop.CodeAccessRefused:
		return "" // the message has the facts of it
	case longstop.CodeUnreachable:
		who = "ssh said: "
	}
	return "  " + who + plainLines(noise, "    ") + "\n"
}

// errorText is an error as people see it: what and why, what the other side printed, the next
// command, and what happened to the work.
func errorText(e *longstop.Error, fate string) string {
	var text strings.Builder
	message := strings.TrimSpace(e.Message)
	if message == "" {
		message = string(e.Code)
	}
	if !strings.HasSuffix(message, ".") && !strings.HasSuffix(message, "?") {
		message += "."
	}
	text.WriteString("longstop: " + plainLines(message, "  ") + "\n")
	text.WriteString(printed(e))
	if e.Hint != "" {
		text.WriteString("  " + plainLines(strings.TrimSpace(e.Hint), "  ") + "\n")
	}
	if fate != "" && !strings.Contains(e.Message+e.Hint, fate) {
		text.WriteString("  " + fate + "\n")
	}
	return text.String()
}

func usage(hint, format string, args ...any) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

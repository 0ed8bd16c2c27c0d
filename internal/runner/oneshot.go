package runner

import (
	"context"
	"io"
	"os"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// oneshot answers the one request on in with one frame on stdout, or with several where output flows:
// a verb on a channel of its own.
func oneshot(host *host, verb wire.Verb, in io.Reader, stdout io.Writer) int {
	body, err := io.ReadAll(io.LimitReader(in, wire.DefaultMaxBody+1))
	if err != nil {
		os.Stderr.WriteString("longstop-runner: read the request: " + err.Error() + "\n")
		return exitNoAnswer
	}
	// An answer needs the request's nonce, even one that says that the rest cannot be read.
	var named struct {
		Nonce string `json:"nonce"`
	}
	if err := wire.Tolerant(body, &named); err != nil || !wire.ValidNonce(named.Nonce) {
		os.Stderr.WriteString("longstop-runner " + string(verb) + ": standard input is not a request: it has no nonce of 32 hexadecimal digits\n\n" + usage)
		return exitNoAnswer
	}
	out := &outlet{to: stdout}
	answer := respondOnce(host, verb, named.Nonce, body, out)
	if err := wire.WriteAnswer(out, answer); err != nil {
		os.Stderr.WriteString("longstop-runner " + string(verb) + ": write the answer: " + err.Error() + "\n")
		return exitNoAnswer
	}
	if answer.Error != nil {
		return exitError
	}
	return exitAnswered
}

func respondOnce(host *host, verb wire.Verb, nonce string, body []byte, out *outlet) wire.Answer {
	request, err := decodeRequest(nonce, body)
	if err != nil {
		return failed(nonce, err)
	}
	if request.Verb != verb {
		return failed(nonce, &longstop.Error{Code: longstop.CodeUsage,
			Message: "the request is for the verb " + quoted(string(request.Verb)) + ", the call for " + string(verb)})
	}
	changes := newChanges()
	defer changes.close()
	return host.respond(context.Background(), asked{Request: request}, changes, out)
}

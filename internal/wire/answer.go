package wire

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteAnswer writes an answer as one frame, in one Write call. Body must be JSON already: it is
// copied once and not looked at, so that a megabyte of output is encoded once.
func WriteAnswer(w io.Writer, answer Answer) error {
	body := answer.Body
	answer.Body = nil
	return writeMessage(w, answer.Nonce, answer, body)
}

// WriteRequest writes a request as one frame, as WriteAnswer does.
func WriteRequest(w io.Writer, request Request) error {
	body := request.Body
	request.Body = nil
	return writeMessage(w, request.Nonce, request, body)
}

// EncodeAnswer is json.Marshal of the answer, its Body copied and not looked at.
func EncodeAnswer(answer Answer) ([]byte, error) {
	body := answer.Body
	answer.Body = nil
	envelope, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return appendMessage(nil, envelope, body), nil
}

// bodyLead is what stands before the body in an envelope, whose last field it is.
const bodyLead = `,"body":`

func writeMessage(w io.Writer, nonce string, message any, body []byte) error {
	if !ValidNonce(nonce) {
		return fmt.Errorf("write frame: nonce %q is not 32 hexadecimal digits", nonce)
	}
	envelope, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	length := len(envelope)
	if len(body) > 0 {
		length += len(bodyLead) + len(body)
	}
	if length > limitOfBody {
		return fmt.Errorf("write frame: a body of %d bytes", length)
	}
	frame := make([]byte, 0, maxHeader+length+trailerLen)
	frame = appendHeader(frame, nonce, length)
	frame = appendMessage(frame, envelope, body)
	frame = appendTrailer(frame, nonce)
	_, err = w.Write(frame)
	return err
}

func appendMessage(b, envelope, body []byte) []byte {
	if len(body) == 0 {
		return append(b, envelope...)
	}
	b = append(b, envelope[:len(envelope)-1]...)
	b = append(b, bodyLead...)
	b = append(b, body...)
	return append(b, '}')
}

// DecodeAnswer reads the body of a frame that bore nonce. Unknown fields are passed over; the rest
// is as Strict. The nonce inside must be the frame's, and an answer is final or numbered: a request
// that something echoed back is neither. Errors are *BadFrame. Answer.Body aliases body.
func DecodeAnswer(nonce string, body []byte) (Answer, error) {
	var answer Answer
	if err := Tolerant(body, &answer); err != nil {
		return Answer{}, &BadFrame{Why: err.Error()}
	}
	if answer.Nonce != nonce {
		return Answer{}, &BadFrame{Why: "the answer names another nonce than its frame"}
	}
	if !answer.Final && answer.Number == 0 {
		return Answer{}, &BadFrame{Why: "neither a final nor a numbered answer: something echoes our requests"}
	}
	return answer, nil
}

// DecodeRequest reads the body of a frame that bore nonce, strictly. Its errors are *BadFrame;
// another protocol version is none of them, for the runner can answer that one.
func DecodeRequest(nonce string, body []byte) (Request, error) {
	var request Request
	if err := Strict(body, &request); err != nil {
		return Request{}, &BadFrame{Why: err.Error()}
	}
	if request.Nonce != nonce {
		return Request{}, &BadFrame{Why: "the request names another nonce than its frame"}
	}
	return request, nil
}

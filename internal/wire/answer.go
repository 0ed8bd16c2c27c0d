package wire

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteAnswer writes an answer as one frame: in one Write call, or with Data in three, so that a
// megabyte of output is not copied. Body must be JSON already: it is copied once and not looked at.
func WriteAnswer(w io.Writer, answer Answer) error {
	if len(answer.Data) == 0 {
		return writeWhole(w, answer)
	}
	head, tail, err := AroundData(answer, len(answer.Data))
	if err != nil {
		return err
	}
	for _, part := range [][]byte{head, answer.Data, tail} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// AroundData returns what stands before and behind the data in the frame of an answer that carries
// size bytes of it, for data that need not pass through this process.
func AroundData(answer Answer, size int) (head, tail []byte, err error) {
	if !ValidNonce(answer.Nonce) {
		return nil, nil, fmt.Errorf("write frame: nonce %q is not 32 hexadecimal digits", answer.Nonce)
	}
	body := answer.Body
	answer.Body = nil
	envelope, err := json.Marshal(answer)
	if err != nil {
		return nil, nil, fmt.Errorf("write frame: %w", err)
	}
	message := appendMessage(nil, envelope, body)
	if size <= 0 || len(message)+size > limitOfBody {
		return nil, nil, fmt.Errorf("write frame: %d bytes of data", size)
	}
	head = appendHeader(make([]byte, 0, maxHeader+len(message)), answer.Nonce, len(message), size)
	return append(head, message...), appendTrailer(nil, frameEnd, answer.Nonce), nil
}

// bodyLead is what stands before the body in an envelope, whose last field it is.
const bodyLead = `,"body":`

func writeWhole(w io.Writer, answer Answer) error {
	if !ValidNonce(answer.Nonce) {
		return fmt.Errorf("write frame: nonce %q is not 32 hexadecimal digits", answer.Nonce)
	}
	body := answer.Body
	answer.Body = nil
	envelope, err := json.Marshal(answer)
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
	frame = appendHeader(frame, answer.Nonce, length, 0)
	frame = appendMessage(frame, envelope, body)
	frame = appendTrailer(frame, frameEnd, answer.Nonce)
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
// that something echoed back is neither. Errors are *BadFrame. Answer.Body aliases body; Data is for
// whoever read the frame to add.
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

package wire

import (
	"encoding/json"
)

// DecodeAnswer reads the body of a frame that bore nonce. Unknown fields are passed over; the rest
// is as Strict. The nonce inside must be the frame's, and an answer is final or numbered: the echo
// of our own request is neither. Errors are *BadFrame. Answer.Body aliases body.
func DecodeAnswer(nonce string, body []byte) (Answer, error) {
	var answer Answer
	if err := Tolerant(body, &answer); err != nil {
		return Answer{}, &BadFrame{Why: err.Error()}
	}
	if answer.Nonce != nonce {
		return Answer{}, &BadFrame{Why: "the answer names another nonce than its frame"}
	}
	if !answer.Final && answer.Number == 0 {
		return Answer{}, &BadFrame{Why: "neither a final nor a numbered answer: the echo of a request?"}
	}
	return answer, nil
}

// EncodeAnswer is json.Marshal of answer without a second pass over its Body, which must be JSON
// already: a megabyte of output is encoded once.
func EncodeAnswer(answer Answer) ([]byte, error) {
	return json.Marshal(answer)
}

// Package fastjson writes and reads the words that every run passes around as JSON, without
// reflection: encoding/json looks at each type when it meets it first, which cost a command that
// lives for some milliseconds half of one. What it writes is what encoding/json writes, byte for
// byte, and what it does not understand it leaves to encoding/json. It refuses nothing by itself
// and keeps no rule; strict reading is internal/wire's.
package fastjson

import (
	"encoding/json"

	"github.com/longstop/longstop"
)

//go:generate go run gen.go

// AppendAction appends an action.
func AppendAction(b []byte, a *longstop.Action) []byte { return appendAction(b, a) }

// AppendRun appends a request to run.
func AppendRun(b []byte, r *longstop.RunRequest) []byte { return appendRunRequest(b, r) }

// AppendRecord appends a record.
func AppendRecord(b []byte, r *longstop.Record) []byte { return appendRecord(b, r) }

// ReadAction reads a whole action.
func ReadAction(data []byte) (*longstop.Action, error) {
	return read(data, readAction)
}

func read[T any](data []byte, fill func(*reader, *T)) (*T, error) {
	into := new(T)
	r := &reader{data: data}
	if fill(r, into); r.ended() {
		return into, nil
	}
	into = new(T)
	return into, json.Unmarshal(data, into)
}

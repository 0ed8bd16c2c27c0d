package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// What `longstopd journal` can be asked.
const (
	JournalVerify  = "verify"
	JournalCheck   = "check"
	JournalRebuild = "rebuild"
	JournalExport  = "export"
	JournalShow    = "show"
	JournalBackup  = "backup"
)

// JournalTask is one thing to do with a gateway's journal, by whoever can read its folder.
type JournalTask struct {
	Verb        string             `json:"verb"`
	Checkpoints []string           `json:"checkpoints,omitempty"` // kept elsewhere
	Key         string             `json:"key,omitempty"`         // the journal's, or its fingerprint, had from elsewhere
	Action      string             `json:"action,omitempty"`      // whole, or a part that fits no other
	Session     longstop.SessionID `json:"session,omitempty"`
	From        int64              `json:"from,omitempty"` // an entry's index
	To          int64              `json:"to,omitempty"`   // the index behind the last; 0: to the end
	Folder      string             `json:"folder,omitempty"`
}

// JournalAnswer is what came of it.
type JournalAnswer struct {
	Error    *longstop.Error `json:"error,omitempty"`
	Verified *Verified       `json:"verified,omitempty"`
	OtherKey bool            `json:"other_key,omitempty"` // the key that was given is not the one of the home
	Replayed *Replayed       `json:"replayed,omitempty"`
	Bundle   *journal.Bundle `json:"bundle,omitempty"`
	Entry    []byte          `json:"entry,omitempty"`
	Copied   []string        `json:"copied,omitempty"` // names of files
}

// Verified is a journal that is whole.
type Verified struct {
	Size        int64  `json:"size"` // entries
	Hash        string `json:"hash"`
	Given       int    `json:"checkpoints_given"` // that it was held against
	Kept        int    `json:"checkpoints_kept"`  // of those in the store itself
	Fingerprint string `json:"fingerprint"`       // of the key that signed them
}

// Replayed is what replaying a journal gave.
type Replayed struct {
	Actions int   `json:"actions"` // that it gives
	Earlier int   `json:"earlier"` // that it does not: made by a version whose entries did not say what changed
	From    int64 `json:"from"`    // the first entry that says so

	Hosts     int      `json:"hosts"`
	Tokens    int      `json:"tokens"`
	Approvers int      `json:"approvers"`
	Notices   int      `json:"notices"`          // that people are still to be told
	Partly    []string `json:"partly,omitempty"` // of these: of which earlier versions told not all
}

// Journal has longstopd do a task, in a process of its own and not in the gateway that may be running.
func (h Home) Journal(ctx context.Context, task JournalTask) (answer JournalAnswer, err error) {
	program, err := FindDaemon()
	if err != nil {
		return answer, err
	}
	in, err := json.Marshal(task)
	if err != nil {
		return answer, fmt.Errorf("make the task: %w", err)
	}
	tool := exec.CommandContext(ctx, program, "journal")
	tool.Env = append(os.Environ(), "LONGSTOP_HOME="+h.Dir)
	tool.Stdin, tool.Stderr = bytes.NewReader(in), os.Stderr
	out, err := tool.Output()
	if err != nil {
		return answer, fmt.Errorf("run %s journal: %w", program, err)
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return answer, &longstop.Error{Code: longstop.CodeVersionMismatch, Message: program + " gave no answer that this longstop knows", Err: err, Hint: "longstop version"}
	}
	if answer.Error != nil {
		err = answer.Error
	}
	return answer, err
}

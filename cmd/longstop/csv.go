package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// writeCSV writes rows of cells. Cells hold what agents wrote: none may be taken for a formula by who opens
// it in a spreadsheet, nor for a command by a terminal.
func writeCSV(to io.Writer, rows [][]string) error {
	out := csv.NewWriter(to)
	for _, row := range rows {
		safe := make([]string, len(row))
		for i, cell := range row {
			safe[i] = inert(cell)
		}
		if err := out.Write(safe); err != nil {
			return fmt.Errorf("write CSV: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// inert puts an apostrophe before what a spreadsheet reads as a formula: =, +, - or @, behind white space
// too; a number stays one.
func inert(cell string) string {
	cell = plain(cell)
	start := strings.TrimLeft(cell, " \t\r\n")
	if start == "" || !strings.ContainsRune("=+-@", rune(start[0])) {
		return cell
	}
	if _, err := strconv.ParseInt(cell, 10, 64); err == nil {
		return cell
	}
	return "'" + cell
}

// actionCell is a column of actions in CSV.
type actionCell struct {
	name string
	cell func(*longstop.Action) string
}

var actionCells = []actionCell{
	{"action_id", func(a *longstop.Action) string { return string(a.ID) }},
	{"created_at", func(a *longstop.Action) string { return stampOf(a.CreatedAt) }},
	{"host", func(a *longstop.Action) string { return a.Host }},
	{"session_id", func(a *longstop.Action) string { return string(a.SessionID) }},
	{"requested_by", func(a *longstop.Action) string { return a.RequestedBy.Kind + " " + a.RequestedBy.Name }},
	{"alive", func(a *longstop.Action) string { return string(a.Alive) }},
	{"outcome", func(a *longstop.Action) string { return string(a.Outcome) }},
	{"unknown_because", func(a *longstop.Action) string { return string(a.UnknownBecause) }},
	{"approval", func(a *longstop.Action) string { return string(a.Approval.State) }},
	{"approved_by", func(a *longstop.Action) string { return a.Approval.By }},
	{"launch", func(a *longstop.Action) string { return string(a.Launch.State) }},
	{"ssh_command", func(a *longstop.Action) string { return string(a.SSHCommand.State) }},
	{"ssh_status", func(a *longstop.Action) string { return code(a.SSHCommand.Status) }},
	{"workload", func(a *longstop.Action) string { return string(a.Workload.State) }},
	{"exit_code", func(a *longstop.Action) string {
		if a.Workload.Result == nil {
			return ""
		}
		return code(a.Workload.Result.ExitCode)
	}},
	{"cancel", func(a *longstop.Action) string { return string(a.Cancel.State) }},
	{"left", func(a *longstop.Action) string {
		w := &a.Workload
		return strconv.Itoa(len(w.Left) + len(w.Released) + len(w.Survivors))
	}},
	{"resolved_by", func(a *longstop.Action) string {
		if a.Resolution == nil {
			return ""
		}
		return a.Resolution.By
	}},
	{"said_by", func(a *longstop.Action) string { return a.CompletionSource }},
	{"command", func(a *longstop.Action) string { return command(&a.Request) }},
}

// code is an exit status, or nothing.
func code(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func stampOf(t longstop.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func actionRows(actions []longstop.Action) [][]string {
	rows := [][]string{nil}
	for _, c := range actionCells {
		rows[0] = append(rows[0], c.name)
	}
	for i := range actions {
		var row []string
		for _, c := range actionCells {
			row = append(row, c.cell(&actions[i]))
		}
		rows = append(rows, row)
	}
	return rows
}

func entryRows(entries []longstop.JournalEntry) [][]string {
	rows := [][]string{{"index", "at", "kind", "action_id", "session_id", "run_id", "host", "by", "body"}}
	for _, e := range entries {
		body := ""
		if e.Body != nil {
			text, _ := json.Marshal(e.Body)
			body = string(text)
		}
		rows = append(rows, []string{strconv.FormatInt(e.Index, 10), stampOf(e.At), e.Kind, string(e.ActionID), string(e.SessionID),
			string(e.RunID), e.Host, e.By, body})
	}
	return rows
}

package main

import (
	"fmt"
	"strings"

	"github.com/longstop/longstop"
)

// findingsSaid is how many findings a run says before its output: the rest is for show.
const findingsSaid = 3

// findingNotes are the findings as whoever runs something is told: the first of each kind, a few of them.
// What a policy alone wants to know is not said.
func findingNotes(a *longstop.Action) (lines []string) {
	said, worth := map[longstop.FindingKind]bool{}, 0
	for i := range a.Findings {
		f := &a.Findings[i]
		if f.Kind == longstop.FindingDynamic || f.Kind == longstop.FindingFile {
			continue
		}
		worth++
		if !said[f.Kind] && len(lines) < findingsSaid {
			said[f.Kind] = true
			lines = append(lines, findingLine(f))
		}
	}
	if more := worth - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: longstop show %s", more, a.ID))
	}
	return lines
}

// findingLine is a finding with its place: "(2:1)", "(verify 1:3)".
func findingLine(f *longstop.Finding) string {
	at := plain(f.Part)
	if f.Line > 0 {
		at = strings.TrimSpace(fmt.Sprintf("%s %d:%d", at, f.Line, f.Column))
	}
	if at != "" {
		at = " (" + at + ")"
	}
	return plain(f.Words) + at
}

// ruleName is a policy's rule as one says it.
func ruleName(name string) string {
	if strings.HasPrefix(name, "rule ") {
		return plain(name)
	}
	return "rule " + plain(name)
}

// onlyFirst is a name for the first of several lines.
func onlyFirst(name string, i int) string {
	if i > 0 {
		return ""
	}
	return name
}

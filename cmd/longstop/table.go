package main

import (
	"strings"
	"unicode/utf8"
)

// table is rows of cells in columns; the last column takes the room that is left, less what its
// remark needs.
type table struct {
	rows    [][]string
	remarks []string // of each row, behind its last cell, never cut
}

func (t *table) row(remark string, cells ...string) {
	t.rows, t.remarks = append(t.rows, cells), append(t.remarks, remark)
}

// render lays the table out, cutting the last column at columns (0: not at all).
func (t *table) render(columns int) string {
	if len(t.rows) == 0 {
		return ""
	}
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for n, row := range t.rows {
		at, remark := 0, t.remarks[n]
		if remark != "" {
			remark = "   " + remark
		}
		for i, cell := range row {
			if i == len(row)-1 {
				if columns > 0 {
					cell = cut(cell, max(columns-at-utf8.RuneCountInString(remark), 8))
				}
				out.WriteString(cell + remark)
				break
			}
			out.WriteString(cell)
			out.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			at += widths[i] + 2
		}
		out.WriteString("\n")
	}
	return strings.ReplaceAll(out.String(), "  \n", "\n")
}

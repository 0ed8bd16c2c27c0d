// Package longstop holds the words of Longstop: actions, records, the facts and their states, and
// the errors, as they appear in JSON everywhere. It owns names and shapes, knows no rule about
// which state follows which (internal/lifecycle), and imports the standard library alone.
package longstop

//go:generate go test -run TestCasesPage -update .

package journal

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzValid holds valid to what encoding/json says.
func FuzzValid(f *testing.F) {
	for _, text := range []string{``, ` `, `{}`, `{ }`, `[]`, `[ ]`, `[1,]`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{1:2}`, `{"a":[1,-2.5e+3,{"b":null}],"c":"\"\\\u00e9"}`,
		`"\u12"`, `"\u12g4"`, `"\x"`, `"\`, `"`, "\"\n\"", "\"\xff\"", `01`, `-`, `- 1`, `-0`, `0.`, `.5`, `1e`, `1e+`, `1E5`, `1 2`, `tru`, `true`, `truex`, `false`, `null `,
		"\v1", "1\x00", `[[[`, `]`, `{"a" : 1 , "b" : [ true ] }`, `[1 2]`, `{"a":1 "b":2}`, "{\"a\":1}\x00",
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := valid(text), json.Valid(text); got != want {
			t.Errorf("valid(%q) = %v, encoding/json says %v", text, got, want)
		}
	})
}

// BenchmarkValid is against encoding/json's.
func BenchmarkValid(b *testing.B) {
	text := []byte(`{"launch":"accepted","ssh_command":"carried","changed":["workload","launch"],"patch":{"action":{"revision":2,"launch":{"state":"accepted","at":"2026-11-29T14:02:11.000000Z"},"workload":{"state":"running","sequence":3,"main":{"pid":24182,"pgid":24182,"start_time":8123}}}}}`)
	for name, check := range map[string]func([]byte) bool{"ours": valid, "theirs": json.Valid} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				check(text)
			}
		})
	}
}

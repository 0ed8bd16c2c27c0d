package policy

import (
	"testing"

	"github.com/longstop/longstop"
)

func BenchmarkDecide(b *testing.B) {
	p, err := Parse([]byte(example))
	if err != nil {
		b.Fatal(err)
	}
	for name, c := range map[string]struct {
		p *Policy
		r longstop.Request
	}{
		"argv, no policy":   {nil, longstop.Request{Argv: []string{"true"}}},
		"argv, policy":      {p, longstop.Request{Argv: []string{"true"}}},
		"script, no policy": {nil, longstop.Request{Script: "cd /srv/app && git pull && make test | tee log"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.p.Decide(Question{Host: "web-1", Request: c.r})
			}
		})
	}
}

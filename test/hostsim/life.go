package hostsim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// life is what a workload does, read from its script: statements of sh, joined by "; ", of which a
// simulated host knows these. A real shell does the same with them.
//
//	echo WORD       to standard output
//	sleep S         seconds
//	sleep S &       a child that outlives what follows
//	trap "" TERM    it and what it starts from then on ignore TERM
//	kill -SIG $$    it ends so
//	exit N
type life struct {
	length   time.Duration
	children []child
	words    []word
	trapped  time.Duration // from when on TERM is ignored; never: negative
	code     int
	signal   string
}

type child struct {
	from, length time.Duration
	ignores      bool
}

type word struct {
	at   time.Duration
	text string
}

// lifeOf reads what a request runs; an error is a command that cannot be started.
func lifeOf(req *longstop.Request) (life, error) {
	l := life{trapped: -1}
	if req.Script == "" {
		switch {
		case len(req.Argv) == 1 && req.Argv[0] == "true":
			return l, nil
		case len(req.Argv) > 0:
			return l, fmt.Errorf("%s: no such file or directory", req.Argv[0])
		}
	}
	for statement := range strings.SplitSeq(strings.ReplaceAll(req.Script, " & ", " &; "), "; ") {
		if err := l.add(strings.Fields(statement)); err != nil {
			return l, fmt.Errorf("%q: %w", statement, err)
		}
		if l.signal != "" || len(statement) > 4 && statement[:4] == "exit" {
			break
		}
	}
	return l, nil
}

func (l *life) add(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "echo":
		l.words = append(l.words, word{l.length, words[1] + "\n"})
	case len(words) >= 2 && words[0] == "sleep":
		s, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return err
		}
		d := time.Duration(s * float64(time.Second))
		if len(words) == 3 && words[2] == "&" {
			l.children = append(l.children, child{l.length, d, l.trapped >= 0})
			return nil
		}
		l.length += d
	case len(words) == 3 && words[0] == "trap":
		l.trapped = l.length
	case len(words) == 3 && words[0] == "kill":
		l.signal = strings.TrimPrefix(words[1], "-")
	case len(words) == 2 && words[0] == "exit":
		code, err := strconv.Atoi(words[1])
		l.code = code
		return err
	case len(words) == 1 && words[0] == "true":
	default:
		return fmt.Errorf("a simulated host does not know this")
	}
	return nil
}

package runner

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// originalCommand is where sshd leaves what a client asked for when a forced command takes its place
// (sshd(8), command=).
const originalCommand = "SSH_ORIGINAL_COMMAND"

// grantable are the verbs that a forced command may allow, in the contract's order; readOnly are those
// of them that change nothing. hello and serve are always allowed: the one says who the host is, the
// other carries no verb that is not allowed itself.
var (
	grantable = []wire.Verb{wire.VerbSubmit, wire.VerbFind, wire.VerbVoid, wire.VerbStatus, wire.VerbList, wire.VerbInspect,
		wire.VerbOutput, wire.VerbCancel, wire.VerbRenew, wire.VerbCollect, wire.VerbGC}
	readOnly = []wire.Verb{wire.VerbFind, wire.VerbStatus, wire.VerbList, wire.VerbInspect, wire.VerbOutput}
)

// permit is what whoever asks may do. The zero permit is that of a login without a forced command.
type permit struct {
	forced   bool
	verbs    []wire.Verb // of grantable
	stateDir string      // the one state folder
}

// forced answers, in place of a shell, the one verb that SSH_ORIGINAL_COMMAND names, or refuses. What
// came from the client is compared with what a gateway sends; no part of it is run or opened.
func forced(args []string) int {
	permit, err := takePermit(args)
	if err != nil {
		os.Stderr.WriteString("longstop-runner forced: " + err.Error() + "\n\n" + forcedUsage)
		return exitNoAnswer
	}
	command, asked := os.LookupEnv(originalCommand)
	os.Unsetenv(originalCommand) // the work inherits this environment
	_, verb, err := wire.ParseCommand(command)
	if err == nil && !isVerb(verb) {
		err = errors.New("no such verb")
	}
	if err != nil {
		what := "a shell"
		if asked {
			what = strconv.Quote(command[:min(len(command), 100)])
		}
		logLine("forced: refused " + what)
		os.Stderr.WriteString(wire.ForcedRefusal + what + ": this key is for Longstop's gateway alone, and nothing was run; longstop host add NAME --forced enrols the host by it\n")
		return exitNoAnswer
	}
	return carry(permit, verb)
}

const forcedUsage = `  command="longstop-runner forced [--state-dir DIR] [--read-only | --allow VERB,VERB…]",restrict KEY

in authorized_keys: the key may ask for these verbs alone (default all), of runs in this state folder.
Without renew, leased runs end with their first lease.
  `

// takePermit reads the options of forced.
func takePermit(args []string) (permit, error) {
	p := permit{forced: true}
	for len(args) > 0 {
		option := args[0]
		args = args[1:]
		if option == "--read-only" && p.verbs == nil {
			p.verbs = readOnly
			continue
		}
		if len(args) == 0 {
			return p, errors.New(quoted(option) + " is no option, or lacks its value, or comes twice")
		}
		value := args[0]
		args = args[1:]
		switch {
		case option == "--state-dir" && p.stateDir == "":
			if !filepath.IsAbs(value) || filepath.Clean(value) != value {
				return p, errors.New("the state folder " + quoted(value) + " is not a clean absolute path")
			}
			p.stateDir = value
		case option == "--allow" && p.verbs == nil:
			for verb := range strings.SplitSeq(value, ",") {
				if !slices.Contains(grantable, wire.Verb(verb)) {
					return p, errors.New(quoted(verb) + " is no verb that can be allowed; those are " + listed(grantable))
				}
				p.verbs = append(p.verbs, wire.Verb(verb))
			}
		default:
			return p, errors.New(quoted(option) + " is no option, or comes twice")
		}
	}
	if p.verbs == nil {
		p.verbs = grantable
	}
	if p.stateDir == "" {
		var err error
		p.stateDir, err = record.DefaultDir()
		return p, err
	}
	return p, nil
}

// isVerb reports whether the host contract has such a verb, alone on a channel.
func isVerb(verb wire.Verb) bool { return verb == wire.VerbServe || verbs[verb] != nil }

// admit refuses a verb that the key may not ask for. Spooled input is a part of a submit, and watching
// is asking for the status again and again.
func (p *permit) admit(verb wire.Verb) error {
	need := verb
	switch verb {
	case wire.VerbHello, wire.VerbServe:
		return nil
	case wire.VerbSpool:
		need = wire.VerbSubmit
	case wire.VerbWatch:
		need = wire.VerbStatus
	}
	if !p.forced || slices.Contains(p.verbs, need) {
		return nil
	}
	return &longstop.Error{Code: longstop.CodeNotAllowed,
		Message: "the key's forced command does not allow " + string(need) + ", only " + listed(p.verbs) + ": nothing was done",
		Hint:    "what a key may do is in its line of authorized_keys there (longstop-runner forced)"}
}

// logRefused tells the host's log of what somebody wanted and may not; what a gateway asks by itself, and
// again and again, is not for it.
func logRefused(verb wire.Verb) {
	if verb == wire.VerbSubmit || verb == wire.VerbCancel {
		logLine("forced: refused " + string(verb))
	}
}

// dir is the state folder that a request means. A key that is bound to one has no other.
func (p *permit) dir(request wire.Request) (string, error) {
	dir := request.StateDir
	switch {
	case p.forced && dir != "" && dir != p.stateDir:
		return "", &longstop.Error{Code: longstop.CodeNotAllowed,
			Message: "the key's forced command is for the state folder " + p.stateDir + ", not " + quoted(dir) + ": nothing was done",
			Hint:    "name that folder with --state-dir in the key's line of authorized_keys there, or enrol the host with it"}
	case p.forced:
		return p.stateDir, nil
	case dir != "":
		return dir, nil
	}
	return record.DefaultDir()
}

// allowed is what hello says of the permit: nothing where there is no forced command.
func (p *permit) allowed() (names []string) {
	for _, verb := range p.verbs {
		names = append(names, string(verb))
	}
	return names
}

func listed(verbs []wire.Verb) string {
	p := permit{verbs: verbs}
	return strings.Join(p.allowed(), ", ")
}

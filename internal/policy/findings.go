package policy

import (
	"fmt"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/longstop/longstop"
)

// left says what becomes of what outlives the main process of this run.
func (s *scripts) left() string {
	switch s.request.Leftover {
	case longstop.LeftoverKill:
		return "it is killed when the main process ends"
	case longstop.LeftoverRelease:
		return "it may live on after the run; a later cancel ends it"
	}
	if d := s.request.DeadlineS; d > 0 {
		return fmt.Sprintf("the run goes on until it ends, for %s at most", time.Duration(d*float64(time.Second)))
	}
	return "the run goes on until it ends"
}

// background is about a statement whose end the shell does not wait for.
func (s *scripts) background(st, what syntax.Node) {
	text := "the command"
	if source := s.source(what); source != "" {
		text = source
	}
	if s.waits > st.Pos().Offset() {
		s.find(longstop.FindingBackground, text, "runs in the background, and the script waits for it later")
		return
	}
	s.find(longstop.FindingBackground, text, "is left in the background: "+s.left())
}

// lastWait is the offset of the last `wait` without arguments, which waits for all of a shell's children.
func lastWait(stmts []*syntax.Stmt) (offset uint) {
	for _, st := range stmts {
		syntax.Walk(st, func(n syntax.Node) bool {
			if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) == 1 && call.Args[0].Lit() == "wait" {
				offset = max(offset, call.Pos().Offset())
			}
			return true
		})
	}
	return offset
}

// redirects is about descriptors that stay open in all that is started later: exec 9>file.
func (s *scripts) redirects(st *syntax.Stmt) {
	call, ok := st.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) != 1 || call.Args[0].Lit() != "exec" {
		return
	}
	for _, redirect := range st.Redirs {
		if s.at.fed && redirect.Op == syntax.RdrIn && redirect.Word.Lit() != "/dev/null" || s.at.fed && redirect.Op == syntax.DplIn {
			s.on(redirect).unknown(s.source(redirect)) // the shell goes on with what stands there
		}
		if redirect.N == nil || strings.TrimLeft(redirect.N.Value, "012") == "" || redirect.Word.Lit() == "-" {
			continue
		}
		s.on(redirect).find(longstop.FindingHeldOpen, s.source(redirect),
			"stays open in all that is started after it: a lock or pipe there is held by what is left behind too")
	}
}

// detaching is what programs do whose purpose is to detach.
func (s *scripts) detaching(name, text string) {
	switch name {
	case "nohup", "disown":
		s.find(longstop.FindingDetaches, text, "is out of reach of a hangup, not of Longstop: "+s.left())
	case "setsid":
		s.find(longstop.FindingDetaches, text, "has a session of its own and is still the run's: "+s.left())
	}
}

func (s *scripts) otherUser(text string) {
	switch s.request.BoundaryMin {
	case longstop.BoundaryCgroup, longstop.BoundarySystemd, longstop.BoundarySlurm:
		s.find(longstop.FindingOtherUser, text, "runs as another user")
	default:
		s.find(longstop.FindingOtherUser, text, "runs as another user: where the boundary is a tree, what ignores TERM then outlives a cancel")
	}
}

func (s *scripts) handedOver(text, to string) {
	s.find(longstop.FindingHandedOver, text, "hands work over to "+to+": the run ends without it, and no cancel, lease or deadline of the run reaches it")
}

func (s *scripts) otherHost(text string) {
	s.find(longstop.FindingOtherHost, text, "works on another host: no record of that is kept, and a cancel ends its connection, no more")
}

func (s *scripts) daemon(text string) {
	s.find(longstop.FindingDaemon, text, "puts itself into the background: "+s.left())
}

func (s *scripts) file(name string) {
	s.find(longstop.FindingFile, name, "is a file on the host: its content when it runs is not bound by anything here")
}

// source is a node as it stands in the script.
func (s *scripts) source(n syntax.Node) string {
	if n == nil {
		return ""
	}
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from > to || to > len(s.text) {
		return ""
	}
	return s.text[from:to]
}

package longstop

// FindingKind says what a place in a script or a command line is about.
type FindingKind string

const (
	FindingBackground FindingKind = "background"  // a command is not waited for: &
	FindingDetaches   FindingKind = "detaches"    // a process leaves its terminal or session: nohup, setsid, disown
	FindingDaemon     FindingKind = "daemon"      // a program puts itself into the background
	FindingTerminal   FindingKind = "terminal"    // a server with terminals of its own: screen, tmux
	FindingHandedOver FindingKind = "handed_over" // another owner starts the work: at, systemd-run
	FindingOtherUser  FindingKind = "other_user"  // work of another user: sudo, su, doas
	FindingOtherHost  FindingKind = "other_host"  // work on another host: ssh
	FindingHeldOpen   FindingKind = "held_open"   // descriptors stay open, or go elsewhere, for what is left behind
	FindingFile       FindingKind = "file"        // a file is run whose content nothing here is bound to
	FindingDynamic    FindingKind = "dynamic"     // which program runs is known when it runs
	FindingUnread     FindingKind = "unread"      // it could not be read as a shell script
)

// Finding is what reading a script or a command line before its launch showed, and what that means for
// its run. A finding is no fact about the run: nothing has happened yet.
type Finding struct {
	Kind   FindingKind `json:"kind"`
	Words  string      `json:"words"`            // one plain sentence, for people
	Part   string      `json:"part,omitempty"`   // "preflight" or "verify"; absent: the work itself
	Line   int         `json:"line,omitempty"`   // in the script, from 1; absent for arguments
	Column int         `json:"column,omitempty"` // in bytes, from 1
	Text   string      `json:"text,omitempty"`   // what it is about, as it stands there, bounded
}

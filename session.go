package longstop

// Session is one stretch of an agent's or operator's work. It belongs to who started it: no other agent's
// run is taken into it.
type Session struct {
	ID        SessionID `json:"session_id"`
	StartedBy Requester `json:"started_by"`
	StartedAt Time      `json:"started_at"`
	Purpose   string    `json:"purpose,omitempty"`
	// Default says that runs of its owner which name no session belong to it.
	Default bool `json:"default,omitempty"`

	EndedAt      Time          `json:"ended_at,omitzero"`
	EndedBy      string        `json:"ended_by,omitempty"`
	EndedBecause SessionEnd    `json:"ended_because,omitempty"`
	EndCancels   SessionCancel `json:"end_cancels,omitempty"`
}

// Ended reports whether no run is taken into the session any more.
func (s *Session) Ended() bool { return !s.EndedAt.IsZero() }

// SessionEnd is why a session ended.
type SessionEnd string

const (
	SessionAsked SessionEnd = "asked" // someone ended it
	SessionIdle  SessionEnd = "idle"  // nothing happened in it for long enough, and nothing was unresolved
)

// SessionCancel is which unresolved runs the end of a session cancels, beside what was not sent yet: nothing
// is started in an ended session.
type SessionCancel string

const (
	CancelsLeased SessionCancel = "leased" // detached ones go on
	CancelsAll    SessionCancel = "all"
	CancelsNobody SessionCancel = "none" // leases are renewed as before
)

// SessionView is a session as it is shown, with what came of its actions.
type SessionView struct {
	Session
	LastUsedAt Time            `json:"last_used_at"` // when something was noted about it or an action of it
	Unresolved int             `json:"unresolved"`   // actions of which the host may still have something to say
	Outcomes   map[Outcome]int `json:"outcomes"`     // of the others
}

// SessionRequest is the body of POST /api/v1/sessions.
type SessionRequest struct {
	Purpose string    `json:"purpose"`
	By      Requester `json:"started_by,omitzero"` // via alone; who it is decides the gateway
}

// EndRequest is the body of POST /api/v1/sessions/{id}/end. Nothing in it: CancelsLeased.
type EndRequest struct {
	Cancels SessionCancel `json:"end_cancels,omitempty"`
}

// SessionEnded is the answer to an EndRequest.
type SessionEnded struct {
	Session    SessionView `json:"session"`
	Cancelling []ActionID  `json:"cancelling"` // asked to stop: longstop cancel ID waits for the proof
	GoingOn    []ActionID  `json:"going_on"`
}

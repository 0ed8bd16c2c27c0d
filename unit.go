package longstop

// Unit is what a service manager says of the unit that a run is in: corroboration, kept beside the
// record and never instead of it. Absent fields were not said.
type Unit struct {
	Manager      string `json:"manager"` // "system" or "user"
	Name         string `json:"name"`
	InvocationID string `json:"invocation_id,omitempty"` // of this start: a name may be used again
	ActiveState  string `json:"active_state,omitempty"`
	SubState     string `json:"sub_state,omitempty"`
	Result       string `json:"result,omitempty"`
	MainPID      int    `json:"main_pid,omitempty"`      // ExecMainPID: kept when the process has ended
	MainCode     string `json:"main_code,omitempty"`     // "exited", "killed" or "dumped", once it has ended
	MainStatus   *int   `json:"main_status,omitempty"`   // exit status or number of the signal; with MainCode alone
	StartedAt    Time   `json:"started_at,omitzero"`     // ExecMainStartTimestamp
	EndedAt      Time   `json:"ended_at,omitzero"`       // ExecMainExitTimestamp
	ControlGroup string `json:"control_group,omitempty"` // as below the root of the hierarchy
	Forgotten    bool   `json:"forgotten,omitempty"`     // when asked last, the manager no longer knew it
	ReadAt       Time   `json:"read_at,omitzero"`        // by the host's wall clock
}

// Ended reports whether the manager has said that the unit is over.
func (u Unit) Ended() bool { return u.ActiveState == "inactive" || u.ActiveState == "failed" }

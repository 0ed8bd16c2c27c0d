package longstop

// AuditQuery is a question that reviewers ask, with how many hits it has: GET /api/v1/audit lists them.
type AuditQuery struct {
	Name  string `json:"name"`
	Words string `json:"words"`          // what its rows are
	Hits  int    `json:"hits"`           // absent of one that needs a session
	More  bool   `json:"more,omitempty"` // there may be more than Hits
	Of    string `json:"of"`             // AuditOfActions or AuditOfEntries
}

// What the rows of a query are.
const (
	AuditOfActions = "actions"
	AuditOfEntries = "entries"
)

// AuditPage is the answer of GET /api/v1/audit/{name}: actions, or entries of the journal.
type AuditPage struct {
	Query   AuditQuery     `json:"query"`
	Actions []Action       `json:"actions,omitempty"`
	Entries []JournalEntry `json:"entries,omitempty"`
	Next    string         `json:"next,omitempty"` // the page goes on after this row; absent: there are no more
}

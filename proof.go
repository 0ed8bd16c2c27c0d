package longstop

// How a person proves who they are. A challenge has the exact text that binds what is about to be done;
// the person's own key signs it, in the person's own process; the gateway knows the public half alone.

// ProofKind is what a person proves themselves with.
type ProofKind string

const (
	// ProofPassphrase is an ed25519 key whose seed is made of a passphrase (argon2id, RFC 9106).
	ProofPassphrase ProofKind = "passphrase"
)

// Approver is a person who can prove who they are, as the gateway keeps them: nothing of it is secret.
type Approver struct {
	Name      string    `json:"name"`
	Kind      ProofKind `json:"kind"`
	PublicKey []byte    `json:"public_key"`
	Salt      []byte    `json:"salt,omitempty"`   // with passphrase
	Argon2    *Argon2   `json:"argon2,omitempty"` // with passphrase
}

// Argon2 are the parameters of argon2id.
type Argon2 struct {
	Time      uint32 `json:"time"`
	MemoryKiB uint32 `json:"memory_kib"`
	Threads   uint8  `json:"threads"`
}

// KnownApprover is an approver with how they came to be one: GET /api/v1/approvers.
type KnownApprover struct {
	Approver
	SetAt   Time   `json:"set_at"`
	SetBy   string `json:"set_by"`            // who proved themselves for it, or who asked for the first
	First   bool   `json:"first,omitempty"`   // trusted on first use: nobody was there to prove themselves
	Changed string `json:"changed,omitempty"` // why the key is refused: it is not what the journal says
}

// ChallengeKind is what a person proves themselves for.
type ChallengeKind string

const (
	ChallengeApprove  ChallengeKind = "approve"
	ChallengeDeny     ChallengeKind = "deny"
	ChallengeRevoke   ChallengeKind = "revoke"
	ChallengeResolve  ChallengeKind = "resolve"
	ChallengePolicy   ChallengeKind = "policy"
	ChallengeApprover ChallengeKind = "approver"
)

// ChallengeRequest is the body of POST /api/v1/challenges: what is about to be done. Fields that do not
// belong to the kind are empty.
type ChallengeRequest struct {
	Kind     ChallengeKind `json:"kind"`
	Approver string        `json:"approver,omitempty"`  // who is to sign; may be left out where there is one
	ActionID ActionID      `json:"action_id,omitempty"` // approve, deny, revoke, resolve
	Outcome  Outcome       `json:"outcome,omitempty"`   // resolve
	Reason   string        `json:"reason,omitempty"`    // deny, revoke, resolve
	Content  string        `json:"content,omitempty"`   // "sha256:…" of what else is bound: a policy's text, an approver, attachments
}

// Challenge is the answer: it can be used once, for what its request says, until it expires.
type Challenge struct {
	ID        string   `json:"challenge_id"`
	Statement string   `json:"statement"` // the exact text to be signed, one fact a line
	Approver  Approver `json:"approver"`
	ExpiresAt Time     `json:"expires_at"`
	Ticket    []byte   `json:"ticket"` // goes back with the proof, as it is
}

// Proof is a person's signature of a challenge's statement.
type Proof struct {
	Challenge string    `json:"challenge_id"`
	Ticket    []byte    `json:"ticket"` // the challenge's
	Kind      ProofKind `json:"kind"`
	Signature []byte    `json:"signature"`
}

// ApprovalDecision is the body of POST /api/v1/actions/{id}/approve, deny and revoke.
type ApprovalDecision struct {
	Reason string `json:"reason,omitempty"` // of deny and revoke: as in the challenge
	Proof  Proof  `json:"proof"`
}

// ApproverChange is the body of PUT and DELETE /api/v1/approvers/{name}. What a challenge for it binds is
// its Content, and as its Reason ApproverSet or ApproverRemove and the name.
type ApproverChange struct {
	Approver *Approver `json:"approver,omitempty"` // of PUT alone
	Proof    *Proof    `json:"proof,omitempty"`    // of an approver who is there; none for the first
}

// What a statement about an approver says is done, before the name.
const (
	ApproverSet    = "set approver "
	ApproverRemove = "remove approver "
)

package longstop

// Token is what an agent shows to be known by its name. The gateway keeps its hash alone.
type Token struct {
	Name      string `json:"name"`
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at,omitzero"` // absent: never
	RevokedAt Time   `json:"revoked_at,omitzero"` // absent: it was not
}

// TokenRequest is the body of POST /api/v1/tokens.
type TokenRequest struct {
	Name     string  `json:"name"`
	ExpiresS float64 `json:"expires_s,omitempty"` // from now; 0: never
}

// NewToken is the answer of POST /api/v1/tokens. Nobody is told the secret a second time.
type NewToken struct {
	Token
	Secret string `json:"token"` // "lst_…"
}

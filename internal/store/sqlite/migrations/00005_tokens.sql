-- +goose Up

-- Tokens of agents, by the SHA-256 of what they show. A revoked one stays, so that it is refused by its
-- name; of one name there is at most one that is not revoked.
CREATE TABLE tokens (
    hash       BLOB PRIMARY KEY,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL, -- microseconds since 1970, as those below
    expires_at INTEGER,          -- NULL: never
    revoked_at INTEGER           -- NULL: it was not
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at IS NULL;

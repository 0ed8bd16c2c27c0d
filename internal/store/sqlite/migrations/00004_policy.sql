-- +goose Up

-- The policy that holds, as it was given: the last one that the log names.
CREATE TABLE policy (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    entry  INTEGER NOT NULL REFERENCES entries (idx),
    digest TEXT NOT NULL,
    text   BLOB NOT NULL
) STRICT;

-- +goose Up

-- The policy that holds, as it was given: the last one that the log names.
CREATE TABLE policy (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    entry  INTEGER NOT NULL REFERENCES entries (idx),
    digest TEXT NOT NULL,
    text   BLOB NOT NULL
) STRICT;

-- Who asked for an action, as kind and name: a rule may bound how many of theirs are unresolved.
ALTER TABLE actions ADD COLUMN requester TEXT NOT NULL DEFAULT '';
UPDATE actions SET requester = coalesce(json ->> '$.requested_by.kind', '') || ' ' || coalesce(json ->> '$.requested_by.name', '');
CREATE INDEX actions_requester ON actions (requester) WHERE unresolved = 1;

-- +goose Up

-- The log. A row holds an entry and the tree hashes that it completes (journal.Tree.Append), so
-- that appending is one insert; action_id repeats what the bytes say, for the index.
CREATE TABLE entries (
    idx       INTEGER PRIMARY KEY CHECK (idx >= 0),
    action_id TEXT,
    hashes    BLOB NOT NULL,
    bytes     BLOB NOT NULL
) STRICT;
CREATE INDEX entries_action ON entries (action_id) WHERE action_id IS NOT NULL;

-- Raw bytes behind an entry: place is their position among its digests. A row may be deleted; the
-- entry's digest then stands alone.
CREATE TABLE raws (
    seq       INTEGER PRIMARY KEY,
    entry     INTEGER NOT NULL REFERENCES entries (idx),
    place     INTEGER NOT NULL,
    action_id TEXT,
    kind      TEXT NOT NULL,
    at        INTEGER NOT NULL, -- microseconds since 1970
    size      INTEGER NOT NULL, -- as received; bytes may be fewer
    salt      BLOB NOT NULL,
    bytes     BLOB NOT NULL
) STRICT;
CREATE INDEX raws_action ON raws (action_id) WHERE action_id IS NOT NULL;

-- What the log says of each action, as JSON. seq rises in the order of creation and is what pages
-- are cut by: every index below ends with it.
CREATE TABLE actions (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    tail       TEXT NOT NULL,           -- the id backwards, to find it by its end
    key        TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    host       TEXT NOT NULL,
    created_at INTEGER NOT NULL,        -- microseconds since 1970
    run_id     TEXT UNIQUE,
    revision   INTEGER NOT NULL,
    unresolved INTEGER NOT NULL CHECK (unresolved IN (0, 1)),
    outcome    TEXT NOT NULL,
    entry      INTEGER NOT NULL REFERENCES entries (idx), -- the last that changed it
    json       TEXT NOT NULL
) STRICT;
CREATE INDEX actions_tail ON actions (tail);
CREATE INDEX actions_host ON actions (host);
CREATE INDEX actions_session ON actions (session_id);
CREATE INDEX actions_unresolved ON actions (host) WHERE unresolved = 1;

-- Secrets of runs. Nothing that is shown is read from here.
CREATE TABLE secrets (
    run_id    TEXT PRIMARY KEY,
    action_id TEXT NOT NULL REFERENCES actions (id),
    secret    BLOB NOT NULL
) STRICT;

CREATE TABLE hosts (
    name         TEXT PRIMARY KEY,
    max_sessions INTEGER NOT NULL, -- learnt from refusals; 0: not known
    json         TEXT NOT NULL
) STRICT;

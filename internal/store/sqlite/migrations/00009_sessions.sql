-- +goose Up

-- What the log says of each session, as JSON. Columns repeat of it what is looked for.
CREATE TABLE sessions (
    id       TEXT PRIMARY KEY,
    tail     TEXT NOT NULL,    -- the id backwards, to find it by its end
    kind     TEXT NOT NULL,    -- whose it is: the requester's kind and name
    name     TEXT NOT NULL,
    standing INTEGER NOT NULL, -- 1: of runs that name none
    ended    INTEGER NOT NULL,
    json     TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_tail ON sessions (tail);
CREATE INDEX sessions_open ON sessions (id) WHERE ended = 0;
CREATE UNIQUE INDEX sessions_standing ON sessions (kind, name) WHERE standing = 1 AND ended = 0;

-- How many actions of a session are unresolved, and how many came to which outcome. It follows from the
-- actions alone, so triggers keep it.
CREATE TABLE tally (
    session_id TEXT NOT NULL,
    outcome    TEXT NOT NULL, -- or 'unresolved'
    n          INTEGER NOT NULL,
    PRIMARY KEY (session_id, outcome)
) STRICT, WITHOUT ROWID;
CREATE INDEX tally_unresolved ON tally (session_id) WHERE outcome = 'unresolved' AND n > 0;

INSERT INTO tally SELECT session_id, iif(unresolved = 1, 'unresolved', outcome) AS came, count(*) FROM actions GROUP BY session_id, came;

-- +goose StatementBegin
CREATE TRIGGER actions_made AFTER INSERT ON actions BEGIN
    INSERT INTO tally VALUES (new.session_id, iif(new.unresolved = 1, 'unresolved', new.outcome), 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER actions_gone AFTER DELETE ON actions BEGIN
    UPDATE tally SET n = n - 1 WHERE session_id = old.session_id AND outcome = iif(old.unresolved = 1, 'unresolved', old.outcome);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER actions_changed AFTER UPDATE OF unresolved, outcome ON actions
WHEN iif(old.unresolved = 1, 'unresolved', old.outcome) <> iif(new.unresolved = 1, 'unresolved', new.outcome) BEGIN
    UPDATE tally SET n = n - 1 WHERE session_id = old.session_id AND outcome = iif(old.unresolved = 1, 'unresolved', old.outcome);
    INSERT INTO tally VALUES (new.session_id, iif(new.unresolved = 1, 'unresolved', new.outcome), 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
-- +goose StatementEnd

-- Columns of an entry that its bytes have too, for pages of one session or host, and of kinds that are rare
-- among so many.
ALTER TABLE entries ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN session_id TEXT;
ALTER TABLE entries ADD COLUMN host TEXT;

WITH heads AS (SELECT idx, char(10) || substr(CAST(bytes AS TEXT), 1, instr(CAST(bytes AS TEXT), char(10, 10))) AS head FROM entries),
starts AS (SELECT idx, head, instr(head, char(10) || 'kind ') AS k, instr(head, char(10) || 'session ') AS s, instr(head, char(10) || 'host ') AS h FROM heads)
UPDATE entries SET
    kind = substr(head, k + 6, instr(substr(head, k + 6), char(10)) - 1),
    session_id = iif(s, substr(head, s + 9, instr(substr(head, s + 9), char(10)) - 1), NULL),
    host = iif(h, substr(head, h + 6, instr(substr(head, h + 6), char(10)) - 1), NULL)
    FROM starts WHERE starts.idx = entries.idx;

CREATE INDEX entries_session ON entries (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX entries_host ON entries (host) WHERE host IS NOT NULL;
CREATE INDEX entries_kind ON entries (kind) WHERE kind NOT IN ('requested', 'launch_intended', 'launch_answered', 'observed');

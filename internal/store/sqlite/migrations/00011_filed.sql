-- +goose Up

-- Where the entries of a session or a host are, in place of two indexes: these cost every commit a page each. Rows
-- are written for a whole block of 128 entries, with the last of it; what is behind the last whole block is
-- looked through (fileEvery in filed.go).
CREATE TABLE filed (
    field TEXT NOT NULL, -- of an entry: 'session_id' or 'host'
    value TEXT NOT NULL,
    idx   INTEGER NOT NULL,
    PRIMARY KEY (field, value, idx)
) STRICT, WITHOUT ROWID;

INSERT INTO filed SELECT 'session_id', session_id, idx FROM entries INDEXED BY entries_session
    WHERE session_id IS NOT NULL AND idx < (SELECT (max(idx) + 1) / 128 * 128 FROM entries) ORDER BY session_id, idx;
INSERT INTO filed SELECT 'host', host, idx FROM entries INDEXED BY entries_host
    WHERE host IS NOT NULL AND idx < (SELECT (max(idx) + 1) / 128 * 128 FROM entries) ORDER BY host, idx;

DROP INDEX entries_session;
DROP INDEX entries_host;

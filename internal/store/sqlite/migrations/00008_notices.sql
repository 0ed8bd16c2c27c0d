-- +goose Up

-- What is to be told to people and was not yet: entries of the log, by the way that each goes out. A row
-- is written with its entry and goes once the other side has taken it.
CREATE TABLE notices (
    way     TEXT NOT NULL,
    entry   INTEGER NOT NULL REFERENCES entries (idx),
    id      TEXT NOT NULL,    -- the same at each try, so that who is told twice can know
    tries   INTEGER NOT NULL, -- that failed
    due_at  INTEGER NOT NULL, -- when to try next, microseconds since 1970
    failure TEXT NOT NULL,    -- of the last try
    PRIMARY KEY (way, entry)
) STRICT, WITHOUT ROWID;
CREATE INDEX notices_due ON notices (way, due_at);

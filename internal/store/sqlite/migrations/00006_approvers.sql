-- +goose Up

-- Who can prove who they are, as the log's last entry about each of them says. Nothing of it is secret.
CREATE TABLE approvers (
    name  TEXT PRIMARY KEY,
    entry INTEGER NOT NULL REFERENCES entries (idx), -- the one that set it
    json  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

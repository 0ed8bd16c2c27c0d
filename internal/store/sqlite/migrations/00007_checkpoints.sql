-- +goose Up

-- Signed heads of the log: the last ones, and all that others signed too. What is kept here helps against
-- accidents; against whoever can write this file only what is kept elsewhere does.
CREATE TABLE checkpoints (
    size     INTEGER PRIMARY KEY, -- of the log
    at       INTEGER NOT NULL,    -- microseconds since 1970
    cosigned INTEGER NOT NULL CHECK (cosigned IN (0, 1)),
    note     BLOB NOT NULL
) STRICT;

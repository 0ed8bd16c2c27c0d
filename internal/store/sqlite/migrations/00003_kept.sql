-- +goose Up

-- Runs with a final record here of which a host still keeps something, by its state folder. A row goes
-- once the host has said that the run is gone.
CREATE TABLE kept (
    run_id       TEXT PRIMARY KEY,
    action_id    TEXT NOT NULL,
    state_id     TEXT NOT NULL,
    since        INTEGER NOT NULL, -- when the final record became durable here, microseconds since 1970
    unread       INTEGER NOT NULL, -- streams that nobody has read to their end: 1 stdout, 2 stderr
    collected_at INTEGER           -- when the host answered that it may go; NULL: it has not
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_since ON kept (state_id, since);
CREATE INDEX kept_uncollected ON kept (state_id) WHERE collected_at IS NULL;

-- What earlier versions left on their hosts.
INSERT INTO kept SELECT actions.run_id, actions.id, hosts.json ->> '$.state_id', unixepoch() * 1000000,
    (coalesce(actions.json ->> '$.output.stdout_bytes', 0) > 0) + 2 * (coalesce(actions.json ->> '$.output.stderr_bytes', 0) > 0), NULL
    FROM actions JOIN hosts ON hosts.name = actions.host
    WHERE unresolved = 0 AND run_id IS NOT NULL AND hosts.json ->> '$.state_id' IS NOT NULL
    AND actions.json ->> '$.workload.state' IN ('finished', 'cancelled', 'launch_failed', 'lost');

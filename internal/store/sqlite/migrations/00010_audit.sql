-- +goose Up

-- What a reviewer may ask for, as bits of what an action's JSON says (traits in audit.go), each with an index of
-- the actions that have it.
ALTER TABLE actions ADD COLUMN traits INTEGER NOT NULL DEFAULT 0;
UPDATE actions SET traits = (
    1 * (unresolved = 0 AND json ->> '$.launch.state' = 'accepted' AND json ->> '$.workload.state' <> 'launch_failed'
        AND json ->> '$.approval.state' <> 'consumed')
    + 2 * (unresolved = 0 AND json ->> '$.launch.state' = 'accepted' AND json ->> '$.workload.state' <> 'launch_failed'
        AND json ->> '$.approval.state' NOT IN ('consumed', 'not_required'))
    + 4 * (json ->> '$.cancel.state' IN ('requested', 'delivered', 'unconfirmed') AND json ->> '$.launch.state' <> 'rejected')
    + 8 * (coalesce(json_array_length(json, '$.workload.left'), 0) + coalesce(json_array_length(json, '$.workload.released'), 0)
        + coalesce(json_array_length(json, '$.workload.survivors'), 0) > 0)
    + 16 * (coalesce(json ->> '$.workload.unsigned', 0) OR coalesce(json ->> '$.unknown_because', '') = 'unreadable_record'
        OR coalesce(json ->> '$.observation.because', '') = 'unreadable_record')
    + 32 * (json ->> '$.resolution' IS NOT NULL)
    + 64 * (unresolved = 0 AND json ->> '$.outcome' = 'unknown'));

CREATE INDEX audit_unapproved ON actions (seq) WHERE traits & 1;
CREATE INDEX audit_unasked ON actions (seq) WHERE traits & 2;
CREATE INDEX audit_unconfirmed ON actions (seq) WHERE traits & 4;
CREATE INDEX audit_left ON actions (seq) WHERE traits & 8;
CREATE INDEX audit_unsigned ON actions (seq) WHERE traits & 16;
CREATE INDEX audit_resolved ON actions (seq) WHERE traits & 32;
CREATE INDEX audit_unknown ON actions (seq) WHERE traits & 64;

-- +goose Up

-- Runs that were lost: nothing more can be asked, the outcome stays unknown, and people are to see it.
CREATE INDEX actions_unknown ON actions (host) WHERE unresolved = 0 AND outcome = 'unknown';

package sqlite

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/longstop/longstop/internal/journal"
)

// fileEvery is how many entries are filed at once, by their session and their host: with the last of each
// block, in its transaction. Which entries are filed therefore follows from how many there are.
const fileEvery = 128

// fileEntries files a block of entries.
const fileEntries = `INSERT INTO filed
	SELECT 'session_id', session_id, idx FROM entries WHERE idx BETWEEN ?1 AND ?2 AND session_id IS NOT NULL
	UNION ALL SELECT 'host', host, idx FROM entries WHERE idx BETWEEN ?1 AND ?2 AND host IS NOT NULL`

// file files the block that an entry ends.
func (tx *Tx) file(entry int64) error {
	if (entry+1)%fileEvery != 0 {
		return nil
	}
	return tx.store.exec(tx.store.stmt.fileEntries, entry+1-fileEvery, entry)
}

// filed and unfiled are the two parts of the entries whose field (session_id or host) has a value, for more
// conditions and an order to follow. Either gives indexes of entries, by an index or out of one block.
func filed(field, value string) string {
	return `SELECT entries.idx FROM filed CROSS JOIN entries ON entries.idx = filed.idx WHERE field = '` + field + `' AND value = ` + value
}

func unfiled(field, value string) string {
	every := strconv.Itoa(fileEvery)
	return `SELECT entries.idx FROM entries WHERE entries.idx >= (SELECT (max(idx) + 1) / ` + every + ` * ` + every + ` FROM entries) AND ` + field + ` = ` + value
}

// filedSince is the schema from which on entries are filed.
const filedSince = 11

// verifyFiled checks that the whole blocks are filed, and nothing else. What an earlier version wrote, and no gateway
// of this one has opened, is verified too: there none are.
func verifyFiled(ctx context.Context, db querier) error {
	if version, err := schemaVersion(ctx, db); err != nil || version < filedSince {
		return err
	}
	const query = `WITH fields AS (SELECT 'session_id' AS field, session_id AS value, idx FROM entries UNION ALL SELECT 'host', host, idx FROM entries)
		SELECT min(idx) FROM (
			SELECT idx FROM fields WHERE value IS NOT NULL AND idx < (SELECT (max(idx) + 1) / ?1 * ?1 FROM entries)
				AND NOT EXISTS (SELECT 1 FROM filed WHERE filed.field = fields.field AND filed.value = fields.value AND filed.idx = fields.idx)
			UNION ALL SELECT filed.idx FROM filed LEFT JOIN entries ON entries.idx = filed.idx
				WHERE iif(field = 'host', host, session_id) IS NOT value OR field NOT IN ('host', 'session_id'))`
	var entry sql.NullInt64
	if err := db.QueryRowContext(ctx, query, fileEvery).Scan(&entry); err != nil || !entry.Valid {
		return err
	}
	return &journal.BadEntry{Index: entry.Int64, Why: "it is filed under another session or host, or not filed"}
}

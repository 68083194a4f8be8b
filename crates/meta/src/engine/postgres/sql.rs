//! All SQL statements.

use cairn_base::{Error, Result};

/// Version of the tables.
pub const FORMAT: i64 = 1;
/// Longest name that PostgreSQL does not truncate, bytes.
const NAME_BYTES: usize = 63;

/// The statements, with the name of the schema filled in.
pub struct Sql {
    pub schema: String,
    /// Returns the fence and the number of the attempt; no row from a standby. The same holds for
    /// `read`.
    pub fence: String,
    /// Parameters: keys.
    pub get: String,
    /// Returns the same as `get`, with the batch in each row, and at least one row.
    pub read: String,
    /// Parameters: start, end, limit.
    pub scan: String,
    /// Parameters: epoch, batch, attempt, deleted keys, put keys, put values. Returns one row if it
    /// committed.
    pub commit: String,
    /// Parameters: epoch, attempt.
    pub raise_attempt: String,
    /// Parameters: the least batch, milliseconds of the lease.
    pub take_over: String,
    /// Parameters: those of `take_over`, then the expected epoch, heartbeat and batch.
    pub take_turn: String,
    /// Parameters: epoch. Returns one row if it renewed the lease.
    pub renew: String,
    /// Parameters: epoch.
    pub give_up: String,
    /// Statement by which a standby reads the fence.
    pub watch: String,
}

/// Condition that also sets the commit to be synchronous: settings that a pooler kept from other
/// clients do not matter.
const DURABLY: &str = "set_config('synchronous_commit', 'on', true) = 'on'";

/// Condition that only the primary meets. A pooler may lead one statement to the primary, and the
/// next to a server that has become a standby and lacks the latest commits.
const BY_PRIMARY: &str = "NOT pg_is_in_recovery()";

impl Sql {
    pub fn new(schema: &str) -> Result<Sql> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > NAME_BYTES || !schema.chars().all(is_plain) {
            return Err(Error::Invalid(format!(
                "the schema {schema:?}: a name has 1 to {NAME_BYTES} of a-z, 0-9 and _"
            )));
        }
        let take_over = |expected: &str| {
            format!(
                "UPDATE \"{schema}\".fence SET epoch = epoch + 1, batch = greatest(batch, $1), \
                   heartbeat = 1, lease_ms = $2 WHERE {DURABLY}{expected} \
                 RETURNING epoch, batch, attempt"
            )
        };
        let (rows, fence) = (format!("\"{schema}\".rows"), format!("\"{schema}\".fence"));
        Ok(Sql {
            fence: format!("SELECT epoch, batch, attempt FROM {fence} WHERE {BY_PRIMARY}"),
            get: format!("SELECT key, value FROM {rows} WHERE key = ANY ($1)"),
            read: format!(
                "SELECT key, value, batch FROM {fence} LEFT JOIN {rows} ON key = ANY ($1) \
                 WHERE {BY_PRIMARY}"
            ),
            scan: format!(
                "SELECT key, value FROM {rows} WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3"
            ),
            commit: format!(
                "WITH moved AS (UPDATE {fence} SET batch = batch + 1 \
                   WHERE epoch = $1 AND batch = $2 AND attempt = $3 AND {DURABLY} RETURNING 1), \
                 deleted AS (DELETE FROM {rows} \
                   WHERE key = ANY ($4) AND EXISTS (SELECT FROM moved)), \
                 put AS (INSERT INTO {rows} (key, value) \
                   SELECT put_key, put_value FROM unnest($5, $6) AS change (put_key, put_value) \
                   WHERE EXISTS (SELECT FROM moved) \
                   ON CONFLICT (key) DO UPDATE SET value = excluded.value) \
                 SELECT 1 FROM moved"
            ),
            raise_attempt: format!(
                "UPDATE {fence} SET attempt = greatest(attempt, $2) WHERE epoch = $1 AND {DURABLY}"
            ),
            take_over: take_over(""),
            take_turn: take_over(" AND epoch = $3 AND heartbeat = $4 AND batch = $5"),
            renew: format!(
                "UPDATE {fence} SET heartbeat = heartbeat + 1 \
                 WHERE epoch = $1 AND {DURABLY} RETURNING 1"
            ),
            give_up: format!("UPDATE {fence} SET heartbeat = 0 WHERE epoch = $1 AND {DURABLY}"),
            watch: format!("SELECT epoch, heartbeat, batch, lease_ms FROM {fence}"),
            schema: schema.to_owned(),
        })
    }

    /// Returns the statements that create the tables. A second process waits, then finds all of
    /// them. Values are mostly contents of files and are not compressed.
    pub fn create(&self, in_schema: bool) -> String {
        let schema = &self.schema;
        // Even if the schema exists, creating it needs a right that its owner may lack.
        let make_schema = if in_schema {
            String::new()
        } else {
            format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"; ")
        };
        format!(
            "BEGIN; \
             SELECT pg_advisory_xact_lock(hashtext('cairn'), hashtext('{schema}')); \
             {make_schema}\
             CREATE TABLE IF NOT EXISTS \"{schema}\".rows ( \
               key bytea NOT NULL PRIMARY KEY, value bytea NOT NULL) WITH (fillfactor = 90); \
             ALTER TABLE \"{schema}\".rows ALTER value SET STORAGE EXTERNAL; \
             CREATE TABLE IF NOT EXISTS \"{schema}\".fence ( \
               single boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (single), \
               format bigint NOT NULL, epoch bigint NOT NULL, batch bigint NOT NULL, \
               attempt bigint NOT NULL, heartbeat bigint NOT NULL, lease_ms bigint NOT NULL) \
               WITH (fillfactor = 10); \
             INSERT INTO \"{schema}\".fence \
               (format, epoch, batch, attempt, heartbeat, lease_ms) \
               VALUES ({FORMAT}, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING; \
             COMMIT"
        )
    }
}

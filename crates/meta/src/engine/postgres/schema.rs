//! The tables, and all that is said to them.

use cairn_base::{Error, Result};
use tokio_postgres::types::Type;

use super::link::{Fault, Link, Params, Target};

/// Version of the tables.
const FORMAT: i64 = 1;
/// PostgreSQL cuts longer names off, bytes.
const NAME_BYTES: usize = 63;

/// The statements, with the name of the schema in them.
pub struct Sql {
    schema: String,
    /// The fence and the number of the attempt.
    pub fence: String,
    /// Parameters: keys.
    pub get: String,
    /// As `get`, with the batch in each row, of which there is at least one.
    pub read: String,
    /// Parameters: start, end, limit.
    pub scan: String,
    /// Parameters: epoch, batch, attempt, deleted keys, put keys, put values. One row if done.
    pub commit: String,
    /// Parameters: epoch, attempt.
    pub raise_attempt: String,
    /// Parameters: the least batch, milliseconds of the lease.
    pub take_over: String,
    /// Parameters: those of `take_over`; epoch, heartbeat and batch that are expected.
    pub take_turn: String,
    /// Parameters: epoch. One row if done.
    pub renew: String,
    /// Parameters: epoch.
    pub give_up: String,
    /// What a standby looks at.
    pub watch: String,
}

/// Settings that a pooler may have kept from others do not matter.
const DURABLY: &str = "set_config('synchronous_commit', 'on', true) = 'on'";

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
            fence: format!("SELECT epoch, batch, attempt FROM {fence}"),
            get: format!("SELECT key, value FROM {rows} WHERE key = ANY ($1)"),
            read: format!(
                "SELECT key, value, batch FROM {fence} LEFT JOIN {rows} ON key = ANY ($1)"
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

    /// Who comes second waits, then finds all there. Values are mostly contents of files: they
    /// are not compressed.
    fn create(&self, in_schema: bool) -> String {
        let schema = &self.schema;
        // Even if it is there, making it takes a right that its owner may lack.
        let make_schema = match in_schema {
            true => String::new(),
            false => format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"; "),
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

/// Makes the tables if that is wanted and they are not there, and refuses those of another format.
pub fn prepare(target: &Target, link: &Link, create: bool) -> Result<()> {
    let (sql, shown) = (&target.sql, target.shown());
    let schema = &sql.schema;
    let exists = "SELECT to_regclass($1) IS NOT NULL, to_regnamespace($2) IS NOT NULL";
    let names = [format!("\"{schema}\".fence"), format!("\"{schema}\"")];
    let params: &Params<'_> = &[(&names[0], Type::TEXT), (&names[1], Type::TEXT)];
    let found = link.query(exists, params).map_err(|fault| fault.at(target))?;
    let exists = |at| found.first().is_some_and(|row| row.try_get(at).unwrap_or(false));
    if !exists(0) {
        if !create {
            let text =
                format!("{shown}: no tables of Cairn in schema {schema:?}: name the right one");
            return Err(Error::NotFound(text));
        }
        link.execute(&sql.create(exists(1))).map_err(|fault| not_made(target, fault))?;
        tracing::info!(database = shown, schema, "tables made");
    }
    let read = format!("SELECT format FROM \"{schema}\".fence");
    let rows = link.query(&read, &[]).map_err(|fault| fault.at(target))?;
    let format: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
    match format {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(Error::Invalid(format!(
            "{shown}: schema {schema:?} has format {newer}, this version of Cairn knows {FORMAT}: \
             use a newer one"
        ))),
        other => {
            let what = format!("{shown}, schema {schema:?}: format");
            Err(Error::corrupt(what, format!("{other:?}"), FORMAT))
        }
    }
}

/// Removes the tables and all else in their schema.
pub fn remove(target: &Target, link: &Link) -> Result<()> {
    let sql = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", target.sql.schema);
    link.execute(&sql).map_err(|fault| fault.at(target))
}

fn not_made(target: &Target, fault: Fault) -> Error {
    match fault {
        Fault::Refused { text, .. } => Error::Invalid(format!(
            "{}: making the tables in schema {:?}: {text}: let the user create schemas in this \
             database, or make the schema and let the user own it",
            target.shown(),
            target.sql.schema
        )),
        lost @ Fault::Lost { .. } => lost.at(target),
    }
}

//! Refuses servers that could lose acknowledged commits.

use cairn_base::{Error, Result};
use tokio_postgres::Row;

use super::link::{DatabaseLink, Fault};

const SETTINGS: &str = "SELECT current_setting('server_version_num'), current_setting('fsync'), \
     current_setting('full_page_writes'), current_setting('synchronous_commit'), \
     CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END";

const OLDEST_VERSION: u32 = 130_000;

/// Counts standbys. To a user that may not see how a standby is attached, it has no state: then it
/// counts as asynchronous. Backups and logical replication do not take over.
const STANDBYS: &str = "SELECT count(*) FROM pg_stat_replication AS standby \
     WHERE coalesce(sync_state, 'async') = 'async' AND state IS DISTINCT FROM 'backup' \
     AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot \
                     WHERE slot.active_pid = standby.pid AND slot.slot_type = 'logical')";

fn text(row: &Row, column: usize) -> &str {
    row.try_get(column).unwrap_or_default()
}

/// Refuses a server with settings that lose acknowledged commits; the outer error is that of the
/// connection.
pub fn check_settings(shown: &str, link: &DatabaseLink) -> Result<Result<()>, Fault> {
    let rows = link.query(SETTINGS, &[])?;
    if rows.first().is_some_and(|row| text(row, 4) != "primary") {
        return Err(Fault::standby());
    }
    Ok(check_row(shown, rows.first()))
}

fn check_row(shown: &str, row: Option<&Row>) -> Result<()> {
    let Some(row) = row else {
        return Err(Error::Unavailable(format!(
            "{}: the database did not report its settings",
            shown
        )));
    };
    let unfit = |why: &str| Err(Error::Invalid(format!("{}: {why}", shown)));
    let version: u32 = text(row, 0).parse().unwrap_or(0);
    if version < OLDEST_VERSION {
        return unfit(&format!(
            "its version is {}.{}: version {} or later is needed",
            version / 10_000,
            version % 10_000,
            OLDEST_VERSION / 10_000
        ));
    }
    for (column, setting) in [(1, "fsync"), (2, "full_page_writes")] {
        if text(row, column) != "on" {
            return unfit(&format!(
                "{setting} is not on, so a crash may destroy the database: \
                 set {setting} = on in postgresql.conf and reload"
            ));
        }
    }
    if !["on", "remote_apply"].contains(&text(row, 3)) {
        return unfit(&format!(
            "synchronous_commit is {}, so acknowledged changes may be lost: set it to on in \
             postgresql.conf, for this user and for this database, and reload",
            text(row, 3)
        ));
    }
    Ok(())
}

/// Refuses standbys that may lack acknowledged commits, unless they are `accepted`.
pub fn check_standbys(shown: &str, link: &DatabaseLink, accepted: bool) -> Result<()> {
    let rows = link.query(STANDBYS, &[]).map_err(|fault| fault.at(shown))?;
    let standbys: i64 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or_default();
    if standbys == 0 {
        return Ok(());
    }
    if accepted {
        tracing::warn!(standbys, "asynchronous standbys: a failover may lose acknowledged changes");
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{}: {standbys} of its standbys are asynchronous or not visible to this user, so a \
         failover may lose acknowledged changes: name them in synchronous_standby_names (and \
         grant pg_read_all_stats to the user), or accept it with --accept-lossy-failover",
        shown
    )))
}

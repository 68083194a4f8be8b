//! Checks everything an engine has on disk. For `fsck`: the engine must not be open.

use cairn_base::{Disk, Error, Result};

use super::super::Fence;
use super::super::config::Config;
use super::super::files;
use super::super::ring::Ring;
use super::super::row_store::Table;
use super::recover::recover;

/// Findings of [`verify`].
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Fence that an engine opened now would show.
    pub fence: Fence,
    /// Log records that are not in the table yet.
    pub log_records: u64,
    /// Set if the table had to be repaired (as after a crash), and was.
    pub repaired: bool,
}

/// Reads the whole table of rows, checking every page, and the whole log.
///
/// # Errors
/// `NotFound` if there is no engine, `Corrupt` for any damage.
pub fn verify(disk: &dyn Disk, config: &Config) -> Result<Report> {
    if !disk.list()?.iter().any(|name| name == files::ROWS) {
        return Err(Error::NotFound(format!("{} in the metadata directory", files::ROWS)));
    }
    let mut table = Table::open(&disk.open(files::ROWS)?, config.cache_bytes)?;
    let repaired = !table.check()?;
    let mark = table.cold()?.mark.clone();
    super::require_embedded(&mark)?;
    let log = Ring::open(disk, &mark)?;
    let recovered = recover(&log, &mark)?;
    let log_records = recovered.mark.sequence - mark.sequence;
    Ok(Report { fence: recovered.mark.fence, log_records, repaired })
}

//! Small files beside the log and the table: space put by for a full disk, and the note that the
//! table's last write went wrong.

use cairn_base::{Disk, Error, Result};

use super::Config;

pub const RESERVE: &str = "reserve";
pub const SUSPECT: &str = "suspect";

/// Makes sure that a checkpoint has the space it may need, if need be by giving up the reserve.
///
/// # Errors
/// `Full` where there is not enough.
pub fn make_space(disk: &dyn Disk, config: &Config) -> Result<()> {
    if disk.free_bytes()? >= config.reserve_bytes {
        return Ok(());
    }
    match disk.remove(RESERVE) {
        Ok(()) => {
            tracing::warn!("the disk is full: metadata goes on in the space put by for that");
            disk.sync()?;
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::Full(format!(
            "the disk of the metadata: {} bytes must be free",
            config.reserve_bytes
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Puts space by again when there is plenty. Not urgent: tried again after the next checkpoint.
pub fn restore(disk: &dyn Disk, config: &Config) {
    if config.reserve_bytes == 0 || disk.open(RESERVE).is_ok() {
        return;
    }
    let free = disk.free_bytes().unwrap_or(0);
    if free >= config.reserve_bytes.saturating_mul(3) {
        let made = disk.create(RESERVE).and_then(|file| file.allocate(config.reserve_bytes));
        if made.and_then(|()| disk.sync()).is_err() {
            let _ = disk.remove(RESERVE);
        }
    }
}

/// Notes for the next start that the table must be written anew before it is trusted: what the
/// page cache shows of it may never have reached the disk. If this fails too, the disk is gone.
pub fn mark_suspect(disk: &dyn Disk) {
    let noted = disk.create(SUSPECT).map(drop).and_then(|()| disk.sync());
    if let Err(error) = noted {
        tracing::error!("cannot note that the table of rows is suspect: {error}");
    }
}

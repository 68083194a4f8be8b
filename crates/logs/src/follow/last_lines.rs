//! The search for the beginning of a file's last lines.

use cairn_base::{Error, Result};
use cairn_fs::Object;

use crate::limits::{LAST_LINES_BYTES, LAST_LINES_STEP};

/// Searches files backwards for lines, the last file first.
pub struct LastLines {
    /// Number of lines still to be found.
    pub wanted: usize,
    /// Bytes searched so far.
    looked: u64,
}

impl LastLines {
    pub fn new(wanted: usize) -> LastLines {
        LastLines { wanted, looked: 0 }
    }

    /// Returns the offset at which those of the wanted lines begin that are in this file. Bytes
    /// behind the last newline count as a line.
    ///
    /// # Errors
    /// `TooLarge` if the lines are longer than the search may go back.
    pub async fn begin(&mut self, object: &Object) -> Result<u64> {
        let size = object.size();
        let mut end = size;
        while end > 0 && self.wanted > 0 {
            let start = end.saturating_sub(LAST_LINES_STEP);
            self.looked += end - start;
            if self.looked > LAST_LINES_BYTES {
                return Err(Error::TooLarge(format!(
                    "lines: the last ones are more than {LAST_LINES_BYTES} bytes: ask for fewer, \
                     or follow from an offset"
                )));
            }
            let bytes = object.read_all(start..end).await?;
            // The newline at the end of a file begins no line.
            let last = if end == size { bytes.len().saturating_sub(1) } else { bytes.len() };
            let mut new_lines = bytes.iter().take(last).enumerate().rev();
            while let Some((at, _)) = new_lines.find(|(_, byte)| **byte == b'\n') {
                self.wanted -= 1;
                if self.wanted == 0 {
                    return Ok(start + at as u64 + 1);
                }
            }
            end = start;
        }
        // No newline precedes the first line.
        if size > 0 && self.wanted > 0 {
            self.wanted -= 1;
            return Ok(0);
        }
        Ok(end)
    }
}

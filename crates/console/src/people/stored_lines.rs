//! The lines of an object, from its end.

use bytes::Bytes;
use cairn_base::Result;
use cairn_fs::Object;

/// Bytes that are read at once: twice as many if a line is longer, but at most `LONGEST`. A line
/// that is longer still is skipped.
const CHUNK: u64 = 256 << 10;
const LONGEST: u64 = 2 << 20;

/// Gives lines before an offset to `take`, the last line first, until it returns false or `most`
/// bytes were read. Returns the offset at which to go on, if there is more.
pub async fn each(
    object: &Object,
    before: u64,
    most: u64,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<Option<u64>> {
    let first = before.min(object.size());
    let mut end = first;
    while end > 0 && first - end < most {
        let (start, bytes) = chunk(object, end).await?;
        let mut upto = bytes.len();
        while upto > 0 {
            let line_end = if bytes.get(upto - 1) == Some(&b'\n') { upto - 1 } else { upto };
            let head = bytes.get(..line_end).unwrap_or_default();
            let from = head.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if !take(head.get(from..).unwrap_or_default()) {
                return Ok(Some(start + upto as u64));
            }
            upto = from;
        }
        end = start;
    }
    Ok((end > 0).then_some(end))
}

/// Reads whole lines up to an offset. Returns them and their start.
async fn chunk(object: &Object, end: u64) -> Result<(u64, Bytes)> {
    let mut span = CHUNK;
    loop {
        let start = end.saturating_sub(span);
        let bytes = object.read_all(start..end).await?;
        if start == 0 {
            return Ok((0, bytes));
        }
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(at) if at + 1 < bytes.len() => {
                return Ok((start + at as u64 + 1, bytes.slice(at + 1..)));
            }
            _ if span >= LONGEST => return Ok((start, Bytes::new())),
            _ => span *= 2,
        }
    }
}

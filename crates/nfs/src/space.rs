//! FSSTAT, FSINFO and PATHCONF.

use cairn_base::limits::NAME_BYTES;
use cairn_fs::ops::body::FILE_BYTES;
use cairn_posix::Space;

use crate::desk::{Client, Desk};
use crate::limits::{HANDLE_BYTES, IO_BYTES, LIST_BYTES};
use crate::status::Done;
use crate::xdr::{Reader, Writer};

/// Preferred multiple of the sizes of reads and writes, bytes.
const MULTIPLE: u32 = 4096;
/// Properties of the file system: hard and symbolic links, the same PATHCONF everywhere, times can
/// be set.
const PROPERTIES: u32 = 1 | 2 | 8 | 16;

pub async fn fsstat(desk: &Desk, client: &Client, mut arguments: Reader, result: Writer) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let space = desk.posix.space(place.who(), place.ino).await;
    let write = |result: &mut Writer, space: Space| {
        result.long(space.bytes).long(space.free_bytes).long(space.free_bytes);
        result.long(space.files).long(space.free_files).long(space.free_files);
        // Seconds for which these values stay the same: none.
        result.number(0);
    };
    Ok(desk.tell(&place, space, result, write).await)
}

pub async fn fsinfo(desk: &Desk, client: &Client, arguments: Reader, result: Writer) -> Done {
    tell(desk, client, arguments, result, |result| {
        // Sizes of reads, then of writes: maximum, preferred, multiple.
        for _ in 0..2 {
            result.number(IO_BYTES).number(IO_BYTES).number(MULTIPLE);
        }
        // Resolution of times: one nanosecond.
        result.number(LIST_BYTES).long(FILE_BYTES).number(0).number(1).number(PROPERTIES);
    })
    .await
}

pub async fn pathconf(desk: &Desk, client: &Client, arguments: Reader, result: Writer) -> Done {
    tell(desk, client, arguments, result, |result| {
        result.number(u32::MAX).number(NAME_BYTES as u32);
        // PATHCONF: longer names are refused, giving files away is refused, case matters and is
        // kept.
        result.flag(true).flag(true).flag(false).flag(true);
    })
    .await
}

/// Answers with numbers that are the same for all exports.
async fn tell(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    result: Writer,
    what: impl Fn(&mut Writer),
) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let found = desk.posix.attributes(place.who(), place.ino, false).await;
    Ok(desk.tell(&place, found, result, |result, _| what(result)).await)
}

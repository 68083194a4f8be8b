//! FSSTAT, FSINFO and PATHCONF.

use cairn_base::Result;
use cairn_base::limits::NAME_BYTES;
use cairn_fs::ops::body::FILE_BYTES;

use crate::attributes::write_after;
use crate::desk::{Client, Desk};
use crate::limits::{HANDLE_BYTES, IO_BYTES, LIST_BYTES};
use crate::rpc::Reply;
use crate::status::Status;
use crate::xdr::{Garbage, Reader, Writer};

/// Reads and writes are best a multiple of it, bytes.
const MULTIPLE: u32 = 4096;
/// There are links and symbolic links, PATHCONF says the same everywhere, and times can be set.
const PROPERTIES: u32 = 1 | 2 | 8 | 16;

pub async fn fsstat(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Result<Reply, Garbage> {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    arguments.end()?;
    let place = match desk.place(client, &handle).await {
        Ok(place) => place,
        Err(status) => return Ok(status.alone(result, 1)),
    };
    let space = desk.posix.space(place.who(), place.ino).await;
    let status = space.as_ref().err().map_or(Status::OK, Status::of_inode);
    result.number(status.0);
    write_after(&mut result, place.bucket, desk.shown(&place).await.as_ref());
    if let Ok(space) = space {
        result.long(space.bytes).long(space.free_bytes).long(space.free_bytes);
        result.long(space.files).long(space.free_files).long(space.free_files);
        // It may change at any time.
        result.number(0);
    }
    Ok(result.into())
}

pub async fn fsinfo(
    desk: &Desk,
    client: &Client,
    arguments: Reader,
    result: Writer,
) -> Result<Reply, Garbage> {
    tell(desk, client, arguments, result, |result| {
        // Reading, and writing: most, best, multiple.
        for _ in 0..2 {
            result.number(IO_BYTES).number(IO_BYTES).number(MULTIPLE);
        }
        // Times are kept in nanoseconds.
        result.number(LIST_BYTES).long(FILE_BYTES).number(0).number(1).number(PROPERTIES);
    })
    .await
}

pub async fn pathconf(
    desk: &Desk,
    client: &Client,
    arguments: Reader,
    result: Writer,
) -> Result<Reply, Garbage> {
    tell(desk, client, arguments, result, |result| {
        result.number(u32::MAX).number(NAME_BYTES as u32);
        // Longer names are refused, and so is giving files away; the case of letters is kept, and
        // makes a difference.
        result.flag(true).flag(true).flag(false).flag(true);
    })
    .await
}

/// What is the same of all exports.
async fn tell(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
    what: impl Fn(&mut Writer),
) -> Result<Reply, Garbage> {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    arguments.end()?;
    let place = match desk.place(client, &handle).await {
        Ok(place) => place,
        Err(status) => return Ok(status.alone(result, 1)),
    };
    let found = desk.posix.attributes(place.who(), place.ino, false).await;
    match found {
        Ok((shown, _)) => {
            result.number(Status::OK.0);
            write_after(&mut result, place.bucket, Some(&shown));
            what(&mut result);
            Ok(result.into())
        }
        Err(error) => Ok(Status::of_inode(&error).alone(result, 1)),
    }
}

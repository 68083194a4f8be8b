//! GETATTR, SETATTR, ACCESS and READLINK.

use cairn_posix::{Changes, Kind, Rights};

use crate::attributes::{read, read_time, write, write_after, write_around};
use crate::desk::{Client, Desk, Place};
use crate::limits::HANDLE_BYTES;
use crate::status::{Done, Status};
use crate::xdr::{Reader, Writer};

const READ: u32 = 1;
const LOOKUP: u32 = 2;
const MODIFY: u32 = 4;
const EXTEND: u32 = 8;
const DELETE: u32 = 16;
const EXECUTE: u32 = 32;

pub async fn getattr(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let found = desk.posix.attributes(place.who(), place.ino, true).await;
    let (shown, _) = found.map_err(|error| Status::of_inode(&error))?;
    result.number(Status::OK.0);
    write(&mut result, place.bucket, &shown);
    Ok(result.into())
}

pub async fn setattr(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    let changes = read(&mut arguments)?;
    let guard = arguments.flag()?.then(|| read_time(&mut arguments)).transpose()?;
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let work = async {
        place.check_writable()?;
        let changes: Changes = changes?;
        if let Some(guard) = guard.transpose()? {
            let found = desk.posix.attributes(place.who(), place.ino, true).await;
            let (shown, _) = found.map_err(|error| Status::of_inode(&error))?;
            // This very call may have made the change, in an earlier attempt.
            let was_set = async {
                let was_set = desk.posix.was_set(&place.who).await;
                was_set.map_err(|error| Status::of(&error))
            };
            if shown.ctime != guard && !was_set.await? {
                return Err(Status::NOT_SYNC);
            }
        }
        desk.set(&place, place.ino, changes).await.map(drop)
    };
    let (set, [around]) = desk.posix.around(&place.who, [place.ino], work).await;
    result.number(set.err().unwrap_or(Status::OK).0);
    write_around(&mut result, place.bucket, &around);
    Ok(result.into())
}

pub async fn access(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Done {
    let (handle, wanted) = (arguments.bytes(HANDLE_BYTES)?, arguments.number()?);
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let rights = desk.posix.rights(place.who(), place.ino).await;
    let (shown, is_gone) = desk.shown_or_gone(&place).await;
    match (rights, &shown) {
        (Ok(rights), Some(shown)) => {
            let may = may(&place, rights, shown.kind) & wanted;
            result.number(Status::OK.0);
            write_after(&mut result, place.bucket, Some(shown));
            result.number(may);
        }
        (rights, shown) => {
            let nothing = if is_gone { Status::STALE } else { Status::JUKEBOX };
            let status = rights.err().map_or(nothing, |error| Status::of_inode(&error));
            result.number(status.0);
            write_after(&mut result, place.bucket, shown.as_ref());
        }
    }
    Ok(result.into())
}

fn may(place: &Place, rights: Rights, kind: Kind) -> u32 {
    let bits = |may, bits| if may { bits } else { 0 };
    let writes = rights.writes && !place.is_read_only;
    let is_directory = kind == Kind::Directory;
    bits(rights.reads, READ)
        | bits(writes, MODIFY | EXTEND)
        | bits(writes && is_directory, DELETE)
        | bits(rights.executes, if is_directory { LOOKUP } else { EXECUTE })
}

pub async fn readlink(desk: &Desk, client: &Client, mut arguments: Reader, result: Writer) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let target = desk.posix.read_link(place.who(), place.ino).await;
    Ok(desk
        .tell(&place, target, result, |result, target| {
            result.bytes(&target);
        })
        .await)
}

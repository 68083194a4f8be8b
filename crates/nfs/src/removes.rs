//! REMOVE, RMDIR and RENAME.

use cairn_base::Result;
use cairn_posix::{Around, RenameMode};

use crate::attributes::write_around;
use crate::desk::{Client, Desk, Place};
use crate::limits::{HANDLE_BYTES, NAME_BYTES};
use crate::rpc::Reply;
use crate::status::Status;
use crate::xdr::{Garbage, Reader, Writer};

pub async fn remove(
    desk: &Desk,
    client: &Client,
    arguments: Reader,
    result: Writer,
) -> Result<Reply, Garbage> {
    remove_from(desk, client, arguments, false, result).await
}

pub async fn rmdir(
    desk: &Desk,
    client: &Client,
    arguments: Reader,
    result: Writer,
) -> Result<Reply, Garbage> {
    remove_from(desk, client, arguments, true, result).await
}

async fn remove_from(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    is_directory: bool,
    mut result: Writer,
) -> Result<Reply, Garbage> {
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    arguments.end()?;
    let place = match desk.place(client, &handle).await {
        Ok(place) => place,
        Err(status) => return Ok(status.alone(result, 2)),
    };
    let work = async {
        place.check_writable()?;
        let at = (place.ino, &name[..]);
        let removed = match is_directory {
            true => desk.posix.remove_directory(place.who(), at).await,
            false => desk.posix.remove_file(place.who(), at).await,
        };
        removed.map_err(|error| Status::of_name(&error))
    };
    let (removed, [around]) = desk.posix.around(&place.who, [place.ino], work).await;
    result.number(of_children(removed, &[around]).0);
    write_around(&mut result, place.bucket, &around);
    Ok(result.into())
}

/// A name that is not found in a directory that is gone is not what is missing.
fn of_children(done: Result<(), Status>, around: &[Around]) -> Status {
    match done {
        Err(Status::NOENT) if around.iter().any(|around| around.after.is_none()) => Status::STALE,
        Err(status) => status,
        Ok(()) => Status::OK,
    }
}

pub async fn rename(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Result<Reply, Garbage> {
    let (source, source_name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    let (target, target_name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    arguments.end()?;
    let places = (desk.place(client, &source).await, desk.place(client, &target).await);
    let (source, target) = match places {
        (Ok(source), Ok(target)) => (source, target),
        (Err(status), _) | (_, Err(status)) => return Ok(status.alone(result, 4)),
    };
    let work = rename_in(desk, (&source, &source_name), (&target, &target_name));
    let (renamed, around) = match source.ino == target.ino {
        true => {
            let (renamed, [both]) = desk.posix.around(&source.who, [source.ino], work).await;
            (renamed, [both, both])
        }
        false => desk.posix.around(&source.who, [source.ino, target.ino], work).await,
    };
    result.number(of_children(renamed, &around).0);
    write_around(&mut result, source.bucket, &around[0]);
    write_around(&mut result, target.bucket, &around[1]);
    Ok(result.into())
}

async fn rename_in(
    desk: &Desk,
    (source, source_name): (&Place, &[u8]),
    (target, target_name): (&Place, &[u8]),
) -> Result<(), Status> {
    source.check_writable()?;
    if !source.is_beside(target) {
        return Err(Status::XDEV);
    }
    let target_name = std::str::from_utf8(target_name).map_err(|_| Status::INVAL)?;
    let (from, to) = ((source.ino, source_name), (target.ino, target_name));
    let renamed = desk.posix.rename(source.who(), from, to, RenameMode::Replace).await;
    renamed.map_err(|error| Status::of_name(&error))
}

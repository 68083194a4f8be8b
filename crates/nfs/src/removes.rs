//! REMOVE, RMDIR and RENAME.

use cairn_base::Result;
use cairn_posix::RenameMode;

use crate::attributes::{of_children, write_around};
use crate::desk::{Client, Desk, Place};
use crate::limits::{HANDLE_BYTES, NAME_BYTES};
use crate::status::{Done, Status};
use crate::xdr::{Reader, Writer};

pub async fn remove(desk: &Desk, client: &Client, arguments: Reader, result: Writer) -> Done {
    remove_from(desk, client, arguments, false, result).await
}

pub async fn rmdir(desk: &Desk, client: &Client, arguments: Reader, result: Writer) -> Done {
    remove_from(desk, client, arguments, true, result).await
}

async fn remove_from(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    is_directory: bool,
    mut result: Writer,
) -> Done {
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let work = async {
        place.check_writable()?;
        let removed = if is_directory {
            desk.posix.remove_directory(place.who(), place.ino, &name).await
        } else {
            desk.posix.remove_file(place.who(), place.ino, &name).await
        };
        removed.map_err(|error| Status::of_name(&error))
    };
    let (removed, [around]) = desk.posix.around(&place.who, [place.ino], work).await;
    result.number(of_children(removed, &[around]).0);
    write_around(&mut result, place.bucket, &around);
    Ok(result.into())
}

pub async fn rename(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Done {
    let (source, source_name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    let (target, target_name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    arguments.end()?;
    let (source, target) = (desk.place(client, &source).await?, desk.place(client, &target).await?);
    let work = rename_in(desk, &source, &source_name, &target, &target_name);
    let (renamed, around) = if source.ino == target.ino {
        let (renamed, [both]) = desk.posix.around(&source.who, [source.ino], work).await;
        (renamed, [both, both])
    } else {
        desk.posix.around(&source.who, [source.ino, target.ino], work).await
    };
    result.number(of_children(renamed, &around).0);
    write_around(&mut result, source.bucket, &around[0]);
    write_around(&mut result, target.bucket, &around[1]);
    Ok(result.into())
}

async fn rename_in(
    desk: &Desk,
    source: &Place,
    source_name: &[u8],
    target: &Place,
    target_name: &[u8],
) -> Result<(), Status> {
    source.check_writable()?;
    if !source.is_beside(target) {
        return Err(Status::XDEV);
    }
    let target_name = std::str::from_utf8(target_name).map_err(|_| Status::INVAL)?;
    let (who, replace) = (source.who(), RenameMode::Replace);
    let renamed =
        desk.posix.rename(who, source.ino, source_name, target.ino, target_name, replace).await;
    renamed.map_err(|error| Status::of_name(&error))
}

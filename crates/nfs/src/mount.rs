//! MOUNT, version 3: the step from a path to a handle.

use cairn_base::Result;
use cairn_fs::ops::exports::ListedExport;
use cairn_posix::{Kind, LookupReply};

use crate::desk::{Client, Desk};
use crate::handle;
use crate::limits::MOUNT_BYTES;
use crate::rpc::AUTH_SYS;
use crate::status::{Done, Status};
use crate::xdr::{Reader, Writer};

pub async fn mnt(desk: &Desk, client: &Client, mut arguments: Reader, mut result: Writer) -> Done {
    let path = arguments.bytes(MOUNT_BYTES)?;
    arguments.end()?;
    let handle = find(desk, client, &path).await.map_err(of_mount)?;
    result.number(Status::OK.0).bytes(&handle).number(1).number(AUTH_SYS);
    Ok(result.into())
}

/// Returns the status, which MOUNT may not have: it has fewer than NFS.
fn of_mount(status: Status) -> Status {
    match status {
        Status::NOENT | Status::ACCES | Status::NOTDIR | Status::INVAL | Status::NAMETOOLONG => {
            status
        }
        _ => Status::SERVERFAULT,
    }
}

/// Finds the export for a path, or a directory in it.
async fn find(desk: &Desk, client: &Client, path: &[u8]) -> Result<[u8; handle::BYTES], Status> {
    let path = path.strip_prefix(b"/").ok_or(Status::NOENT)?;
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let names: Vec<&[u8]> = names.collect();
    let exports = desk.exports(client).await.map_err(|error| Status::of(&error))?;
    let below = exports.iter().find_map(|export| Some((export, below(export, &names)?)));
    // Clients without access must not learn whether a bucket exists.
    let (export, names) = below.ok_or(Status::ACCES)?;
    let mut place = desk.top(client, export).await?;
    for name in names {
        let found = desk.posix.lookup(place.who(), place.ino, name).await;
        place.ino = match found.map_err(|error| Status::of_name(&error))? {
            LookupReply::Entry(entry) => entry.attributes.ino,
            LookupReply::Nothing(_) => return Err(Status::NOENT),
        };
    }
    let found = desk.posix.attributes(place.who(), place.ino, false).await;
    let (shown, _) = found.map_err(|error| Status::of_name(&error))?;
    match shown.kind {
        Kind::Directory => Ok(desk.handle(&place, place.ino)),
        _ => Err(Status::NOTDIR),
    }
}

/// Returns the names of a path that follow those of an export; `None` if the path is outside it.
fn below<'a, 'b>(export: &ListedExport, names: &'a [&'b [u8]]) -> Option<&'a [&'b [u8]]> {
    let top: Vec<&[u8]> = export.bucket.as_bytes().split(|byte| *byte == b'/').collect();
    if names.starts_with(&top) { names.get(top.len()..) } else { None }
}

/// Returns an empty list: mounts are not remembered, as nothing depends on them.
pub fn dump(arguments: &Reader, mut result: Writer) -> Done {
    arguments.end()?;
    result.flag(false);
    Ok(result.into())
}

pub fn umnt(mut arguments: Reader, result: Writer) -> Done {
    arguments.bytes(MOUNT_BYTES)?;
    arguments.end()?;
    Ok(result.into())
}

pub fn umntall(arguments: &Reader, result: Writer) -> Done {
    arguments.end()?;
    Ok(result.into())
}

/// Lists the exports that the client may mount, and the networks of their clients.
pub async fn export(desk: &Desk, client: &Client, arguments: Reader, mut result: Writer) -> Done {
    arguments.end()?;
    // This procedure has no status: if the exports cannot be listed, the list is empty.
    let exports = desk.exports(client).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "exports were not listed");
        Vec::new()
    });
    for listed in exports {
        result.flag(true).bytes(format!("/{}", listed.bucket).as_bytes());
        for network in &listed.export.clients {
            result.flag(true).bytes(network.to_string().as_bytes());
        }
        result.flag(false);
    }
    result.flag(false);
    Ok(result.into())
}

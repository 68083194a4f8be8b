//! LOOKUP, and the procedures that make names: CREATE, MKDIR, SYMLINK, MKNOD and LINK.

use bytes::Bytes;
use cairn_base::limits::NAME_BYTES as LONGEST_NAME;
use cairn_base::{Error, Ino, Result};
use cairn_posix::{Attributes, Changes, Entry, Kind, LookupReply, Mode, Step, Verifier};

use crate::attributes::{of_children, read, write_after, write_around};
use crate::desk::{Client, Desk, Place};
use crate::limits::{HANDLE_BYTES, NAME_BYTES, TARGET_BYTES};
use crate::status::{Done, Refusal, Status};
use crate::xdr::{Reader, Writer};

/// Modes of CREATE (`createmode3`).
const UNCHECKED: u32 = 0;
const GUARDED: u32 = 1;
const EXCLUSIVE: u32 = 2;

/// Values of `ftype3` in an MKNOD.
const BLOCK_DEVICE: u32 = 3;
const CHARACTER_DEVICE: u32 = 4;
const SOCKET: u32 = 6;
const FIFO: u32 = 7;

/// Modes of new inodes if the client states none.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Attempts to find or make a file while others remove and make it.
const TRIES: u32 = 16;

pub async fn lookup(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Done {
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let found = find(desk, &place, &name).await;
    let (directory, is_gone) = desk.shown_or_gone(&place).await;
    match found {
        Ok(found) => {
            result.number(Status::OK.0).bytes(&desk.handle(&place, found.ino));
            write_after(&mut result, place.bucket, Some(&found));
        }
        Err(status) => {
            let is_gone = status == Status::NOENT && is_gone;
            result.number(if is_gone { Status::STALE } else { status }.0);
        }
    }
    write_after(&mut result, place.bucket, directory.as_ref());
    Ok(result.into())
}

async fn find(desk: &Desk, place: &Place, name: &[u8]) -> Result<Attributes, Status> {
    let posix = &desk.posix;
    let ino = match name {
        b"." => place.ino,
        // The root directory of an export is its own parent.
        b".." if place.is_top() => place.ino,
        b".." => {
            let parent = posix.parent(place.who(), place.ino).await;
            parent.map_err(|error| Status::of_inode(&error))?
        }
        name => {
            let found = posix.lookup(place.who(), place.ino, name).await;
            return match found.map_err(|error| Status::of_name(&error))? {
                LookupReply::Entry(entry) => Ok(entry.attributes),
                LookupReply::Nothing(_) => Err(Status::NOENT),
            };
        }
    };
    let found = posix.attributes(place.who(), ino, false).await;
    let (shown, _) = found.map_err(|error| Status::of_inode(&error))?;
    if shown.kind == Kind::Directory { Ok(shown) } else { Err(Status::NOTDIR) }
}

/// The inode to make under a name.
enum New {
    /// A file, or the file that is already there.
    Unchecked(Changes),
    Node(Kind, Changes),
    Once(Verifier),
    Directory(Changes),
    Symlink(Bytes, Changes),
    /// A device, which is refused with this status.
    Refused(Status),
}

pub async fn create(desk: &Desk, client: &Client, mut arguments: Reader, result: Writer) -> Done {
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    let new = match arguments.number()? {
        UNCHECKED => read(&mut arguments)?.map(New::Unchecked),
        GUARDED => read(&mut arguments)?.map(|changes| New::Node(Kind::File, changes)),
        EXCLUSIVE => Ok(New::Once(arguments.verifier()?)),
        _ => return Err(Refusal::Garbage),
    };
    arguments.end()?;
    make_in(desk, client, &handle, &name, new, result).await
}

pub async fn mkdir(desk: &Desk, client: &Client, mut arguments: Reader, result: Writer) -> Done {
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    let new = read(&mut arguments)?.map(New::Directory);
    arguments.end()?;
    make_in(desk, client, &handle, &name, new, result).await
}

pub async fn symlink(desk: &Desk, client: &Client, mut arguments: Reader, result: Writer) -> Done {
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    let (changes, target) = (read(&mut arguments)?, arguments.bytes(TARGET_BYTES)?);
    arguments.end()?;
    let new = changes.map(|changes| New::Symlink(target, Changes { mode: None, ..changes }));
    make_in(desk, client, &handle, &name, new, result).await
}

pub async fn mknod(desk: &Desk, client: &Client, mut arguments: Reader, result: Writer) -> Done {
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    let new = match arguments.number()? {
        BLOCK_DEVICE | CHARACTER_DEVICE => {
            let (_, _device) = (read(&mut arguments)?, arguments.long()?);
            // As on mounts. Programs of Linux have no name for NOTSUPP.
            Ok(New::Refused(Status::PERM))
        }
        SOCKET => read(&mut arguments)?.map(|changes| New::Node(Kind::Socket, changes)),
        FIFO => read(&mut arguments)?.map(|changes| New::Node(Kind::Fifo, changes)),
        _ => Ok(New::Refused(Status::BADTYPE)),
    };
    arguments.end()?;
    make_in(desk, client, &handle, &name, new, result).await
}

/// Makes an inode in a directory, and writes the reply.
async fn make_in(
    desk: &Desk,
    client: &Client,
    handle: &[u8],
    name: &[u8],
    new: Result<New, Status>,
    mut result: Writer,
) -> Done {
    let place = desk.place(client, handle).await?;
    let work = async {
        place.check_writable()?;
        make(desk, &place, name, new?).await
    };
    let (made, [around]) = desk.posix.around(&place.who, [place.ino], work).await;
    match made {
        Ok(made) => {
            result.number(Status::OK.0).flag(true).bytes(&desk.handle(&place, made.ino));
            write_after(&mut result, place.bucket, Some(&made));
        }
        Err(status) => {
            result.number(of_children(Err(status), &[around]).0);
        }
    }
    write_around(&mut result, place.bucket, &around);
    Ok(result.into())
}

/// Returns a new name as text: the other doors have no other names.
fn text(name: &[u8]) -> Result<&str, Status> {
    std::str::from_utf8(name).map_err(|_| Status::INVAL)
}

async fn make(desk: &Desk, place: &Place, name: &[u8], new: New) -> Result<Attributes, Status> {
    let (posix, name) = (&desk.posix, text(name)?);
    let parent = place.ino;
    let mode = |bits: Option<u32>, or| Mode { bits: bits.unwrap_or(or), umask: 0 };
    let (made, changes) = match new {
        New::Unchecked(changes) => return find_or_make(desk, place, name, changes).await,
        New::Node(kind, changes) => {
            let mode = mode(changes.mode, FILE_MODE);
            (posix.make_node(place.who(), parent, name, kind, mode).await, changes)
        }
        New::Once(verifier) => {
            let mode = mode(None, FILE_MODE);
            let made = posix.create_once(place.who(), parent, name, mode, verifier).await;
            (made, Changes::default())
        }
        New::Directory(changes) => {
            let mode = mode(changes.mode, DIRECTORY_MODE);
            (posix.make_directory(place.who(), parent, name, mode).await, changes)
        }
        New::Symlink(target, changes) => {
            (posix.make_symlink(place.who(), parent, name, &target).await, changes)
        }
        New::Refused(status) => return Err(status),
    };
    let made = made.map_err(|error| Status::of_name(&error))?;
    set_rest(desk, place, made, changes).await
}

async fn find_or_make(
    desk: &Desk,
    place: &Place,
    name: &str,
    changes: Changes,
) -> Result<Attributes, Status> {
    let mode = Mode { bits: changes.mode.unwrap_or(FILE_MODE), umask: 0 };
    let Changes { uid, gid, atime, mtime, .. } = changes;
    let sets = uid.is_some() || gid.is_some() || atime.is_some() || mtime.is_some();
    let last = match changes.size {
        _ if sets => Step::Attributes,
        Some(1..) => Step::Size,
        _ => Step::Names,
    };
    // No attempt truncates a file that another attempt has made.
    let (place, to_cut) = (&place.ending_with(last), place.ending_with(Step::Size));
    for _ in 0..TRIES {
        match desk.posix.make_node(place.who(), place.ino, name, Kind::File, mode).await {
            Ok(made) => return set_rest(desk, place, made, changes).await,
            Err(Error::Exists(_)) => {}
            Err(error) => return Err(Status::of_name(&error)),
        }
        let found = desk.posix.lookup(place.who(), place.ino, name.as_bytes()).await;
        match found.map_err(|error| Status::of_name(&error))? {
            LookupReply::Entry(entry) if entry.attributes.kind != Kind::File => {
                return Err(Status::EXIST);
            }
            // Only the size of an existing file is set.
            LookupReply::Entry(entry) if changes.size.is_some() => {
                let size = Changes { size: changes.size, ..Changes::default() };
                return set_around(desk, &to_cut, entry.attributes.ino, size).await;
            }
            LookupReply::Entry(entry) => {
                place.who.has_found(entry.attributes.ino);
                return Ok(entry.attributes);
            }
            LookupReply::Nothing(_) => {}
        }
    }
    Err(Status::JUKEBOX)
}

/// Sets the attributes that could not be given when the inode was made.
async fn set_rest(
    desk: &Desk,
    place: &Place,
    made: Entry,
    wanted: Changes,
) -> Result<Attributes, Status> {
    let made = made.attributes;
    let rest = Changes {
        mode: None,
        uid: wanted.uid.filter(|uid| *uid != made.uid),
        gid: wanted.gid.filter(|gid| *gid != made.gid),
        // New files are empty. The attributes seen now may be those of later calls.
        size: wanted.size.filter(|size| made.kind == Kind::File && *size != 0),
        ..wanted
    };
    if rest == Changes::default() {
        Ok(made)
    } else {
        set_around(desk, place, made.ino, rest).await
    }
}

/// Sets attributes of an inode that others may change at the same time. The change is watched, so
/// that replies to the others leave out attributes from before.
async fn set_around(
    desk: &Desk,
    place: &Place,
    ino: Ino,
    changes: Changes,
) -> Result<Attributes, Status> {
    let set = desk.set(place, ino, changes);
    desk.posix.around(&place.who, [ino], set).await.0
}

pub async fn link(desk: &Desk, client: &Client, mut arguments: Reader, mut result: Writer) -> Done {
    let file = arguments.bytes(HANDLE_BYTES)?;
    let (handle, name) = (arguments.bytes(HANDLE_BYTES)?, arguments.bytes(NAME_BYTES)?);
    arguments.end()?;
    let (file, place) = (desk.place(client, &file).await?, desk.place(client, &handle).await?);
    let work = async {
        place.check_writable()?;
        if !file.is_beside(&place) {
            return Err(Status::XDEV);
        }
        if name.len() > LONGEST_NAME {
            return Err(Status::NAMETOOLONG);
        }
        let name = text(&name)?;
        match desk.posix.make_link(place.who(), file.ino, place.ino, name).await {
            Ok(linked) => Ok(linked.attributes),
            Err(Error::TooLarge(_)) => Err(Status::MLINK),
            Err(error) => Err(Status::of(&error)),
        }
    };
    let (linked, [around]) = desk.posix.around(&place.who, [place.ino], work).await;
    let (status, shown) = match linked {
        Ok(linked) => (Status::OK, Some(linked)),
        Err(status) => {
            let (shown, is_gone) = desk.shown_or_gone(&file).await;
            let is_gone = status == Status::NOENT && (is_gone || around.is_gone);
            (if is_gone { Status::STALE } else { status }, shown)
        }
    };
    result.number(status.0);
    write_after(&mut result, file.bucket, shown.as_ref());
    write_around(&mut result, place.bucket, &around);
    Ok(result.into())
}

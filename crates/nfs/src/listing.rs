//! READDIR and READDIRPLUS.

use cairn_base::limits::LIST_KEYS;
use cairn_base::{Error, Ino, Result};
use cairn_posix::{Part, Resumable};

use crate::attributes::{write, write_after};
use crate::desk::{Client, Desk, Place};
use crate::handle;
use crate::limits::{HANDLE_BYTES, IO_BYTES, LISTING_COST};
use crate::status::{Done, Status};
use crate::xdr::{Garbage, Reader, Writer, padding};

/// Bytes of a listing without its entries: status, attributes, verifier, the mark after the last
/// entry, the end flag.
const FRAME_BYTES: usize = 4 + 88 + 8 + 4 + 4;
/// Bytes of an entry without its name: the mark before the entry, its inode, the length of its
/// name, its cookie.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;
/// Bytes that READDIRPLUS adds to an entry: attributes and a handle.
const PLUS_BYTES: usize = 88 + 8 + handle::BYTES;
/// The verifier is constant, as cookies never change their meaning.
const VERIFIER: [u8; 8] = [0; 8];

/// The part of a directory that a call asks for.
struct ListRequest {
    cookie: u64,
    /// Most bytes of names with their inodes and cookies.
    names: usize,
    /// Most bytes of the whole listing.
    all: usize,
    plus: bool,
}

/// Returns the number of bytes that a listing may have, at most. It is the call's last argument.
pub fn list_bytes(mut arguments: Reader, plus: bool) -> Result<u32, Garbage> {
    let _ = (arguments.bytes(HANDLE_BYTES)?, arguments.long()?, arguments.long()?);
    let most =
        if plus { (arguments.number()?, arguments.number()?).1 } else { arguments.number()? };
    Ok(most.min(IO_BYTES))
}

pub async fn readdir(desk: &Desk, client: &Client, mut arguments: Reader, result: Writer) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    let (cookie, _) = (arguments.long()?, arguments.verifier()?);
    let all = arguments.number()?.min(IO_BYTES) as usize;
    arguments.end()?;
    list(desk, client, &handle, ListRequest { cookie, names: all, all, plus: false }, result).await
}

pub async fn readdirplus(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    result: Writer,
) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    let (cookie, _) = (arguments.long()?, arguments.verifier()?);
    let (names, all) = (arguments.number()? as usize, arguments.number()?.min(IO_BYTES) as usize);
    arguments.end()?;
    list(desk, client, &handle, ListRequest { cookie, names, all, plus: true }, result).await
}

async fn list(
    desk: &Desk,
    client: &Client,
    handle: &[u8],
    wanted: ListRequest,
    mut result: Writer,
) -> Done {
    let place = desk.place(client, handle).await?;
    let work = async {
        let part = ask(desk, &place, &wanted).await;
        let shown = desk.shown(&place).await;
        (part.and_then(|part| entries(desk, &place, &wanted, &part)), shown)
    };
    let bytes = LISTING_COST * wanted.all as u64;
    let (written, shown) = desk.reads(client.address, bytes, work).await;
    result.number(written.as_ref().err().copied().unwrap_or(Status::OK).0);
    write_after(&mut result, place.bucket, shown.as_ref());
    if let Ok((entries, is_end)) = written {
        result.fixed(&VERIFIER).append(&entries).flag(false).flag(is_end);
    }
    Ok(result.into())
}

async fn ask(desk: &Desk, place: &Place, wanted: &ListRequest) -> Result<Part, Status> {
    let entry = ENTRY_BYTES + if wanted.plus { PLUS_BYTES } else { 0 };
    let limit = (wanted.all.min(wanted.names) / entry).clamp(1, LIST_KEYS);
    let ask = |plus| desk.posix.list_after(place.who(), place.ino, wanted.cookie, limit, plus);
    let listed = match ask(wanted.plus).await {
        // A caller with the right to read a directory, but not to search it, gets the names alone.
        Err(Error::Denied(_)) if wanted.plus => ask(false).await,
        listed => listed,
    };
    listed.map_err(|error| Status::of_inode(&error))
}

/// Writes as many entries as there is room for. Returns them, and whether the listing ends with
/// them.
///
/// # Errors
/// `TOOSMALL` if there is no room for even one entry.
fn entries(
    desk: &Desk,
    place: &Place,
    wanted: &ListRequest,
    part: &Part,
) -> Result<(Writer, bool), Status> {
    let mut written = Writer::default();
    let mut names = 0;
    for (at, entry) in part.entries.iter().enumerate() {
        let name = ENTRY_BYTES + entry.name.len() + padding(entry.name.len());
        let bytes = name + if wanted.plus { PLUS_BYTES } else { 0 };
        names += name;
        if names > wanted.names || FRAME_BYTES + written.len() + bytes > wanted.all {
            return if at > 0 { Ok((written, false)) } else { Err(Status::TOOSMALL) };
        }
        write_entry(desk, place, wanted.plus, entry, &mut written);
    }
    Ok((written, part.is_end))
}

fn write_entry(desk: &Desk, place: &Place, plus: bool, entry: &Resumable, written: &mut Writer) {
    // Entries above an export are hidden.
    let is_above = entry.name == ".." && place.is_top();
    let ino: Ino = if is_above { place.ino } else { entry.ino };
    written.flag(true).long(ino.0).bytes(&entry.name).long(entry.cookie);
    if !plus {
        return;
    }
    match &entry.entry {
        Some(found) => {
            written.flag(true);
            write(written, place.bucket, &found.attributes);
            written.flag(true).bytes(&desk.handle(place, ino));
        }
        None => {
            written.flag(false).flag(false);
        }
    }
}

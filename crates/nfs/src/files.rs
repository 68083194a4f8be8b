//! READ, WRITE and COMMIT.

use bytes::Bytes;
use cairn_base::{Error, Result};
use cairn_fs::ops::body::FILE_BYTES;
use cairn_posix::Writing;

use crate::attributes::{write_after, write_around};
use crate::desk::{Client, Desk, Place, READING, WRITING};
use crate::limits::{HANDLE_BYTES, IO_BYTES};
use crate::rpc::Reply;
use crate::status::{Done, Refusal, Status};
use crate::xdr::{Garbage, Reader, Writer};

const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

/// Returns the number of bytes that a READ may return, at most. It is the call's last argument.
pub fn read_bytes(mut arguments: Reader) -> Result<u32, Garbage> {
    let (_, _, count) = (arguments.bytes(HANDLE_BYTES)?, arguments.long()?, arguments.number()?);
    Ok(count.min(IO_BYTES))
}

pub async fn read(desk: &Desk, client: &Client, mut arguments: Reader, mut result: Writer) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    let (offset, count) = (arguments.long()?, arguments.number()?.min(IO_BYTES));
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    // Rights are checked at each READ, which begins when there is room for its bytes.
    let work = async { desk.posix.read_once(place.who(), place.ino, READING, offset, count).await };
    let read = desk.reads(client.address, count.into(), work).await;
    let shown = desk.shown(&place).await;
    let status = read.as_ref().err().map_or(Status::OK, Status::of_inode);
    result.number(status.0);
    write_after(&mut result, place.bucket, shown.as_ref());
    let Ok(data) = read else { return Ok(result.into()) };
    let len = data.iter().map(Bytes::len).sum::<usize>() as u32;
    let end = offset.saturating_add(len.into());
    let is_end = len < count || shown.is_some_and(|shown| end >= shown.size);
    result.number(len).flag(is_end).number(len);
    Ok(Reply::with_data(result, data))
}

pub async fn write(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    let (offset, count, stable) = (arguments.long()?, arguments.number()?, arguments.number()?);
    let data = arguments.bytes(IO_BYTES as usize)?;
    arguments.end()?;
    if data.len() != count as usize || !(UNSTABLE..=FILE_SYNC).contains(&stable) {
        return Err(Refusal::Garbage);
    }
    let place = desk.place(client, &handle).await?;
    let verifier = desk.openings.verifier(place.bucket);
    let work = write_to(desk, &place, offset, &data, stable != UNSTABLE);
    let (written, [around]) = desk.posix.around(&place.who, [place.ino], work).await;
    result.number(written.err().unwrap_or(Status::OK).0);
    write_around(&mut result, place.bucket, &around);
    if let Ok(is_durable) = written {
        let committed = if is_durable { FILE_SYNC } else { UNSTABLE };
        result.number(count).number(committed).fixed(&verifier);
    }
    Ok(result.into())
}

/// Writes bytes. Returns whether they are durable.
async fn write_to(
    desk: &Desk,
    place: &Place,
    offset: u64,
    data: &[u8],
    syncs: bool,
) -> Result<bool, Status> {
    place.check_writable()?;
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_BYTES) {
        return Err(Status::FBIG);
    }
    let failed = |error: Error| Status::of_inode(&error);
    let opened = desk.posix.open(place.who(), place.ino, WRITING).await;
    let file = opened.map_err(failed)?.file;
    let held = if syncs { None } else { desk.openings.hold(place.bucket, place.ino, file) };
    let syncs = held.is_none();
    let writing = Writing { syncs, ..Writing::default() };
    let written = desk.posix.write(file, offset, data, writing).await;
    if !matches!(held, Some((_, true))) {
        desk.posix.release(file).await;
    }
    written.map_err(failed)?;
    Ok(syncs)
}

pub async fn commit(
    desk: &Desk,
    client: &Client,
    mut arguments: Reader,
    mut result: Writer,
) -> Done {
    let handle = arguments.bytes(HANDLE_BYTES)?;
    // More than the requested range becomes durable: the whole file.
    let (_offset, _count) = (arguments.long()?, arguments.number()?);
    arguments.end()?;
    let place = desk.place(client, &handle).await?;
    let work = async {
        place.check_writable()?;
        let committed = desk.openings.commit(place.ino).await;
        committed.map_err(|error| Status::of_inode(&error))
    };
    let (committed, [around]) = desk.posix.around(&place.who, [place.ino], work).await;
    result.number(committed.err().unwrap_or(Status::OK).0);
    write_around(&mut result, place.bucket, &around);
    if committed.is_ok() {
        result.fixed(&desk.openings.verifier(place.bucket));
    }
    Ok(result.into())
}

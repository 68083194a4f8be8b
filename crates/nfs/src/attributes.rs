//! Attributes of inodes, as replies show them to clients and as requests set them.

use cairn_base::{BucketId, Timestamp};
use cairn_posix::{Around, Attributes, Changes, Kind, SetTime};

use crate::status::Status;
use crate::xdr::{Garbage, Reader, Writer};

const NANOS: u32 = 1_000_000_000;
const BLOCK_BYTES: u64 = 512;
/// The uid and gid that `chown` takes for "no change". No program could give it to a file again.
const NO_ID: u32 = u32::MAX;

/// Returns the `ftype3` of a kind.
fn kind(kind: Kind) -> u32 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::Symlink => 5,
        Kind::Socket => 6,
        Kind::Fifo => 7,
    }
}

/// Writes an `nfstime3`. Times before 1970 and after 2106 have no form: the nearest time that has
/// one is written.
fn time(writer: &mut Writer, time: Timestamp) {
    let nanos = time.0.max(0);
    let secs = u32::try_from(nanos / i64::from(NANOS));
    let part = (nanos % i64::from(NANOS)) as u32;
    match secs {
        Ok(secs) => writer.number(secs).number(part),
        Err(_) => writer.number(u32::MAX).number(NANOS - 1),
    };
}

/// Writes an inode's `fattr3`. Each bucket is a file system of its own.
pub fn write(writer: &mut Writer, bucket: BucketId, shown: &Attributes) {
    writer
        .number(kind(shown.kind))
        .number(shown.mode)
        .number(shown.nlink)
        .number(shown.uid)
        .number(shown.gid)
        .long(shown.size)
        .long(shown.size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES))
        .long(0)
        .long(bucket.0)
        .long(shown.ino.0);
    [shown.atime, shown.mtime, shown.ctime].iter().for_each(|at| time(writer, *at));
}

/// Writes a `post_op_attr`.
pub fn write_after(writer: &mut Writer, bucket: BucketId, shown: Option<&Attributes>) {
    writer.flag(shown.is_some());
    if let Some(shown) = shown {
        write(writer, bucket, shown);
    }
}

/// Writes a `wcc_data`.
pub fn write_around(writer: &mut Writer, bucket: BucketId, around: &Around) {
    writer.flag(around.before.is_some());
    if let Some(before) = &around.before {
        writer.long(before.size);
        [before.mtime, before.ctime].iter().for_each(|at| time(writer, *at));
    }
    write_after(writer, bucket, around.after.as_ref());
}

/// Returns the status of a change of names in directories. If a name is not found because its
/// directory is gone, the status is `STALE`, not `NOENT`.
pub fn of_children(done: Result<(), Status>, around: &[Around]) -> Status {
    match done {
        Err(Status::NOENT) if around.iter().any(|around| around.is_gone) => Status::STALE,
        Err(status) => status,
        Ok(()) => Status::OK,
    }
}

/// Reads a `sattr3`: the changes to make, or the status if they cannot be made.
pub fn read(arguments: &mut Reader) -> Result<Result<Changes, Status>, Garbage> {
    let mut number = || arguments.flag()?.then(|| arguments.number()).transpose();
    let (mode, uid, gid) = (number()?, number()?, number()?);
    let size = arguments.flag()?.then(|| arguments.long()).transpose()?;
    let (atime, mtime) = (read_set_time(arguments)?, read_set_time(arguments)?);
    let (Ok(atime), Ok(mtime)) = (atime, mtime) else { return Ok(Err(Status::INVAL)) };
    if [uid, gid].contains(&Some(NO_ID)) {
        return Ok(Err(Status::INVAL));
    }
    Ok(Ok(Changes { mode, uid, gid, size, atime, mtime }))
}

fn read_set_time(arguments: &mut Reader) -> Result<Result<Option<SetTime>, Status>, Garbage> {
    match arguments.number()? {
        0 => Ok(Ok(None)),
        1 => Ok(Ok(Some(SetTime::Now))),
        2 => Ok(read_time(arguments)?.map(|time| Some(SetTime::At(time)))),
        _ => Err(Garbage),
    }
}

/// Reads an `nfstime3`.
pub fn read_time(arguments: &mut Reader) -> Result<Result<Timestamp, Status>, Garbage> {
    let (secs, nanos) = (arguments.number()?, arguments.number()?);
    if nanos >= NANOS {
        return Ok(Err(Status::INVAL));
    }
    Ok(Ok(Timestamp(i64::from(secs) * i64::from(NANOS) + i64::from(nanos))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(nanos: i64) -> (u32, u32) {
        let mut writer = Writer::default();
        time(&mut writer, Timestamp(nanos));
        let mut reader = Reader::new(writer.finish());
        (reader.number().unwrap(), reader.number().unwrap())
    }

    #[test]
    fn times_that_have_no_form_are_the_nearest() {
        assert_eq!(times(1_500_000_000), (1, 500_000_000));
        assert_eq!(times(-1), (0, 0));
        assert_eq!(times(i64::MAX), (u32::MAX, NANOS - 1));
    }

    #[test]
    fn what_cannot_be_set_is_told_from_garbage() {
        let of = |numbers: &[u32]| {
            let mut writer = Writer::default();
            for number in numbers {
                writer.number(*number);
            }
            read(&mut Reader::new(writer.finish()))
        };
        let none = Changes::default();
        assert_eq!(of(&[0, 0, 0, 0, 0, 0]), Ok(Ok(none)));
        let at = Some(SetTime::At(Timestamp(7_000_000_008)));
        let set = Changes { mode: Some(0o644), atime: Some(SetTime::Now), mtime: at, ..none };
        assert_eq!(of(&[1, 0o644, 0, 0, 0, 1, 2, 7, 8]), Ok(Ok(set)));
        assert_eq!(of(&[0, 0, 0, 0, 2, 7, NANOS, 0]), Ok(Err(Status::INVAL)));
        for ids in [&[0, 1, NO_ID, 0][..], &[0, 0, 1, NO_ID]] {
            assert_eq!(of(&[ids, &[0, 0, 0]].concat()), Ok(Err(Status::INVAL)), "{ids:?}");
        }
        let most = Changes { uid: Some(NO_ID - 1), ..none };
        assert_eq!(of(&[0, 1, NO_ID - 1, 0, 0, 0, 0]), Ok(Ok(most)));
        for garbage in [&[][..], &[2], &[1], &[0, 0, 0, 1, 0], &[0, 0, 0, 0, 3, 0]] {
            assert_eq!(of(garbage), Err(Garbage), "{garbage:?}");
        }
    }
}

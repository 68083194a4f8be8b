//! Objects of a backup: a header and frames, each of which can be checked, and encrypted, alone.
//! See docs/format-backup.md. Nothing here panics on any bytes.
#![deny(clippy::indexing_slicing)]

use cairn_base::checksum::crc32c;

use super::seal::{Keys, ObjectKey, TAG_BYTES, random};
use crate::failure::{Failure, Result};

const MAGIC: [u8; 8] = *b"CAIRNBAK";
const VERSION: u32 = 1;
pub const HEADER_BYTES: usize = 64;
/// Bytes before and behind the body of a frame.
const HEAD_BYTES: usize = 12;
const CRC_BYTES: usize = 4;
/// Longest body: a block, its owner, and room for later versions.
pub const BODY_BYTES: usize = 8 << 20;
const LAST: u8 = 1;

/// Sort of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    Pack,
    Index,
    State,
}

impl Sort {
    fn number(self) -> u8 {
        match self {
            Sort::Pack => 1,
            Sort::Index => 2,
            Sort::State => 3,
        }
    }
}

/// Place of a frame in its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    pub offset: u32,
    /// Length of the whole frame, bytes.
    pub length: u32,
    pub number: u32,
}

impl At {
    /// Returns the length of its body before encryption, bytes.
    pub fn body_len(self, is_encrypted: bool) -> usize {
        let tag = if is_encrypted { TAG_BYTES } else { 0 };
        (self.length as usize).saturating_sub(HEAD_BYTES + tag + CRC_BYTES)
    }

    /// Returns the offset behind it in its object.
    pub fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.length)
    }
}

/// An object that is being written.
pub struct Writer {
    bytes: Vec<u8>,
    key: Option<ObjectKey>,
    about: Vec<u8>,
    frames: u32,
}

/// Returns the sort and the name of an object: the tag of each frame covers these and the frame's
/// head.
fn about(sort: Sort, name: &str) -> Vec<u8> {
    [&[sort.number()], name.as_bytes()].concat()
}

impl Writer {
    pub fn begin(keys: &Keys, sort: Sort, name: &str) -> Result<Writer> {
        let salt = if keys.is_encrypting() { random()? } else { [0; 32] };
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[sort.number(), u8::from(keys.is_encrypting()), 0, 0]);
        bytes.extend_from_slice(&salt);
        bytes.resize(HEADER_BYTES - CRC_BYTES, 0);
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        Ok(Writer { bytes, key: keys.of_object(&salt)?, about: about(sort, name), frames: 0 })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn frame(&mut self, body: Vec<u8>) -> Result<At> {
        self.add(body, 0)
    }

    fn add(&mut self, mut body: Vec<u8>, flags: u8) -> Result<At> {
        let tag = if self.key.is_some() { TAG_BYTES } else { 0 };
        let too_large = |_| Failure::new("an object of a backup of more than 4 GiB");
        let stored = u32::try_from(body.len() + tag).map_err(too_large)?;
        let number = self.frames;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&stored.to_le_bytes());
        head.extend_from_slice(&number.to_le_bytes());
        head.extend_from_slice(&[flags, 0, 0, 0]);
        if let Some(key) = &self.key {
            let beside = [&head[..], &self.about].concat();
            key.seal(number, &beside, &mut body)?;
        }
        let offset = u32::try_from(self.bytes.len()).map_err(too_large)?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(&body);
        let crc = self.bytes.get(start..).map_or(0, crc32c);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        self.frames += 1;
        let length = (HEAD_BYTES + body.len() + CRC_BYTES) as u32;
        Ok(At { offset, length, number })
    }

    /// Returns the whole object.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.add(Vec::new(), LAST)?;
        Ok(self.bytes)
    }
}

/// An object that is being read.
pub struct Reader {
    key: Option<ObjectKey>,
    about: Vec<u8>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn damaged(name: &str) -> Failure {
    Failure::new(format!("{name}: damaged: its bytes are not those that were written"))
}

impl Reader {
    /// Checks the header.
    pub fn open(keys: &Keys, sort: Sort, name: &str, bytes: &[u8]) -> Result<Reader> {
        let bad = || damaged(name);
        let (covered, _) = bytes.split_at_checked(HEADER_BYTES - CRC_BYTES).ok_or_else(bad)?;
        if covered.get(..8) != Some(&MAGIC) {
            return Err(Failure::new(format!("{name}: not an object of a backup")));
        }
        let version = u32_at(covered, 8);
        if version.is_some_and(|version| version > VERSION) {
            return Err(Failure::new(format!("{name}: of a later version: use that cairn")));
        }
        let salt = covered.get(16..48).and_then(|salt| <[u8; 32]>::try_from(salt).ok());
        let salt = salt.ok_or_else(bad)?;
        let is_as_said =
            covered.get(12..14) == Some(&[sort.number(), u8::from(keys.is_encrypting())]);
        if u32_at(bytes, HEADER_BYTES - CRC_BYTES) != Some(crc32c(covered)) || !is_as_said {
            return Err(bad());
        }
        Ok(Reader { key: keys.of_object(&salt)?, about: about(sort, name) })
    }

    /// Returns the body of the frame at the start of `bytes`, its whole length, and whether it is
    /// the last; `None` if it is damaged.
    fn take(&self, bytes: &[u8], number: u32) -> Option<(Vec<u8>, usize, bool)> {
        let stored = u32_at(bytes, 0)? as usize;
        if stored > BODY_BYTES + TAG_BYTES || u32_at(bytes, 4)? != number {
            return None;
        }
        let covered = bytes.get(..HEAD_BYTES + stored)?;
        if u32_at(bytes, covered.len())? != crc32c(covered) {
            return None;
        }
        let (head, body) = covered.split_at_checked(HEAD_BYTES)?;
        let body = match &self.key {
            Some(key) => key.open(number, &[head, &self.about].concat(), body.to_vec())?,
            None => body.to_vec(),
        };
        Some((body, covered.len() + CRC_BYTES, head.get(8) == Some(&LAST)))
    }

    /// Returns one frame of an object.
    pub fn frame(&self, name: &str, bytes: &[u8], at: At) -> Result<Vec<u8>> {
        let from = at.offset as usize;
        let found = from.checked_add(at.length as usize).and_then(|end| bytes.get(from..end));
        let taken = found.and_then(|frame| self.take(frame, at.number));
        let fits = taken.filter(|(_, length, is_last)| *length == at.length as usize && !is_last);
        fits.map(|(body, ..)| body).ok_or_else(|| damaged(name))
    }
}

/// Returns all frames of an object, of which no byte may be missing.
pub fn frames(keys: &Keys, sort: Sort, name: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let reader = Reader::open(keys, sort, name, bytes)?;
    let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let mut all = Vec::new();
    loop {
        let number = u32::try_from(all.len()).map_err(|_| damaged(name))?;
        let taken = reader.take(rest, number).ok_or_else(|| damaged(name))?;
        let (body, length, is_last) = taken;
        rest = rest.get(length..).unwrap_or_default();
        match is_last {
            true if rest.is_empty() && body.is_empty() => return Ok(all),
            true => return Err(damaged(name)),
            false => all.push(body),
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use cairn_base::Secret;

    use super::*;

    fn made(keys: &Keys) -> (Vec<u8>, Vec<At>) {
        let mut writer = Writer::begin(keys, Sort::Pack, "packs/1").unwrap();
        let bodies = [b"hello".to_vec(), Vec::new(), vec![7; 3000]];
        let at = bodies.map(|body| writer.frame(body).unwrap()).to_vec();
        (writer.finish().unwrap(), at)
    }

    fn keys() -> [Keys; 2] {
        [Keys::none(), Keys::new(&Secret::new("correct horse".to_owned())).unwrap().0]
    }

    #[test]
    fn what_was_written_is_read_whole_or_frame_by_frame() {
        for keys in keys() {
            let (bytes, at) = made(&keys);
            let all = frames(&keys, Sort::Pack, "packs/1", &bytes).unwrap();
            assert_eq!(all, [b"hello".to_vec(), Vec::new(), vec![7; 3000]]);
            let reader = Reader::open(&keys, Sort::Pack, "packs/1", &bytes).unwrap();
            for (at, body) in at.iter().zip(&all) {
                assert_eq!(&reader.frame("packs/1", &bytes, *at).unwrap(), body);
            }
            assert_eq!(bytes.windows(5).any(|part| part == b"hello"), !keys.is_encrypting());
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_passes() {
        for keys in keys() {
            let (bytes, _) = made(&keys);
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << (at % 8);
                assert!(frames(&keys, Sort::Pack, "packs/1", &bad).is_err(), "byte {at}");
                assert!(frames(&keys, Sort::Pack, "packs/1", &bytes[..at]).is_err(), "cut {at}");
            }
            assert!(frames(&keys, Sort::Index, "packs/1", &bytes).is_err());
        }
    }

    #[test]
    fn an_encrypted_object_is_not_taken_for_another() {
        let [none, keys] = keys();
        let (bytes, _) = made(&keys);
        assert!(frames(&keys, Sort::Pack, "packs/2", &bytes).is_err());
        assert!(frames(&none, Sort::Pack, "packs/1", &bytes).is_err());
    }
}

//! The attributes of an object, for S3 and HTTP, beyond POSIX.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer, put_varint, take_varint};
use cairn_base::{Result, UploadId};
use serde::{Deserialize, Serialize};

use super::{Algorithm, FORMAT, Row, unexpected};

/// The bytes that a checksum of a multipart object covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ChecksumKind {
    /// All bytes of the object.
    FullObject,
    /// The checksums of the parts, one after another.
    Composite,
}

/// A stored checksum; big-endian bytes, as S3 sends them in base64.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Checksum {
    pub algorithm: Algorithm,
    pub kind: ChecksumKind,
    pub value: Bytes,
}

impl Checksum {
    pub(super) fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            ChecksumKind::FullObject => 0,
            ChecksumKind::Composite => 1,
        };
        [&[self.algorithm.number(), kind], &self.value[..]].concat()
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Checksum> {
        let (&[algorithm, kind], value) =
            bytes.split_first_chunk().ok_or_else(|| unexpected("checksum", "too few bytes"))?;
        let algorithm = Algorithm::from_number(algorithm)?;
        let kind = match kind {
            0 => ChecksumKind::FullObject,
            1 => ChecksumKind::Composite,
            other => return Err(unexpected("kind of checksum", other)),
        };
        if value.len() != algorithm.checksum_bytes() {
            return Err(unexpected("checksum", format!("{} bytes", value.len())));
        }
        Ok(Checksum { algorithm, kind, value: bytes.slice(2..) })
    }
}

/// Headers, user metadata and digests of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectAttributes {
    /// ETag without quotes: the MD5 of the content in hex, with `-<parts>` for a multipart upload.
    /// Empty if no MD5 was made: then the door derives an ETag from inode number and change.
    pub etag: String,
    pub content_type: String,
    pub content_encoding: String,
    pub content_disposition: String,
    pub content_language: String,
    pub cache_control: String,
    pub expires: String,
    /// User metadata: lower-case names without `x-amz-meta-`, in the order sent.
    pub user_metadata: Vec<(String, String)>,
    pub checksums: Vec<Checksum>,
    /// Number of parts of the multipart upload that made the object; 0 for any other object.
    pub part_count: u32,
    /// Upload whose `p` rows are the object's part table, if it has one.
    pub part_table: Option<UploadId>,
    /// Number of tags in the object's `x` rows.
    pub tag_count: u32,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Row for ObjectAttributes {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .text(1, &self.etag)
            .text(2, &self.content_type)
            .text(3, &self.content_encoding)
            .text(4, &self.content_disposition)
            .text(5, &self.content_language)
            .text(6, &self.cache_control)
            .text(7, &self.expires);
        if !self.user_metadata.is_empty() {
            writer.bytes(8, &encode_pairs(&self.user_metadata));
        }
        for checksum in self.checksums.iter().filter(|one| !one.algorithm.is_later()) {
            writer.bytes(9, &checksum.encode());
        }
        writer
            .number(10, u64::from(self.part_count))
            .number(11, self.part_table.map_or(0, |upload| upload.0))
            .number(12, u64::from(self.tag_count));
        for checksum in self.checksums.iter().filter(|one| one.algorithm.is_later()) {
            writer.bytes(13, &checksum.encode());
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<ObjectAttributes> {
        let mut object = ObjectAttributes::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => object.etag = field.text()?,
                2 => object.content_type = field.text()?,
                3 => object.content_encoding = field.text()?,
                4 => object.content_disposition = field.text()?,
                5 => object.content_language = field.text()?,
                6 => object.cache_control = field.text()?,
                7 => object.expires = field.text()?,
                8 => object.user_metadata = decode_pairs(&field.value)?,
                9 | 13 => object.checksums.push(Checksum::decode(&field.value)?),
                10 => object.part_count = super::narrow("part count", field.number()?)?,
                11 => object.part_table = Some(UploadId(field.number()?)),
                12 => object.tag_count = super::narrow("tag count", field.number()?)?,
                _ => field.keep(&mut object.unknown),
            }
        }
        if object.etag.is_empty() {
            // A program that does not know field 13 may have changed the bytes. It left the field
            // as it was, and emptied the ETag.
            object.checksums.retain(|checksum| !checksum.algorithm.is_later());
        }
        Ok(object)
    }
}

/// Encodes pairs of texts, each text with its length before it.
pub fn encode_pairs(pairs: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        put_varint(&mut out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
    out
}

/// Decodes the result of [`encode_pairs`].
pub fn decode_pairs(mut bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    while !bytes.is_empty() {
        pairs.push((take_text(&mut bytes)?, take_text(&mut bytes)?));
    }
    Ok(pairs)
}

fn take_text(bytes: &mut &[u8]) -> Result<String> {
    let len = usize::try_from(take_varint(bytes)?).unwrap_or(usize::MAX);
    let text = bytes.split_at_checked(len).ok_or_else(|| unexpected("text", "cut short"))?;
    *bytes = text.1;
    String::from_utf8(text.0.to_vec()).map_err(|_| unexpected("text", "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that does not know field 13 may have changed the bytes, and emptied the ETag.
    #[test]
    fn later_checksums_go_with_the_etag() {
        let of = |algorithm: Algorithm| Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            value: vec![8; algorithm.checksum_bytes()].into(),
        };
        let checksums = vec![of(Algorithm::Crc32), of(Algorithm::Sha512)];
        let row = ObjectAttributes { etag: "e".into(), checksums, ..ObjectAttributes::default() };
        assert_eq!(ObjectAttributes::decode(&row.encode()).unwrap(), row);
        let changed = ObjectAttributes { etag: String::new(), ..row.clone() };
        let read = ObjectAttributes::decode(&changed.encode()).unwrap();
        assert_eq!(read.checksums, row.checksums[..1]);
    }
}

//! Multipart uploads and their parts.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{BodyId, Result, Timestamp, UserId};

use super::attributes::Checksum;
use super::{
    Algorithm, ChecksumKind, Content, FORMAT, ObjectAttributes, Row, array, decode_pairs,
    encode_pairs, narrow, unexpected, unzigzag, zigzag,
};

/// A multipart upload: the row `u <bucket> <key> <upload>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Upload {
    pub initiator: UserId,
    pub initiated: Timestamp,
    /// Attributes for the object.
    pub object: ObjectAttributes,
    pub tags: Vec<(String, String)>,
    /// Checksum announced for the parts and the object.
    pub checksum: Option<(Algorithm, ChecksumKind)>,
    /// Number of changes of its parts, so that a completion notices changes in between.
    pub change: u64,
    /// Set if its parts may have less than the minimum size.
    pub takes_any_size: bool,
    /// Bytes of its parts, as counted for the bucket and its owner.
    pub bytes: u64,
    pub unknown: Vec<u8>,
}

impl Row for Upload {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .number(1, self.initiator.0)
            .number(2, zigzag(self.initiated.0))
            .bytes(3, &self.object.encode());
        if !self.tags.is_empty() {
            writer.bytes(4, &encode_pairs(&self.tags));
        }
        let announced = self.checksum.map(|(algorithm, kind)| {
            let empty = vec![0; algorithm.checksum_bytes()].into();
            (algorithm.is_later(), Checksum { algorithm, kind, value: empty }.encode())
        });
        if let Some((false, checksum)) = &announced {
            writer.bytes(5, checksum);
        }
        writer.number(6, self.change);
        if self.takes_any_size {
            writer.number(7, 1);
        }
        if self.bytes > 0 {
            writer.number(8, self.bytes);
        }
        if let Some((true, checksum)) = &announced {
            writer.bytes(9, checksum);
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Upload> {
        let mut upload = Upload::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => upload.initiator = UserId(field.number()?),
                2 => upload.initiated = Timestamp(unzigzag(field.number()?)),
                3 => upload.object = ObjectAttributes::decode(&field.value)?,
                4 => upload.tags = decode_pairs(&field.value)?,
                5 | 9 => {
                    let announced = Checksum::decode(&field.value)?;
                    upload.checksum = Some((announced.algorithm, announced.kind));
                }
                6 => upload.change = field.number()?,
                7 => upload.takes_any_size = field.number()? != 0,
                8 => upload.bytes = field.number()?,
                _ => field.keep(&mut upload.unknown),
            }
        }
        Ok(upload)
    }
}

/// A part: the row `p <upload> <part>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    pub size: u64,
    /// MD5 of the part in hex. A copied part has 32 other digits and `-1`.
    pub etag: String,
    pub modified: Timestamp,
    /// Checksums of the part alone.
    pub checksums: Vec<Checksum>,
    /// `Empty` once the part is only a line of an object's part table.
    pub content: Content,
    /// Body of the object that took this part.
    pub taken: Option<BodyId>,
    /// Number of references to the body beyond the first: one for each chunk border that cuts the
    /// part in the object that took it.
    pub further_references: u32,
    pub unknown: Vec<u8>,
}

impl Row for Part {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, self.size).text(2, &self.etag).number(3, zigzag(self.modified.0));
        for checksum in self.checksums.iter().filter(|one| !one.algorithm.is_later()) {
            writer.bytes(4, &checksum.encode());
        }
        match &self.content {
            Content::Empty => {}
            Content::Inline(bytes) => {
                writer.bytes(5, bytes);
            }
            Content::Body(body) => {
                writer.bytes(6, &body.to_bytes());
            }
        }
        if let Some(body) = self.taken {
            writer.bytes(7, &body.to_bytes());
        }
        writer.number(8, u64::from(self.further_references));
        for checksum in self.checksums.iter().filter(|one| one.algorithm.is_later()) {
            writer.bytes(9, &checksum.encode());
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Part> {
        let mut part = Part::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => part.size = field.number()?,
                2 => part.etag = field.text()?,
                3 => part.modified = Timestamp(unzigzag(field.number()?)),
                4 | 9 => part.checksums.push(Checksum::decode(&field.value)?),
                5 => part.content = Content::Inline(field.value),
                6 => {
                    let body = BodyId::from_bytes(array("body id", &field.value)?);
                    part.content = Content::Body(body);
                }
                7 => part.taken = Some(BodyId::from_bytes(array("body id", &field.value)?)),
                8 => part.further_references = narrow("references", field.number()?)?,
                _ => field.keep(&mut part.unknown),
            }
        }
        if part.etag.is_empty() {
            return Err(unexpected("part", "no ETag"));
        }
        Ok(part)
    }
}

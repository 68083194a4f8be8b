//! Links: everything that a chunkserver needs to serve one state of one object, encrypted and
//! authenticated in a path. The holder of a link can fetch that state and nothing else, until it
//! expires.
//!
//! ```text
//!   /files/<base64url( nonce, AES-256-GCM-SIV( row of fields, last of them the extents ) )>
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::{Buf, Bytes};
use cairn_auth::LinkKey;
use cairn_base::codec::{Fields, Writer, put_varint, take_varint};
use cairn_base::{BlockId, Error, GroupId, Result, Rng, SessionId, Timestamp};
use cairn_fs::Layout;
use cairn_fs::rows::{Extent, Place};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limits;

/// The beginning of the path of a link.
pub const PATH: &str = "/files/";

const FORMAT: u8 = 1;

/// The contents of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Bucket and key of the object, for the log.
    pub bucket: String,
    pub key: String,
    /// Second before which the link opens.
    pub expires: i64,
    /// ETag without quotes.
    pub etag: String,
    pub modified: Timestamp,
    /// The object's own headers of the reply.
    pub headers: HeaderMap,
    pub layout: Layout,
}

impl Link {
    /// Returns the path for this link; `None` if it would be too long.
    pub fn to_path(&self, key: &LinkKey, rng: &dyn Rng) -> Option<String> {
        if self.layout.extents().len() > limits::LINK_EXTENTS {
            return None;
        }
        let content = self.encode();
        if content.len() > limits::LINK_BYTES {
            return None;
        }
        let mut path = String::from(PATH);
        BASE64.encode_string(key.seal(rng, content.to_vec()), &mut path);
        (path.len() <= limits::LINK_BYTES).then_some(path)
    }

    /// Reads the part of the path after [`PATH`].
    ///
    /// # Errors
    /// `Denied` for anything that was not made with this key, or has expired.
    pub fn open(token: &str, key: &LinkKey, now: Timestamp) -> Result<Link> {
        let bad = || {
            Error::Denied(
                "the link is incomplete, or was made by another cluster: ask the \
                gateway for a new one"
                    .into(),
            )
        };
        if token.len() > limits::LINK_BYTES {
            return Err(bad());
        }
        let sealed = BASE64.decode(token).map_err(|_| bad())?;
        let content = Bytes::from(key.open(&sealed)?);
        let link = Link::decode(&content)?;
        if now.secs() >= link.expires {
            return Err(Error::Denied(
                "the link has expired: ask the gateway for a new one".into(),
            ));
        }
        Ok(link)
    }

    fn encode(&self) -> Bytes {
        let mut out = Writer::new(FORMAT);
        out.text(1, &self.bucket)
            .text(2, &self.key)
            .number(3, self.layout.size())
            .number(4, self.expires.max(0).cast_unsigned())
            .text(5, &self.etag)
            .number(6, self.modified.0.cast_unsigned());
        for (name, value) in &self.headers {
            let name = name.as_str().as_bytes();
            out.bytes(7, &[name, b":", value.as_bytes()].concat());
        }
        out.bytes(8, &encode_extents(self.layout.extents()));
        out.finish()
    }

    fn decode(content: &Bytes) -> Result<Link> {
        let (mut bucket, mut key, mut etag) = (String::new(), String::new(), String::new());
        let (mut size, mut expires, mut modified) = (0, 0, Timestamp(0));
        let (mut headers, mut extents) = (HeaderMap::new(), Vec::new());
        let mut fields = Fields::open(content, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => bucket = field.text()?,
                2 => key = field.text()?,
                3 => size = field.number()?,
                4 => expires = field.number()?.cast_signed(),
                5 => etag = field.text()?,
                6 => modified = Timestamp(field.number()?.cast_signed()),
                7 => {
                    let (name, value) = decode_header(&field.value).ok_or_else(|| bad("header"))?;
                    headers.append(name, value);
                }
                8 => extents = decode_extents(field.value)?,
                // An unknown field may restrict the link, so it is refused.
                _ => return Err(bad("field")),
            }
        }
        let layout = Layout::new(size, extents)?;
        Ok(Link { bucket, key, expires, etag, modified, headers, layout })
    }
}

fn bad(what: &str) -> Error {
    Error::corrupt("link", "something else", what)
}

fn decode_header(bytes: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let at = bytes.iter().position(|byte| *byte == b':')?;
    let (name, value) = bytes.split_at(at);
    let name = HeaderName::from_bytes(name).ok()?;
    Some((name, HeaderValue::from_bytes(value.get(1..)?).ok()?))
}

/// Flags of the fields of an extent that differ from those expected after the previous extent; each
/// of these fields follows the byte of flags.
mod differs {
    pub const PLACE: u8 = 1;
    pub const OFFSET: u8 = 2;
    pub const LENGTH: u8 = 4;
    pub const GROUP: u8 = 8;
    pub const SESSION: u8 = 16;
    pub const COUNTER: u8 = 32;
    pub const IN_BLOCK: u8 = 64;
}

/// The extent that is expected next: adjacent to the last one, of the same length, in the next
/// block.
struct Next {
    offset: u64,
    len: u64,
    group: GroupId,
    block: BlockId,
}

impl Next {
    fn first() -> Next {
        let block = BlockId { session: SessionId(0), counter: 0 };
        Next { offset: 0, len: 0, group: GroupId(0), block }
    }

    fn after(&mut self, extent: &Extent) {
        (self.offset, self.len) = (extent.offset.saturating_add(extent.len), extent.len);
        if let Place::Block { group, block, .. } = extent.place {
            (self.group, self.block) = (group, block);
            self.block.counter = self.block.counter.wrapping_add(1);
        }
    }
}

/// Encodes extents: in two bytes each for most blocks of a file that was written in one go.
fn encode_extents(extents: &[Extent]) -> Vec<u8> {
    let (mut out, mut next) = (Vec::with_capacity(64), Next::first());
    for extent in extents {
        let (mut flags, mut rest) = (0, Vec::new());
        let mut number = |differs: bool, flag: u8, value: u64| {
            if differs {
                flags |= flag;
                put_varint(&mut rest, value);
            }
        };
        number(extent.offset != next.offset, differs::OFFSET, extent.offset);
        number(extent.len != next.len, differs::LENGTH, extent.len);
        match &extent.place {
            Place::Block { group, block, offset } => {
                number(*group != next.group, differs::GROUP, group.0.into());
                number(block.session != next.block.session, differs::SESSION, block.session.0);
                number(block.counter != next.block.counter, differs::COUNTER, block.counter);
                number(*offset != 0, differs::IN_BLOCK, (*offset).into());
            }
            Place::Inline(bytes) => {
                flags |= differs::PLACE;
                rest.extend_from_slice(bytes);
            }
            // A layout has no such extents.
            Place::Body { .. } => continue,
        }
        out.push(flags);
        out.append(&mut rest);
        next.after(extent);
    }
    out
}

fn decode_extents(mut bytes: Bytes) -> Result<Vec<Extent>> {
    let (mut extents, mut next) = (Vec::new(), Next::first());
    while let Some(&flags) = bytes.first() {
        if extents.len() == limits::LINK_EXTENTS {
            return Err(bad("more extents than a link may have"));
        }
        bytes.advance(1);
        let number = |flag: u8, bytes: &mut Bytes, expected: u64| -> Result<u64> {
            if flags & flag == 0 {
                return Ok(expected);
            }
            let mut rest = &bytes[..];
            let value = take_varint(&mut rest)?;
            let taken = bytes.len() - rest.len();
            bytes.advance(taken);
            Ok(value)
        };
        let offset = number(differs::OFFSET, &mut bytes, next.offset)?;
        let len = number(differs::LENGTH, &mut bytes, next.len)?;
        let place = if flags & differs::PLACE != 0 {
            let length = usize::try_from(len).ok().filter(|len| *len <= bytes.len());
            Place::Inline(bytes.split_to(length.ok_or_else(|| bad("more bytes"))?))
        } else {
            let narrow = |number: u64| u32::try_from(number).map_err(|_| bad("a smaller number"));
            let group = number(differs::GROUP, &mut bytes, next.group.0.into())?;
            let session = number(differs::SESSION, &mut bytes, next.block.session.0)?;
            let counter = number(differs::COUNTER, &mut bytes, next.block.counter)?;
            let offset = narrow(number(differs::IN_BLOCK, &mut bytes, 0)?)?;
            let block = BlockId { session: SessionId(session), counter };
            Place::Block { group: GroupId(narrow(group)?), block, offset }
        };
        let extent = Extent { offset, len, place };
        next.after(&extent);
        extents.push(extent);
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::Secret;
    use cairn_base::rng::SeededRng;
    use proptest::prelude::*;

    fn key() -> LinkKey {
        LinkKey::new(&Secret::new([7; 32]))
    }

    fn link(layout: Layout) -> Link {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        headers.insert("x-cairn-meta-a", HeaderValue::from_bytes("grün: x".as_bytes()).unwrap());
        Link {
            bucket: "photos".into(),
            key: "2026/a".into(),
            expires: 1000,
            etag: "e".into(),
            modified: Timestamp(-5),
            headers,
            layout,
        }
    }

    fn block(counter: u64) -> Place {
        let block = BlockId { session: SessionId(u64::MAX), counter };
        Place::Block { group: GroupId(3), block, offset: 0 }
    }

    /// A file as one upload writes it: blocks of 4 MiB.
    fn file(blocks: u64) -> Layout {
        const LEN: u64 = 4 << 20;
        let extent = |at| Extent { offset: at * LEN, len: LEN, place: block(100 + at) };
        Layout::new(blocks * LEN, (0..blocks).map(extent).collect()).unwrap()
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        let one = (0..3u64, 1..40u64, 0..4u32, 0..3u64, 0..5u64, 0..2u32, any::<bool>());
        prop::collection::vec(one, 0..40).prop_map(|all| {
            let (mut at, mut extents) = (0, Vec::new());
            for (gap, len, group, session, counter, offset, inline) in all {
                let block = BlockId { session: SessionId(session), counter };
                let place = if inline {
                    Place::Inline(Bytes::from(vec![counter as u8; len as usize]))
                } else {
                    Place::Block { group: GroupId(group), block, offset }
                };
                extents.push(Extent { offset: at + gap, len, place });
                at += gap + len;
            }
            Layout::new(at + 1, extents).unwrap()
        })
    }

    #[test]
    fn any_altered_byte_is_refused() {
        let (key, link) = (key(), link(file(3)));
        let path = link.to_path(&key, &SeededRng::new(1)).unwrap();
        let token = path.strip_prefix(PATH).unwrap();
        let now = Timestamp::from_secs(999);
        assert_eq!(Link::open(token, &key, now).unwrap(), link);
        let is_denied = |token: &str| matches!(Link::open(token, &key, now), Err(Error::Denied(_)));
        for at in 0..token.len() {
            assert!(is_denied(&token[..at]) && is_denied(&token[at + 1..]));
            for other in ["A", "B", "-", "=", "/", "é"] {
                let altered = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                assert!(altered == token || is_denied(&altered), "{altered}");
            }
        }
        assert!(is_denied(&format!("{token}A")) && is_denied(&format!("{token}=")));
        let stranger = LinkKey::new(&Secret::new([8; 32]));
        assert!(Link::open(token, &stranger, now).is_err());
        assert!(!path.contains("photos"));
    }

    #[test]
    fn it_opens_until_it_expires() {
        let (key, link) = (key(), link(file(1)));
        let path = link.to_path(&key, &SeededRng::new(1)).unwrap();
        let open = |now| Link::open(&path[PATH.len()..], &key, Timestamp::from_secs(now));
        assert!(open(0).is_ok() && open(999).is_ok());
        assert!(matches!(open(1000), Err(Error::Denied(text)) if text.contains("expired")));
    }

    #[test]
    fn links_of_usual_files_are_short_and_none_is_too_long() {
        let path = |layout| link(layout).to_path(&key(), &SeededRng::new(1));
        assert!(path(file(75)).unwrap().len() < 400);
        assert!(path(file(limits::LINK_EXTENTS as u64)).unwrap().len() < 2000);
        assert_eq!(path(file(limits::LINK_EXTENTS as u64 + 1)), None);
        let len = limits::LINK_BYTES;
        let place = Place::Inline(vec![0; len].into());
        let inline = Extent { offset: 0, len: len as u64, place };
        assert_eq!(path(Layout::new(len as u64, vec![inline]).unwrap()), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn what_was_encoded_is_decoded(layout in any_layout()) {
            let link = link(layout);
            prop_assert_eq!(Link::decode(&link.encode()).unwrap(), link);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]
        #[test]
        fn any_token_is_refused(token in "[-_=A-Za-z0-9é]{0,120}") {
            let opened = Link::open(&token, &key(), Timestamp(0));
            prop_assert!(matches!(opened, Err(Error::Denied(_))));
        }

        #[test]
        fn any_content_is_decoded_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..100),
            starts_right: bool,
        ) {
            let valid = encode_extents(file(2).extents());
            if starts_right {
                bytes.splice(0..0, valid);
            }
            let _ = decode_extents(bytes.clone().into());
            bytes.splice(0..0, [FORMAT]);
            let _ = Link::decode(&bytes.into());
        }
    }
}

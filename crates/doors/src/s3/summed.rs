//! Contents of replies and requests with checksums. The library knows only some of the algorithms.

use std::io::Write;

use cairn_fs::rows::{Algorithm, Checksum};
use s3s::dto::ETag;
use s3s::xml::{
    DeError, DeResult, Deserialize, DeserializeContent, Deserializer, SerResult, Serialize,
    SerializeContent, Serializer,
};

use super::checksums;

/// Limit of the depth of elements in an unknown element.
const DEPTH: u32 = 8;

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// A document by the name of its root.
pub(super) struct Document<T> {
    pub(super) name: &'static str,
    pub(super) content: T,
}

impl<T: SerializeContent> Serialize for Document<T> {
    fn serialize<W: Write>(&self, out: &mut Serializer<W>) -> SerResult {
        out.content_with_ns(self.name, NAMESPACE, &self.content)
    }
}

/// An element, and behind what the library writes of it, its checksums.
pub(super) struct WithChecksums<T> {
    pub(super) content: T,
    pub(super) checksums: Vec<Checksum>,
    /// Number of parts, if it goes with a checksum of checksums; otherwise 0.
    pub(super) part_count: u32,
}

impl<T: SerializeContent> SerializeContent for WithChecksums<T> {
    fn serialize_content<W: Write>(&self, out: &mut Serializer<W>) -> SerResult {
        self.content.serialize_content(out)?;
        for checksum in &self.checksums {
            let text = checksums::encode(checksum, self.part_count);
            out.content(&checksums::element(checksum.algorithm), &text)?;
        }
        Ok(())
    }
}

/// An element, and behind what the library writes of it, parts with their checksums.
pub(super) struct WithParts<T, P> {
    pub(super) content: T,
    pub(super) parts: Vec<WithChecksums<P>>,
}

impl<T: SerializeContent, P: SerializeContent> SerializeContent for WithParts<T, P> {
    fn serialize_content<W: Write>(&self, out: &mut Serializer<W>) -> SerResult {
        self.content.serialize_content(out)?;
        out.flattened_list("Part", &self.parts)
    }
}

/// The parts that the client names for the completion of an upload.
#[derive(Default)]
pub(super) struct NamedParts(pub(super) Vec<NamedPart>);

/// A part as the client names it.
#[derive(Default)]
pub(super) struct NamedPart {
    pub(super) number: Option<i32>,
    pub(super) etag: Option<ETag>,
    /// Checksums as they were sent.
    pub(super) checksums: Vec<(Algorithm, String)>,
}

impl<'xml> Deserialize<'xml> for NamedParts {
    fn deserialize(xml: &mut Deserializer<'xml>) -> DeResult<NamedParts> {
        xml.named_element("CompleteMultipartUpload", Deserializer::content)
    }
}

impl<'xml> DeserializeContent<'xml> for NamedParts {
    fn deserialize_content(xml: &mut Deserializer<'xml>) -> DeResult<NamedParts> {
        let mut parts = NamedParts::default();
        xml.for_each_element(|xml, name| match name {
            b"Part" => {
                parts.0.push(xml.content()?);
                Ok(())
            }
            _ => skip(xml, DEPTH),
        })?;
        Ok(parts)
    }
}

impl<'xml> DeserializeContent<'xml> for NamedPart {
    fn deserialize_content(xml: &mut Deserializer<'xml>) -> DeResult<NamedPart> {
        let mut part = NamedPart::default();
        xml.for_each_element(|xml, name| match (name, checksums::of_element(name)) {
            (b"PartNumber", _) => once(part.number.replace(xml.content()?).is_none()),
            (b"ETag", _) => once(part.etag.replace(xml.content()?).is_none()),
            (_, Some(algorithm)) => {
                let text = xml.content()?;
                let is_first = part.checksums.iter().all(|(known, _)| *known != algorithm);
                part.checksums.push((algorithm, text));
                once(is_first)
            }
            _ => skip(xml, DEPTH),
        })?;
        Ok(part)
    }
}

/// Skips the contents of an unknown element, with elements in it `depth` deep at most.
fn skip(xml: &mut Deserializer<'_>, depth: u32) -> DeResult {
    let deeper = depth.checked_sub(1).ok_or(DeError::InvalidContent)?;
    xml.for_each_element(|xml, _| skip(xml, deeper))
}

fn once(is_first: bool) -> DeResult {
    if is_first { Ok(()) } else { Err(DeError::DuplicateField) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::xml::parse;

    fn named(parts: &str) -> Option<NamedParts> {
        let text = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        parse(text.as_bytes()).ok()
    }

    #[test]
    fn parts_are_named_with_checksums_of_every_algorithm() {
        for algorithm in Algorithm::ALL {
            let name = checksums::element(algorithm);
            let sum = format!("<{name}>sum</{name}>");
            let part = format!("<PartNumber>3</PartNumber><ETag>\"e\"</ETag><X><Y/>z</X>{sum}");
            let found = named(&format!("<Z/><Part>{part}</Part>")).unwrap();
            let [part] = &found.0[..] else { panic!("{algorithm:?}") };
            assert_eq!(part.number, Some(3));
            assert_eq!(part.etag.as_ref().map(ETag::value), Some("e"));
            assert_eq!(part.checksums, [(algorithm, "sum".to_owned())]);
            assert!(named(&format!("<Part>{sum}{sum}</Part>")).is_none());
        }
        assert!(named("<Part><ETag>e</ETag><ETag>e</ETag></Part>").is_none());
    }

    #[test]
    fn elements_without_end_are_refused() {
        let deep = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(named(&deep(8)).is_some());
        assert!(named(&deep(100_000)).is_none());
    }
}

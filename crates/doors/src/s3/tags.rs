//! Tags in the form of S3.

use cairn_base::limits;
use cairn_fs::ops::tags::check_tags;
use http::{HeaderMap, StatusCode};
use s3s::dto::{Tag, TagSet};
use s3s::{S3ErrorCode, S3Result};

use super::error::{refuse, refuse_with};
use super::headers::text;
use super::query::Query;

pub(super) type Tags = Vec<(String, String)>;

/// Returns the tags in `x-amz-tagging`, which has the form of a query.
pub(super) fn of_header(headers: &HeaderMap) -> S3Result<Tags> {
    let Some(text) = text(headers, "x-amz-tagging")? else { return Ok(Tags::new()) };
    let bad = || {
        refuse(
            S3ErrorCode::InvalidArgument,
            "the header x-amz-tagging cannot be parsed: write it as key1=value1&key2=value2",
        )
    };
    let tags = Query::parse(Some(text)).map_err(|_| bad())?;
    if tags.pairs().iter().any(|(key, _)| key.is_empty()) {
        return Err(bad());
    }
    check(tags.pairs().to_vec(), limits::OBJECT_TAGS)
}

pub(super) fn of_set(set: TagSet, most: usize) -> S3Result<Tags> {
    let tags = set.into_iter().map(|tag| match (tag.key, tag.value) {
        (Some(key), Some(value)) => Ok((key, value)),
        _ => Err(refuse(S3ErrorCode::MalformedXML, "a tag lacks its Key or its Value")),
    });
    check(tags.collect::<S3Result<_>>()?, most)
}

fn check(tags: Tags, most: usize) -> S3Result<Tags> {
    if tags.len() > most {
        let what = format!("{} tags; at most {most} are allowed", tags.len());
        return Err(refuse_with("BadRequest", StatusCode::BAD_REQUEST, what));
    }
    let (keys, values) = (tags.iter().map(|tag| &tag.0), tags.iter().map(|tag| &tag.1));
    let mut texts = keys.map(|key| ("key", key)).chain(values.map(|value| ("value", value)));
    if let Some((which, text)) = texts.find(|(_, text)| !text.chars().all(is_of_tag)) {
        let what =
            format!("tag {which} {text:?}: letters, digits, spaces and + - = . _ : / @ only");
        return Err(refuse(S3ErrorCode::InvalidTag, what));
    }
    match check_tags(&tags, most) {
        Ok(()) => Ok(tags),
        Err(error) => Err(refuse(S3ErrorCode::InvalidTag, error.to_string())),
    }
}

/// Returns whether S3 allows a character in the key or the value of a tag. Checked in new tags
/// only: older objects keep others.
fn is_of_tag(char: char) -> bool {
    let is_space = char.is_whitespace() && !char.is_control();
    char.is_alphanumeric() || is_space || "+-=._:/@".contains(char)
}

pub(super) fn to_set(tags: Tags) -> TagSet {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

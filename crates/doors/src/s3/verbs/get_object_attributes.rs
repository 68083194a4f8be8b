use cairn_auth::Caller;
use cairn_base::limits;
use cairn_fs::Object;
use cairn_fs::ops::multipart::PartTable;
use cairn_fs::rows::{ObjectAttributes as Row, Part};
use http::Response;
use http::header::{HeaderMap, LAST_MODIFIED};
use s3s::dto::{
    Checksum, ETag, GetObjectAttributesOutput, GetObjectAttributesParts, ObjectPart, StorageClass,
};
use s3s::xml::{SerResult, SerializeContent, Serializer};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::checksums::type_of;
use super::super::error::{Codes, bad_request, invalid, translate};
use super::super::headers::text;
use super::super::reply;
use super::super::store::Store;
use super::super::summed::{Document, WithChecksums, WithParts};
use super::super::xml::{self, DECLARATION};
use super::get_object::body_of;
use super::{check_version, page_size};
use crate::dates::last_modified;

const KNOWN: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

const WANTED: &str = "x-amz-object-attributes";

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let words = words(call.headers())?;
    check_version(call.query())?;
    if words.iter().any(|word| !KNOWN.contains(word)) {
        return Err(invalid(format!("{WANTED}: use {}", KNOWN.join(","))));
    }
    let wants = |word: &str| words.contains(&word);
    let object = call.open().await?;
    call.authorize(object.bucket().access())?;
    let row = object.attributes();
    let object_parts = match row.filter(|row| wants("ObjectParts") && row.part_count > 0) {
        Some(row) => Some(parts(&call, &object, row).await?),
        None => None,
    };
    let head = GetObjectAttributesOutput {
        e_tag: wants("ETag").then(|| ETag::Strong(object.etag())),
        object_size: wants("ObjectSize").then(|| object.size() as i64),
        storage_class: wants("StorageClass")
            .then(|| StorageClass::from_static(StorageClass::STANDARD)),
        ..GetObjectAttributesOutput::default()
    };
    let checksum = row.filter(|_| wants("Checksum")).and_then(checksum);
    let content = Attributes { head, checksum, parts: object_parts };
    let document = Document { name: "GetObjectAttributesResponse", content };
    let text = xml::write(&document, DECLARATION)?;
    let mut response = reply::text(without_quotes(&String::from_utf8_lossy(&text)));
    let modified = last_modified(object.inode().mtime);
    response.headers_mut().insert(LAST_MODIFIED, modified);
    Ok(response)
}

/// Returns the requested attributes, from one header or several.
fn words(headers: &HeaderMap) -> S3Result<Vec<&str>> {
    let lines = headers.get_all(WANTED).iter().map(|line| line.to_str().unwrap_or_default());
    let words: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    if words.is_empty() { Err(bad_request(format!("missing header: {WANTED}"))) } else { Ok(words) }
}

/// Removes the quotes of an ETag: only this reply has none.
fn without_quotes(text: &str) -> String {
    text.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>")
}

/// The attributes that were asked for.
struct Attributes {
    head: GetObjectAttributesOutput,
    checksum: Option<WithChecksums<Checksum>>,
    parts: Option<Parts>,
}

type Parts = WithParts<GetObjectAttributesParts, ObjectPart>;

impl SerializeContent for Attributes {
    fn serialize_content<W: std::io::Write>(&self, out: &mut Serializer<W>) -> SerResult {
        self.head.serialize_content(out)?;
        if let Some(checksum) = &self.checksum {
            out.content("Checksum", checksum)?;
        }
        if let Some(parts) = &self.parts {
            out.content("ObjectParts", parts)?;
        }
        Ok(())
    }
}

fn checksum(row: &Row) -> Option<WithChecksums<Checksum>> {
    let content = Checksum { checksum_type: type_of(&row.checksums), ..Checksum::default() };
    let checksum = WithChecksums { content, checksums: row.checksums.clone(), part_count: 0 };
    (!row.checksums.is_empty()).then_some(checksum)
}

/// Returns the parts, numbered from 1 in the order of the object, as in GET.
async fn parts(call: &Call<'_>, object: &Object, row: &Row) -> S3Result<Parts> {
    let number = |name: &str| -> S3Result<Option<i32>> {
        let bad = |_| invalid(format!("{name} is not a number"));
        text(call.headers(), name)?.map(|text| text.parse().map_err(bad)).transpose()
    };
    let limit = page_size(number("x-amz-max-parts")?, "x-amz-max-parts")?;
    let marker = number("x-amz-part-number-marker")?.unwrap_or_default();
    let skipped = usize::try_from(marker).map_err(|_| invalid("part-number-marker"))?;
    let table = table(call.store, object, row).await?;
    let shown: Vec<WithChecksums<ObjectPart>> = (1i32..)
        .zip(&table)
        .skip(skipped)
        .take(limit)
        .map(|(number, part)| object_part(number, part))
        .collect();
    let last = shown.last().and_then(|part| part.content.part_number).unwrap_or(marker);
    let content = GetObjectAttributesParts {
        is_truncated: Some(skipped + shown.len() < table.len()),
        max_parts: Some(limit as i32),
        next_part_number_marker: Some(last),
        part_number_marker: Some(marker),
        parts: None,
        total_parts_count: Some(row.part_count as i32),
    };
    Ok(WithParts { content, parts: shown })
}

async fn table(store: &Store, object: &Object, row: &Row) -> S3Result<Vec<Part>> {
    let Some(upload) = row.part_table else { return Ok(Vec::new()) };
    let body = body_of(object);
    let mut table = Vec::new();
    let mut after = 0;
    loop {
        let verb = PartTable { upload, after, limit: limits::LIST_KEYS };
        let read = store.fs.read(&Caller::system(), verb).await;
        let (parts, more) = read.map_err(|error| translate(error, Codes::object()))?;
        after = parts.last().map_or(after, |(number, _)| *number);
        table.extend(parts.into_iter().map(|(_, part)| part).filter(|part| part.taken == body));
        if !more {
            return Ok(table);
        }
    }
}

fn object_part(number: i32, row: &Part) -> WithChecksums<ObjectPart> {
    let content = ObjectPart {
        part_number: Some(number),
        size: Some(row.size as i64),
        ..ObjectPart::default()
    };
    WithChecksums { content, checksums: row.checksums.clone(), part_count: 0 }
}

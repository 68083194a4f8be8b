use cairn_auth::Caller;
use cairn_base::limits;
use cairn_fs::Object;
use cairn_fs::ops::multipart::PartTable;
use cairn_fs::rows::{ObjectAttributes as Row, Part};
use s3s::S3Result;
use s3s::dto::{
    Checksum, ETag, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts,
    ObjectPart, StorageClass,
};

use super::super::checksums::{fill_checksums, type_of};
use super::super::error::{Codes, invalid, translate};
use super::super::get_object::body_of;
use super::super::headers::text;
use super::super::library::Asked;
use super::super::store::Store;
use super::{check_version, page_size, time};

const KNOWN: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: GetObjectAttributesInput,
) -> S3Result<GetObjectAttributesOutput> {
    check_version(input.version_id.as_deref())?;
    let words: Vec<&str> = input.object_attributes.iter().map(|word| word.as_str()).collect();
    if words.is_empty() || words.iter().any(|word| !KNOWN.contains(word)) {
        return Err(invalid(format!("x-amz-object-attributes: use {}", KNOWN.join(","))));
    }
    let wants = |word: &str| words.contains(&word);
    let object = match store.fs.open(&asked.caller, &input.bucket, &input.key).await {
        Ok(object) => object,
        Err(error) => {
            let buckets = [input.bucket.as_str()];
            return Err(store.refused(&asked.caller, &buckets, error, Codes::object()).await);
        }
    };
    let row = object.attributes();
    let object_parts = match row.filter(|row| wants("ObjectParts") && row.part_count > 0) {
        Some(row) => Some(parts(store, &asked, &object, row).await?),
        None => None,
    };
    Ok(GetObjectAttributesOutput {
        checksum: row.filter(|_| wants("Checksum")).and_then(checksum),
        e_tag: wants("ETag").then(|| ETag::Strong(object.etag())),
        last_modified: Some(time(object.inode().mtime)),
        object_parts,
        object_size: wants("ObjectSize").then(|| object.size() as i64),
        storage_class: wants("StorageClass")
            .then(|| StorageClass::from_static(StorageClass::STANDARD)),
        ..GetObjectAttributesOutput::default()
    })
}

fn checksum(row: &Row) -> Option<Checksum> {
    let mut checksum = Checksum { checksum_type: type_of(&row.checksums), ..Checksum::default() };
    fill_checksums!(checksum, &row.checksums, 0);
    (!row.checksums.is_empty()).then_some(checksum)
}

/// Parts are numbered from 1 in the order of the object, as GET counts them.
async fn parts(
    store: &Store,
    asked: &Asked,
    object: &Object,
    row: &Row,
) -> S3Result<GetObjectAttributesParts> {
    let number = |name: &str| -> S3Result<Option<i32>> {
        let bad = |_| invalid(format!("{name} is not a number"));
        text(&asked.headers, name)?.map(|text| text.parse().map_err(bad)).transpose()
    };
    let limit = page_size(number("x-amz-max-parts")?, "x-amz-max-parts")?;
    let marker = number("x-amz-part-number-marker")?.unwrap_or_default();
    let skipped = usize::try_from(marker).map_err(|_| invalid("part-number-marker"))?;
    let table = table(store, object, row).await?;
    let shown: Vec<ObjectPart> = (1i32..)
        .zip(&table)
        .skip(skipped)
        .take(limit)
        .map(|(number, part)| object_part(number, part))
        .collect();
    let last = shown.last().and_then(|part| part.part_number).unwrap_or(marker);
    Ok(GetObjectAttributesParts {
        is_truncated: Some(skipped + shown.len() < table.len()),
        max_parts: Some(limit as i32),
        next_part_number_marker: Some(last),
        part_number_marker: Some(marker),
        parts: Some(shown),
        total_parts_count: Some(row.part_count as i32),
    })
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

fn object_part(number: i32, row: &Part) -> ObjectPart {
    let mut part = ObjectPart {
        part_number: Some(number),
        size: Some(row.size as i64),
        ..ObjectPart::default()
    };
    fill_checksums!(part, &row.checksums, 0);
    part
}

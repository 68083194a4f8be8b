use cairn_fs::ops::multipart::ListParts;
use cairn_fs::rows::Part as Row;
use s3s::S3Result;
use s3s::dto::{ETag, ListPartsInput, ListPartsOutput, Part, StorageClass};

use super::super::checksums::{self, fill_checksums};
use super::super::error::{Codes, invalid};
use super::super::library::Asked;
use super::super::store::Store;
use super::super::{owner, upload_id};
use super::{page_size, time};

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: ListPartsInput,
) -> S3Result<ListPartsOutput> {
    let name = upload_id::name(input.bucket.clone(), input.key.clone(), &input.upload_id);
    let limit = page_size(input.max_parts, "max-parts")?;
    let after = match u32::try_from(input.part_number_marker.unwrap_or_default()) {
        Ok(after) => after,
        Err(_) => return Err(invalid("part-number-marker must not be negative")),
    };
    let verb = ListParts { name, after, limit };
    let (upload, rows, more) =
        store.read(&asked.caller, &input.bucket, Codes::upload(), verb).await?;
    let owner = owner::owner(&store.fs, upload.initiator).await?;
    let last = rows.last().map_or(after, |(number, _)| *number);
    Ok(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        checksum_algorithm: upload.checksum.map(|(one, _)| checksums::to_algorithm(one)),
        checksum_type: upload.checksum.map(|(_, kind)| checksums::to_type(kind)),
        initiator: Some(owner::initiator(&owner)),
        owner: Some(owner),
        is_truncated: Some(more && limit > 0),
        max_parts: Some(limit as i32),
        part_number_marker: Some(after as i32),
        next_part_number_marker: Some(last as i32),
        parts: Some(rows.into_iter().map(|(number, row)| part(number, &row)).collect()),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..ListPartsOutput::default()
    })
}

fn part(number: u32, row: &Row) -> Part {
    let mut part = Part {
        e_tag: Some(ETag::Strong(row.etag.clone())),
        last_modified: Some(time(row.modified)),
        part_number: Some(number as i32),
        size: Some(row.size as i64),
        ..Part::default()
    };
    fill_checksums!(part, &row.checksums, 0);
    part
}

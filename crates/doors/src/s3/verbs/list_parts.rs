use cairn_fs::ops::multipart::ListParts;
use cairn_fs::rows::Part as Row;
use http::Response;
use s3s::dto::{ETag, ListPartsOutput, Part, StorageClass};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::checksums;
use super::super::error::{Codes, invalid};
use super::super::summed::{Document, WithChecksums, WithParts};
use super::super::{owner, reply, upload_id};
use super::{page_size, time};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let query = call.query();
    let (asked, marker) = (query.parsed("max-parts")?, query.parsed::<i32>("part-number-marker")?);
    let limit = page_size(asked, "max-parts")?;
    let after = match u32::try_from(marker.unwrap_or_default()) {
        Ok(after) => after,
        Err(_) => return Err(invalid("part-number-marker must not be negative")),
    };
    let verb = ListParts { name: upload_id::of(&call), after, limit };
    let (upload, rows, more) = call.read(Codes::upload(), verb).await?;
    let owner = owner::owner(&call.store.fs, upload.initiator).await?;
    let last = rows.last().map_or(after, |(number, _)| *number);
    let content = ListPartsOutput {
        bucket: Some(call.bucket().to_owned()),
        key: Some(call.key().to_owned()),
        upload_id: query.get("uploadId").map(str::to_owned),
        checksum_algorithm: upload.checksum.map(|(one, _)| checksums::to_algorithm(one)),
        checksum_type: upload.checksum.map(|(_, kind)| checksums::to_type(kind)),
        initiator: Some(owner::initiator(&owner)),
        owner: Some(owner),
        is_truncated: Some(more && limit > 0),
        max_parts: Some(limit as i32),
        part_number_marker: Some(after as i32),
        next_part_number_marker: Some(last as i32),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..ListPartsOutput::default()
    };
    let parts = rows.into_iter().map(|(number, row)| part(number, row)).collect();
    reply::xml(&Document { name: "ListPartsResult", content: WithParts { content, parts } })
}

fn part(number: u32, row: Row) -> WithChecksums<Part> {
    let content = Part {
        e_tag: Some(ETag::Strong(row.etag)),
        last_modified: Some(time(row.modified)),
        part_number: Some(number as i32),
        size: Some(row.size as i64),
        ..Part::default()
    };
    WithChecksums { content, checksums: row.checksums, part_count: 0 }
}

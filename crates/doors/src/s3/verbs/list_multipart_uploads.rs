use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cairn_base::{UploadId, UserId};
use cairn_fs::ops::list_uploads::ListUploads;
use cairn_fs::rows::Upload;
use s3s::S3Result;
use s3s::dto::{
    ListMultipartUploadsInput, ListMultipartUploadsOutput, MultipartUpload, Owner, StorageClass,
};

use super::super::error::{Codes, invalid};
use super::super::library::Asked;
use super::super::store::Store;
use super::super::{checksums, owner, upload_id};
use super::list_objects::Names;
use super::{page_size, time};

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: ListMultipartUploadsInput,
) -> S3Result<ListMultipartUploadsOutput> {
    let names = Names::new(input.encoding_type)?;
    let limit = page_size(input.max_uploads, "max-uploads")?;
    let after_key = input.key_marker.clone().unwrap_or_default();
    // It has no meaning without a key.
    let marker = input.upload_id_marker.as_deref().filter(|marker| !marker.is_empty());
    let after_upload = marker
        .filter(|_| !after_key.is_empty())
        .map(|marker| upload_id::decode(marker).ok_or_else(|| invalid("invalid uploadId marker")));
    let verb = ListUploads {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().unwrap_or_default(),
        after_key,
        after_upload: after_upload.transpose()?,
        limit,
    };
    let page = store.read(&asked.caller, &input.bucket, Codes::bucket(), verb).await?;
    let mut owners = HashMap::new();
    for (_, _, upload) in &page.uploads {
        if let Entry::Vacant(free) = owners.entry(upload.initiator) {
            free.insert(owner::owner(&store.fs, upload.initiator).await?);
        }
    }
    let (next_key, next_upload) = page.next.unzip();
    let uploads = page.uploads.iter().map(|(key, id, row)| upload(names, key, *id, row, &owners));
    Ok(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        delimiter: names.write_some(input.delimiter),
        encoding_type: names.encoding(),
        key_marker: Some(names.write(input.key_marker.as_deref().unwrap_or_default())),
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        max_uploads: Some(limit as i32),
        is_truncated: Some(next_key.is_some()),
        next_key_marker: next_key.as_deref().map(|key| names.write(key)),
        next_upload_id_marker: next_upload.flatten().map(upload_id::encode),
        uploads: Some(uploads.collect()),
        common_prefixes: Some(names.prefixes(&page.prefixes)),
        request_charged: None,
    })
}

fn upload(
    names: Names,
    key: &str,
    id: UploadId,
    row: &Upload,
    owners: &HashMap<UserId, Owner>,
) -> MultipartUpload {
    let owner = owners.get(&row.initiator).cloned();
    MultipartUpload {
        key: Some(names.write(key)),
        upload_id: Some(upload_id::encode(id)),
        initiated: Some(time(row.initiated)),
        initiator: owner.as_ref().map(owner::initiator),
        owner,
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        checksum_algorithm: row.checksum.map(|(one, _)| checksums::to_algorithm(one)),
        checksum_type: row.checksum.map(|(_, kind)| checksums::to_type(kind)),
    }
}

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cairn_base::{UploadId, UserId};
use cairn_fs::ops::list_uploads::ListUploads;
use cairn_fs::rows::Upload;
use http::Response;
use s3s::dto::{ListMultipartUploadsOutput, MultipartUpload, Owner, StorageClass};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, invalid};
use super::super::{checksums, owner, reply, upload_id};
use super::listing::Names;
use super::{page_size, time};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let query = call.query();
    let (asked, names) = (query.parsed("max-uploads")?, Names::of(query)?);
    let limit = page_size(asked, "max-uploads")?;
    let [prefix, delimiter, key_marker, upload_id_marker] =
        ["prefix", "delimiter", "key-marker", "upload-id-marker"]
            .map(|name| query.get(name).unwrap_or_default());
    // The marker has no meaning without a key.
    let is_meant = !upload_id_marker.is_empty() && !key_marker.is_empty();
    let after_upload = is_meant
        .then(|| upload_id::decode(upload_id_marker))
        .map(|marker| marker.ok_or_else(|| invalid("invalid uploadId marker")));
    let verb = ListUploads {
        bucket: call.bucket().to_owned(),
        prefix: prefix.to_owned(),
        delimiter: delimiter.to_owned(),
        after_key: key_marker.to_owned(),
        after_upload: after_upload.transpose()?,
        limit,
    };
    let page = call.read(Codes::bucket(), verb).await?;
    let mut owners = HashMap::new();
    for (_, _, upload) in &page.uploads {
        if let Entry::Vacant(free) = owners.entry(upload.initiator) {
            free.insert(owner::owner(&call.store.fs, upload.initiator).await?);
        }
    }
    let (next_key, next_upload) = page.next.unzip();
    let uploads = page.uploads.iter().map(|(key, id, row)| upload(names, key, *id, row, &owners));
    reply::xml(&ListMultipartUploadsOutput {
        bucket: Some(call.bucket().to_owned()),
        prefix: Some(names.write(prefix)),
        delimiter: names.write_some(delimiter),
        encoding_type: names.encoding(),
        key_marker: Some(names.write(key_marker)),
        upload_id_marker: Some(upload_id_marker.to_owned()),
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

use http::Response;
use s3s::dto::{ListObjectVersionsOutput, Object, ObjectVersion, ObjectVersionStorageClass};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::invalid;
use super::super::reply;
use super::listing::{ListParameters, bucket_owner};

/// Lists each object once, as the version `null`: former versions are not kept.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let query = call.query();
    let asked = ListParameters::of(query)?;
    let names = asked.names;
    let key_marker = query.get("key-marker").unwrap_or_default();
    let version_marker = query.get("version-id-marker").unwrap_or_default();
    match version_marker {
        "" => {}
        _ if key_marker.is_empty() => {
            return Err(invalid("a version-id marker cannot be specified without a key marker"));
        }
        "null" => {}
        _ => return Err(invalid("Invalid version id specified")),
    }
    let page = asked.page(&call, key_marker.to_owned()).await?;
    let owner = bucket_owner(&call).await?;
    let next = page.next.as_deref().map(|next| names.write(next));
    let (contents, common_prefixes) = names.page(page, Some(&owner));
    reply::xml(&ListObjectVersionsOutput {
        name: Some(call.bucket().to_owned()),
        prefix: Some(names.write(asked.prefix)),
        key_marker: Some(names.write(key_marker)),
        version_id_marker: Some(version_marker.to_owned()),
        max_keys: Some(asked.max_keys as i32),
        is_truncated: Some(next.is_some()),
        next_version_id_marker: next.is_some().then(|| "null".to_owned()),
        next_key_marker: next,
        versions: Some(contents.into_iter().map(only_version).collect()),
        common_prefixes: Some(common_prefixes),
        delimiter: names.write_some(asked.delimiter),
        encoding_type: names.encoding(),
        ..ListObjectVersionsOutput::default()
    })
}

fn only_version(object: Object) -> ObjectVersion {
    ObjectVersion {
        checksum_algorithm: object.checksum_algorithm,
        checksum_type: object.checksum_type,
        e_tag: object.e_tag,
        is_latest: Some(true),
        key: object.key,
        last_modified: object.last_modified,
        owner: object.owner,
        restore_status: None,
        size: object.size,
        storage_class: Some(ObjectVersionStorageClass::from_static(
            ObjectVersionStorageClass::STANDARD,
        )),
        version_id: Some("null".to_owned()),
    }
}

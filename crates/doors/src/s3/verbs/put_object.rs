use cairn_fs::PutRequest;
use cairn_fs::rows::ObjectAttributes;
use s3s::S3Result;
use s3s::dto::{ETag, PutObjectInput, PutObjectOutput};

use super::super::checksums::{fill_checksums, type_of};
use super::super::error::Codes;
use super::super::integrity::Integrity;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::{attributes, conditions, tags};
use super::acl;
use super::receive::{Received, receive};

/// Nothing is changed before all bytes came and were the right ones.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: PutObjectInput,
) -> S3Result<PutObjectOutput> {
    let headers = &asked.headers;
    let (integrity, further) = Integrity::of_object(headers)?;
    acl::check_object(store, &asked, &input.bucket).await?;
    let mut request = PutRequest {
        bucket: input.bucket,
        key: input.key,
        object: attributes::parse(headers)?,
        tags: tags::of_header(headers)?,
        conditions: conditions::of_change(headers)?,
    };
    let bucket = request.bucket.clone();
    let received = receive(store, &asked, &bucket, integrity, further).await?;
    let Received { written, etag, checksums } = received;
    request.object = ObjectAttributes { etag, checksums: checksums.clone(), ..request.object };
    let put = match store.fs.put_object(&asked.caller, request, written).await {
        Ok(put) => put,
        Err(error) => {
            let codes = Codes::object();
            return Err(store.refused(&asked.caller, &[&bucket], error, codes).await);
        }
    };
    let mut output = PutObjectOutput {
        e_tag: Some(ETag::Strong(put.etag)),
        checksum_type: type_of(&checksums),
        ..PutObjectOutput::default()
    };
    fill_checksums!(output, &checksums, 0);
    Ok(output)
}

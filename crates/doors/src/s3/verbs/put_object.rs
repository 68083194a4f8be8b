use cairn_fs::PutRequest;
use cairn_fs::rows::{Algorithm, ObjectAttributes};
use http::Response;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::integrity::Integrity;
use super::super::{attributes, checksums, conditions, tags};
use super::acl;
use super::receive::{ReceivedBody, receive, stored};

/// Stores an object. Nothing is changed before all bytes have arrived and were verified. It has a
/// checksum even if the client sent none, as at S3.
pub(crate) async fn run(mut call: Call<'_>) -> S3Result<Response<Body>> {
    let headers = call.headers();
    let (integrity, wanted) = Integrity::of_object(headers)?;
    let further = integrity.algorithm().or(wanted).or(Some(Algorithm::Crc64Nvme));
    Box::pin(acl::check_object(&call)).await?;
    let mut request = PutRequest {
        bucket: call.bucket().to_owned(),
        key: call.key().to_owned(),
        object: attributes::parse(headers)?,
        tags: tags::of_header(headers)?,
        conditions: conditions::of_change(headers)?,
    };
    let ReceivedBody { written, etag, checksums } =
        receive(&mut call, integrity, further, false).await?;
    request.object = ObjectAttributes { etag, checksums: checksums.clone(), ..request.object };
    let put = match Box::pin(call.store.fs.put_object(call.caller, request, written)).await {
        Ok(put) => put,
        Err(error) => return Err(Box::pin(call.refused(error, Codes::object())).await),
    };
    let mut response = stored(&put.etag, &checksums);
    checksums::write_kind(&checksums, response.headers_mut());
    Ok(response)
}

use cairn_auth::Caller;
use cairn_base::Error;
use cairn_fs::ops::conditions::Current;
use cairn_fs::ops::multipart::CreateUpload;
use cairn_fs::rows::{Algorithm, ChecksumKind};
use http::Response;
use http::header::{HeaderMap, HeaderName};
use s3s::dto::CreateMultipartUploadOutput;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, bad_request, translate};
use super::super::headers::text;
use super::super::{attributes, checksums, conditions, reply, tags, upload_id};
use super::acl;

const ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const KIND: HeaderName = HeaderName::from_static("x-amz-checksum-type");

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let headers = call.headers();
    acl::check_object(&call).await?;
    check_conditions(&call).await?;
    let checksum = checksum(headers)?;
    let (bucket, key) = (call.bucket().to_owned(), call.key().to_owned());
    let verb = CreateUpload {
        bucket: bucket.clone(),
        key: key.clone(),
        object: attributes::parse(headers)?,
        tags: tags::of_header(headers)?,
        checksum,
    };
    let upload = call.run(Codes::bucket(), verb).await?;
    let mut response = reply::xml(&CreateMultipartUploadOutput {
        bucket: Some(bucket),
        key: Some(key),
        upload_id: Some(upload_id::encode(upload)),
        ..CreateMultipartUploadOutput::default()
    })?;
    if let Some((algorithm, kind)) = checksum {
        let headers = response.headers_mut();
        reply::insert(headers, ALGORITHM, checksums::word(algorithm));
        reply::insert(headers, KIND, checksums::kind_word(kind));
    }
    Ok(response)
}

/// Checks conditions early. They are decided when the upload is completed, but a client that also
/// sends them with the first request learns now that they fail.
async fn check_conditions(call: &Call<'_>) -> S3Result<()> {
    let conditions = conditions::of_change(call.headers())?;
    if conditions.is_empty() {
        return Ok(());
    }
    call.may_write().await?;
    let checked = match call.store.fs.open(&Caller::system(), call.bucket(), call.key()).await {
        Ok(object) => {
            conditions.check_change(Some(Current { ino: object.ino(), inode: object.inode() }))
        }
        Err(Error::NotFound(_)) => conditions.check_change(None),
        Err(error) => Err(error),
    };
    checked.map_err(|error| translate(error, Codes::object()))
}

/// Returns the checksum that all parts and the object will have.
fn checksum(headers: &HeaderMap) -> S3Result<Option<(Algorithm, ChecksumKind)>> {
    let algorithm = text(headers, "x-amz-checksum-algorithm")?;
    let algorithm = algorithm.map(checksums::algorithm).transpose()?;
    let kind = match text(headers, "x-amz-checksum-type")? {
        None => None,
        Some("COMPOSITE") => Some(ChecksumKind::Composite),
        Some("FULL_OBJECT") => Some(ChecksumKind::FullObject),
        Some(_) => return Err(bad_request("x-amz-checksum-type: use COMPOSITE or FULL_OBJECT")),
    };
    let Some(algorithm) = algorithm else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(bad_request("x-amz-checksum-type without x-amz-checksum-algorithm")),
        };
    };
    let default = match algorithm {
        Algorithm::Crc64Nvme => ChecksumKind::FullObject,
        _ => ChecksumKind::Composite,
    };
    let kind = kind.unwrap_or(default);
    match (algorithm, kind) {
        (Algorithm::Crc64Nvme, ChecksumKind::Composite) | (_, ChecksumKind::FullObject)
            if kind == ChecksumKind::Composite || !algorithm.is_crc() =>
        {
            Err(bad_request(format!(
                "the {} checksum type cannot be used with the {} checksum algorithm",
                checksums::kind_word(kind),
                checksums::word(algorithm)
            )))
        }
        _ => Ok(Some((algorithm, kind))),
    }
}

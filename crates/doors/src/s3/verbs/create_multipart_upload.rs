use cairn_auth::Caller;
use cairn_base::Error;
use cairn_fs::ops::conditions::Current;
use cairn_fs::ops::multipart::CreateUpload;
use cairn_fs::ops::put_object::MayWrite;
use cairn_fs::rows::{Algorithm, ChecksumKind};
use http::HeaderMap;
use s3s::S3Result;
use s3s::dto::{CreateMultipartUploadInput, CreateMultipartUploadOutput};

use super::super::error::{Codes, bad_request, translate};
use super::super::headers::text;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::{attributes, checksums, conditions, tags, upload_id};
use super::acl;

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: CreateMultipartUploadInput,
) -> S3Result<CreateMultipartUploadOutput> {
    let headers = &asked.headers;
    acl::check_object(store, &asked, &input.bucket).await?;
    check_conditions(store, &asked, &input.bucket, &input.key).await?;
    let checksum = checksum(headers)?;
    let verb = CreateUpload {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        object: attributes::parse(headers)?,
        tags: tags::of_header(headers)?,
        checksum,
    };
    let upload = store.run(&asked.caller, &input.bucket, Codes::bucket(), verb).await?;
    Ok(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload_id::encode(upload)),
        checksum_algorithm: checksum.map(|(algorithm, _)| checksums::to_algorithm(algorithm)),
        checksum_type: checksum.map(|(_, kind)| checksums::to_type(kind)),
        ..CreateMultipartUploadOutput::default()
    })
}

/// Conditions are decided when the upload is completed. A client that sends them with the first
/// request, too, learns early that they do not hold.
async fn check_conditions(store: &Store, asked: &Asked, bucket: &str, key: &str) -> S3Result<()> {
    let conditions = conditions::of_change(&asked.headers)?;
    if conditions.is_empty() {
        return Ok(());
    }
    let verb = MayWrite { bucket: bucket.to_owned() };
    store.read(&asked.caller, bucket, Codes::bucket(), verb).await?;
    let checked = match store.fs.open(&Caller::system(), bucket, key).await {
        Ok(object) => {
            conditions.check_change(Some(Current { ino: object.ino(), inode: object.inode() }))
        }
        Err(Error::NotFound(_)) => conditions.check_change(None),
        Err(error) => Err(error),
    };
    checked.map_err(|error| translate(error, Codes::object()))
}

/// The checksum that all parts and the object will have.
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
        (Algorithm::Crc64Nvme, ChecksumKind::Composite)
        | (Algorithm::Sha1 | Algorithm::Sha256, ChecksumKind::FullObject) => {
            Err(bad_request(format!(
                "the {} checksum type cannot be used with the {} checksum algorithm",
                checksums::kind_word(kind),
                checksums::word(algorithm)
            )))
        }
        _ => Ok(Some((algorithm, kind))),
    }
}

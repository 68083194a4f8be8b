//! Every operation of this door, with every parameter and header that means something to it.
//!
//! What a request carries is honoured by its operation or refused: there is no third way. The
//! matrix in `docs/s3.md` is this table; a test compares the two.

/// What the request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Service,
    Bucket,
    Object,
}

/// What the body of a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    None,
    Xml,
    /// The bytes of an object or part.
    Bytes,
}

/// The answer to a question about a feature that is not there: it is the same for all buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// There is none: code and message of a 404.
    Missing(&'static str, &'static str),
    /// A document that says so.
    Document(&'static str),
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) level: Level,
    /// Parameters that make it this operation.
    pub(super) wanted: &'static [&'static str],
    /// Parameters it understands besides.
    pub(super) allowed: &'static [&'static str],
    /// Headers it honours, besides those of [`SIGNED`] and [`BODY`] where it has a body. A `*` at
    /// the end stands for any further characters.
    pub(super) headers: &'static [&'static [&'static str]],
    /// Whether `x-amz-copy-source` makes it this operation.
    pub(super) copies: bool,
    pub(super) input: Input,
    pub(super) answer: Option<Answer>,
}

/// Headers of a signature, of the framing of a body and of logs. They are read before it is known
/// which operation is meant.
pub(super) const SIGNED: &[&str] = &[
    "x-amz-api-version",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-request-payer",
    "x-amz-security-token",
    "x-amz-user-agent",
];
/// Of every request for a bucket or object.
pub(super) const OWNER: &str = "x-amz-expected-bucket-owner";
/// What a client says of a body.
pub(super) const BODY: &[&str] = &[
    "content-md5",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
];
/// Headers of HTTP that an operation honours, or that change what is asked for.
pub(super) const CONDITIONS: &[&str] =
    &["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];

const READ_HEADERS: &[&str] = &[
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "range",
    "x-amz-checksum-mode",
];
const CHANGE: &[&str] = &["if-match", "if-none-match"];
const NEW_OBJECT: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-acl",
    "x-amz-meta-*",
    "x-amz-storage-class",
    "x-amz-tagging",
];
const SOURCE: &[&str] = &[
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-source-expected-bucket-owner",
];
const DIRECTIVES: &[&str] = &["x-amz-metadata-directive", "x-amz-tagging-directive"];
const ALGORITHM: &[&str] = &["x-amz-checksum-algorithm"];
const KIND: &[&str] = &["x-amz-checksum-type"];
const ACL: &[&str] = &["x-amz-acl"];

const OVERRIDES: [&str; 6] = [
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
];
const READ: &[&str] = &[
    "versionId",
    "partNumber",
    OVERRIDES[0],
    OVERRIDES[1],
    OVERRIDES[2],
    OVERRIDES[3],
    OVERRIDES[4],
    OVERRIDES[5],
];
const VERSION: &[&str] = &["versionId"];
const LIST_BUCKETS: &[&str] = &["prefix", "continuation-token", "max-buckets", "bucket-region"];
const LIST: &[&str] = &["prefix", "delimiter", "marker", "max-keys", "encoding-type"];
const LIST_2: &[&str] = &[
    "prefix",
    "delimiter",
    "start-after",
    "max-keys",
    "encoding-type",
    "continuation-token",
    "fetch-owner",
];
const LIST_VERSIONS: &[&str] =
    &["prefix", "delimiter", "key-marker", "version-id-marker", "max-keys", "encoding-type"];
const LIST_UPLOADS: &[&str] =
    &["prefix", "delimiter", "key-marker", "upload-id-marker", "max-uploads", "encoding-type"];
const LIST_PARTS: &[&str] = &["max-parts", "part-number-marker"];

const fn op(
    name: &'static str,
    method: &'static str,
    level: Level,
    wanted: &'static [&'static str],
    allowed: &'static [&'static str],
) -> Operation {
    let (headers, input) = (&[], Input::None);
    Operation { name, method, level, wanted, allowed, headers, copies: false, input, answer: None }
}

const fn taking(input: Input, operation: Operation) -> Operation {
    Operation { input, ..operation }
}

const fn copying(operation: Operation) -> Operation {
    Operation { copies: true, ..operation }
}

const fn with(headers: &'static [&'static [&'static str]], operation: Operation) -> Operation {
    Operation { headers, ..operation }
}

const fn missing(
    name: &'static str,
    parameter: &'static [&'static str],
    code: &'static str,
    message: &'static str,
) -> Operation {
    let answer = Some(Answer::Missing(code, message));
    Operation { answer, ..op(name, "GET", Level::Bucket, parameter, &[]) }
}

const fn document(
    name: &'static str,
    parameter: &'static [&'static str],
    text: &'static str,
) -> Operation {
    let answer = Some(Answer::Document(text));
    Operation { answer, ..op(name, "GET", Level::Bucket, parameter, &[]) }
}

use Input::{Bytes, Xml};
use Level::{Bucket, Object, Service};

pub(super) static TABLE: [Operation; 47] = [
    op("ListBuckets", "GET", Service, &[], LIST_BUCKETS),
    op("HeadBucket", "HEAD", Bucket, &[], &[]),
    op("GetBucketLocation", "GET", Bucket, &["location"], &[]),
    op("GetBucketVersioning", "GET", Bucket, &["versioning"], &[]),
    op("GetBucketAcl", "GET", Bucket, &["acl"], &[]),
    op("GetBucketTagging", "GET", Bucket, &["tagging"], &[]),
    op("GetBucketPolicyStatus", "GET", Bucket, &["policyStatus"], &[]),
    op("ListMultipartUploads", "GET", Bucket, &["uploads"], LIST_UPLOADS),
    op("ListObjectVersions", "GET", Bucket, &["versions"], LIST_VERSIONS),
    op("ListObjectsV2", "GET", Bucket, &["list-type"], LIST_2),
    op("ListObjects", "GET", Bucket, &[], LIST),
    missing(
        "GetBucketCors",
        &["cors"],
        "NoSuchCORSConfiguration",
        "The CORS configuration does not exist",
    ),
    missing(
        "GetBucketPolicy",
        &["policy"],
        "NoSuchBucketPolicy",
        "The bucket policy does not exist",
    ),
    Operation {
        // MinIO's clients ask when it was set, too.
        allowed: &["withUpdatedAt"],
        ..missing(
            "GetBucketLifecycleConfiguration",
            &["lifecycle"],
            "NoSuchLifecycleConfiguration",
            "The lifecycle configuration does not exist",
        )
    },
    missing(
        "GetBucketWebsite",
        &["website"],
        "NoSuchWebsiteConfiguration",
        "The specified bucket does not have a website configuration",
    ),
    missing(
        "GetPublicAccessBlock",
        &["publicAccessBlock"],
        "NoSuchPublicAccessBlockConfiguration",
        "The public access block configuration was not found",
    ),
    missing(
        "GetObjectLockConfiguration",
        &["object-lock"],
        "ObjectLockConfigurationNotFoundError",
        "Object Lock configuration does not exist for this bucket",
    ),
    missing(
        "GetBucketReplication",
        &["replication"],
        "ReplicationConfigurationNotFoundError",
        "The replication configuration was not found",
    ),
    missing(
        "GetBucketEncryption",
        &["encryption"],
        "ServerSideEncryptionConfigurationNotFoundError",
        "The server side encryption configuration was not found",
    ),
    missing(
        "GetBucketOwnershipControls",
        &["ownershipControls"],
        "OwnershipControlsNotFoundError",
        "The bucket ownership controls were not found",
    ),
    document("GetBucketLogging", &["logging"], "BucketLoggingStatus"),
    document("GetBucketNotificationConfiguration", &["notification"], "NotificationConfiguration"),
    document("GetBucketAccelerateConfiguration", &["accelerate"], "AccelerateConfiguration"),
    document("GetBucketRequestPayment", &["requestPayment"], "RequestPaymentConfiguration"),
    with(
        &[ACL, &["x-amz-bucket-object-lock-enabled", "x-amz-object-ownership"]],
        taking(Xml, op("CreateBucket", "PUT", Bucket, &[], &[])),
    ),
    with(&[ACL], taking(Xml, op("PutBucketAcl", "PUT", Bucket, &["acl"], &[]))),
    taking(Xml, op("PutBucketTagging", "PUT", Bucket, &["tagging"], &[])),
    op("DeleteBucket", "DELETE", Bucket, &[], &[]),
    op("DeleteBucketTagging", "DELETE", Bucket, &["tagging"], &[]),
    taking(Xml, op("DeleteObjects", "POST", Bucket, &["delete"], &[])),
    with(&[READ_HEADERS], op("HeadObject", "HEAD", Object, &[], READ)),
    with(&[READ_HEADERS], op("GetObject", "GET", Object, &[], READ)),
    op("GetObjectAcl", "GET", Object, &["acl"], VERSION),
    op("GetObjectTagging", "GET", Object, &["tagging"], VERSION),
    with(
        &[&["x-amz-max-parts", "x-amz-object-attributes", "x-amz-part-number-marker"]],
        op("GetObjectAttributes", "GET", Object, &["attributes"], VERSION),
    ),
    op("ListParts", "GET", Object, &["uploadId"], LIST_PARTS),
    with(
        &[NEW_OBJECT, CHANGE, ALGORITHM, KIND],
        taking(Bytes, op("PutObject", "PUT", Object, &[], &[])),
    ),
    with(
        &[NEW_OBJECT, CHANGE, ALGORITHM, SOURCE, DIRECTIVES],
        copying(op("CopyObject", "PUT", Object, &[], &[])),
    ),
    with(
        &[ALGORITHM],
        taking(Bytes, op("UploadPart", "PUT", Object, &["partNumber", "uploadId"], &[])),
    ),
    with(
        &[SOURCE, &["x-amz-copy-source-range"]],
        copying(op("UploadPartCopy", "PUT", Object, &["partNumber", "uploadId"], &[])),
    ),
    with(&[ACL], taking(Xml, op("PutObjectAcl", "PUT", Object, &["acl"], VERSION))),
    taking(Xml, op("PutObjectTagging", "PUT", Object, &["tagging"], VERSION)),
    with(
        &[NEW_OBJECT, CHANGE, ALGORITHM, KIND],
        op("CreateMultipartUpload", "POST", Object, &["uploads"], &[]),
    ),
    with(
        &[CHANGE, KIND, &["x-amz-mp-object-size"]],
        taking(Xml, op("CompleteMultipartUpload", "POST", Object, &["uploadId"], &[])),
    ),
    with(&[CHANGE, &["x-amz-if-match-size"]], op("DeleteObject", "DELETE", Object, &[], VERSION)),
    op("DeleteObjectTagging", "DELETE", Object, &["tagging"], VERSION),
    op("AbortMultipartUpload", "DELETE", Object, &["uploadId"], &[]),
];

impl Operation {
    /// All there are.
    pub(super) fn all() -> &'static [Operation] {
        &TABLE
    }

    /// Where one is among them, if there is one of that name.
    pub(super) fn named(name: &str) -> usize {
        TABLE.iter().position(|operation| operation.name == name).unwrap_or(TABLE.len())
    }

    /// Where it is among them.
    pub(super) fn index(&self) -> usize {
        TABLE.iter().position(|operation| std::ptr::eq(operation, self)).unwrap_or(TABLE.len())
    }

    /// The elements of its body, right below the root.
    pub(super) fn elements(&self) -> &'static [&'static str] {
        match self.name {
            "CreateBucket" => &["LocationConstraint", "Location", "Bucket", "Tags"],
            "PutBucketAcl" | "PutObjectAcl" => &["Owner", "AccessControlList"],
            "PutBucketTagging" | "PutObjectTagging" => &["TagSet"],
            "DeleteObjects" => &["Object", "Quiet"],
            "CompleteMultipartUpload" => &["Part"],
            _ => &[],
        }
    }

    /// Whether it honours a header.
    pub(super) fn honours(&self, name: &str) -> bool {
        let matches = |known: &&str| match known.strip_suffix('*') {
            Some(start) => name.strip_prefix(start).is_some_and(|rest| !rest.is_empty()),
            None => name == *known,
        };
        SIGNED.contains(&name)
            || (self.level != Level::Service && name == OWNER)
            || (self.input != Input::None && BODY.contains(&name))
            || self.headers.iter().any(|group| group.iter().any(&matches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix as `docs/s3.md` has it.
    fn matrix() -> String {
        let mut out =
            String::from("| operation | request | parameters | headers |\n|---|---|---|---|\n");
        for operation in &TABLE {
            let place = match operation.level {
                Level::Service => "/",
                Level::Bucket => "/bucket",
                Level::Object => "/bucket/key",
            };
            let query = match operation.wanted {
                [] => String::new(),
                wanted => format!("?{}", wanted.join("&")),
            };
            let mut headers: Vec<&str> = operation.headers.concat();
            if operation.input != Input::None {
                headers.push("those of a body");
            }
            out.push_str(&format!(
                "| {} | `{} {place}{query}` | {} | {} |\n",
                operation.name,
                operation.method,
                operation.allowed.join(" "),
                headers.join(" "),
            ));
        }
        out
    }

    #[test]
    fn the_matrix_in_the_docs_is_this_table() {
        let docs = include_str!("../../../../docs/s3.md");
        let matrix = matrix();
        assert!(docs.contains(&matrix), "docs/s3.md should have this matrix:\n{matrix}");
        for name in SIGNED.iter().chain(BODY).chain([&OWNER]) {
            assert!(docs.contains(&format!("`{name}`")), "docs/s3.md does not tell of {name}");
        }
    }

    #[test]
    fn stars_stand_for_names() {
        let put = &TABLE[Operation::named("PutObject")];
        assert!(put.honours("x-amz-meta-a") && put.honours("content-md5"));
        assert!(!put.honours("x-amz-meta-") && !put.honours("x-amz-copy-source"));
        let get = &TABLE[Operation::named("GetObject")];
        assert!(get.honours("range") && !get.honours("content-md5"));
    }
}

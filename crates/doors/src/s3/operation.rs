//! Which operation a request asks for: its method, what it names and its query parameters.
//!
//! A parameter names a sub-resource in S3 (`?retention`, `?lifecycle`). One that the table does not
//! have is never passed over: `PUT /bucket/key?retention` must not replace the object.

use http::Method;
use s3s::{S3ErrorCode, S3Result};

use super::address::Address;
use super::error::{invalid, not_implemented, refuse};
use super::query::Query;

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

/// One line of the table.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    method: &'static str,
    level: Level,
    /// Parameters that make it this operation.
    wanted: &'static [&'static str],
    /// Parameters it understands besides.
    allowed: &'static [&'static str],
    /// Whether `x-amz-copy-source` makes it this operation.
    copies: bool,
    pub(super) input: Input,
}

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
    Operation { name, method, level, wanted, allowed, copies: false, input: Input::None }
}

const fn taking(input: Input, operation: Operation) -> Operation {
    Operation { input, ..operation }
}

const fn copying(operation: Operation) -> Operation {
    Operation { copies: true, ..operation }
}

use Input::{Bytes, Xml};
use Level::{Bucket, Object, Service};

static TABLE: [Operation; 33] = [
    op("ListBuckets", "GET", Service, &[], LIST_BUCKETS),
    op("HeadBucket", "HEAD", Bucket, &[], &[]),
    op("GetBucketLocation", "GET", Bucket, &["location"], &[]),
    op("GetBucketVersioning", "GET", Bucket, &["versioning"], &[]),
    op("GetBucketAcl", "GET", Bucket, &["acl"], &[]),
    op("GetBucketTagging", "GET", Bucket, &["tagging"], &[]),
    op("GetBucketPolicyStatus", "GET", Bucket, &["policyStatus"], &[]),
    op("ListMultipartUploads", "GET", Bucket, &["uploads"], LIST_UPLOADS),
    op("ListObjectsV2", "GET", Bucket, &["list-type"], LIST_2),
    op("ListObjects", "GET", Bucket, &[], LIST),
    taking(Xml, op("CreateBucket", "PUT", Bucket, &[], &[])),
    taking(Xml, op("PutBucketAcl", "PUT", Bucket, &["acl"], &[])),
    taking(Xml, op("PutBucketTagging", "PUT", Bucket, &["tagging"], &[])),
    op("DeleteBucket", "DELETE", Bucket, &[], &[]),
    op("DeleteBucketTagging", "DELETE", Bucket, &["tagging"], &[]),
    taking(Xml, op("DeleteObjects", "POST", Bucket, &["delete"], &[])),
    op("HeadObject", "HEAD", Object, &[], READ),
    op("GetObject", "GET", Object, &[], READ),
    op("GetObjectAcl", "GET", Object, &["acl"], VERSION),
    op("GetObjectTagging", "GET", Object, &["tagging"], VERSION),
    op("GetObjectAttributes", "GET", Object, &["attributes"], VERSION),
    op("ListParts", "GET", Object, &["uploadId"], LIST_PARTS),
    taking(Bytes, op("PutObject", "PUT", Object, &[], &[])),
    copying(op("CopyObject", "PUT", Object, &[], &[])),
    taking(Bytes, op("UploadPart", "PUT", Object, &["partNumber", "uploadId"], &[])),
    copying(op("UploadPartCopy", "PUT", Object, &["partNumber", "uploadId"], &[])),
    taking(Xml, op("PutObjectAcl", "PUT", Object, &["acl"], VERSION)),
    taking(Xml, op("PutObjectTagging", "PUT", Object, &["tagging"], VERSION)),
    op("CreateMultipartUpload", "POST", Object, &["uploads"], &[]),
    taking(Xml, op("CompleteMultipartUpload", "POST", Object, &["uploadId"], &[])),
    op("DeleteObject", "DELETE", Object, &[], VERSION),
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
}

/// Finds the operation; takes parameters without meaning out of the query.
pub(super) fn resolve(
    method: &Method,
    address: &Address,
    query: &mut Query,
    copies: bool,
) -> S3Result<&'static Operation> {
    let level = match address {
        Address::Root => Service,
        Address::Bucket(_) => Bucket,
        Address::Object { .. } => Object,
    };
    let at_home = TABLE.iter().filter(|op| {
        op.method == method.as_str()
            && op.level == level
            && op.copies == (copies && takes_source(op))
    });
    let operation = at_home
        .filter(|op| op.wanted.iter().all(|name| query.has(name)))
        .max_by_key(|op| op.wanted.len());
    let Some(operation) = operation else { return Err(unknown_method(method)) };
    // What SDKs add to tell operations apart in logs.
    query.retain(|name| name != "x-id");
    let reads = matches!(*method, Method::GET | Method::HEAD);
    for (name, value) in query.pairs() {
        let known =
            operation.wanted.contains(&name.as_str()) || operation.allowed.contains(&name.as_str());
        // Something to get around a cache with: a sub-resource has no value.
        let idle = reads && !value.is_empty() && !SUB_RESOURCES.contains(&name.as_str());
        if !known && !idle {
            return Err(not_implemented(format!("{method} with the parameter {name}")));
        }
    }
    query.retain(|name| operation.wanted.contains(&name) || operation.allowed.contains(&name));
    if operation.name == "ListObjectsV2" && query.get("list-type") != Some("2") {
        return Err(invalid("list-type must be 2"));
    }
    Ok(operation)
}

fn takes_source(operation: &Operation) -> bool {
    operation.copies || matches!(operation.name, "PutObject" | "UploadPart")
}

fn unknown_method(method: &Method) -> s3s::S3Error {
    let known = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE];
    match known.contains(method) {
        true => not_implemented(format!("{method} here")),
        false => refuse(S3ErrorCode::MethodNotAllowed, format!("{method} is not allowed")),
    }
}

/// Parameters that mean something to S3 or to its extensions, whatever their value.
const SUB_RESOURCES: &[&str] = &[
    "abac",
    "accelerate",
    "accesspoint",
    "acl",
    "analytics",
    "annotation",
    "append",
    "attributes",
    "bucket-region",
    "cors",
    "continuation-token",
    "defaultObjectAcl",
    "delete",
    "delimiter",
    "encoding-type",
    "encryption",
    "events",
    "extract",
    "fetch-owner",
    "force-delete",
    "id",
    "intelligent-tiering",
    "inventory",
    "key-marker",
    "legal-hold",
    "lifecycle",
    "list-type",
    "location",
    "logging",
    "marker",
    "max-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "metadata",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "part-number-marker",
    "policy",
    "policyStatus",
    "position",
    "prefix",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "replication-metrics",
    "replication-reset",
    "requestPayment",
    "resourcePolicy",
    "restore",
    "retention",
    "select",
    "select-type",
    "session",
    "start-after",
    "stats",
    "storagePolicy",
    "tagging",
    "torrent",
    "upload-id-marker",
    "uploadId",
    "uploads",
    "version-id-marker",
    "versionId",
    "versioning",
    "versions",
    "versions-marker",
    "vhost",
    "website",
    "writeGetObjectResponse",
    OVERRIDES[0],
    OVERRIDES[1],
    OVERRIDES[2],
    OVERRIDES[3],
    OVERRIDES[4],
    OVERRIDES[5],
];

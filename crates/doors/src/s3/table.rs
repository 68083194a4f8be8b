//! Every operation of this door, one in each row: the requests that mean it, its action, the parts
//! of a request that it honours, and the function that answers it.
//!
//! All parts of a request are honoured by its operation or refused: there is no third way. The
//! matrix in `docs/s3.md` is this table; a test compares the two.

use cairn_auth::Action;

use super::operation::{Input, Level, Operation, Verb};
use super::verbs;

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
const SETTINGS: &[&str] = &["x-amz-bucket-object-lock-enabled", "x-amz-object-ownership"];
/// Nothing is under retention, so nothing has to be bypassed.
const BYPASS: &[&str] = &["x-amz-bypass-governance-retention"];
const ATTRIBUTES: &[&str] =
    &["x-amz-max-parts", "x-amz-object-attributes", "x-amz-part-number-marker"];

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
const PART: &[&str] = &["partNumber", "uploadId"];

/// Elements in bodies.
const CONFIGURATION: &[&str] = &["LocationConstraint", "Location", "Bucket", "Tags"];
const GRANTS: &[&str] = &["Owner", "AccessControlList"];
const TAGS: &[&str] = &["TagSet"];
const RULES: &[&str] = &["CORSRule"];
const PUBLIC_ACCESS: &[&str] =
    &["BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"];
const NOTIFICATION: &[&str] = &[
    "CloudFunctionConfiguration",
    "EventBridgeConfiguration",
    "QueueConfiguration",
    "TopicConfiguration",
];
const WEBSITE: &[&str] =
    &["ErrorDocument", "IndexDocument", "RedirectAllRequestsTo", "RoutingRules"];

/// Returns a row with the required fields only.
const fn row(
    name: &'static str,
    action: Action,
    method: &'static str,
    level: Level,
    verb: Verb,
) -> Operation {
    let (wanted, allowed, headers): (&[_], &[_], &[_]) = (&[], &[], &[]);
    let (copies, input) = (false, Input::None);
    Operation { name, action, method, level, wanted, allowed, headers, copies, input, verb }
}

impl Operation {
    const fn wanting(self, wanted: &'static [&'static str]) -> Operation {
        Operation { wanted, ..self }
    }

    const fn allowing(self, allowed: &'static [&'static str]) -> Operation {
        Operation { allowed, ..self }
    }

    const fn taking(self, input: Input) -> Operation {
        Operation { input, ..self }
    }

    const fn honouring(self, headers: &'static [&'static [&'static str]]) -> Operation {
        Operation { headers, ..self }
    }

    const fn copying(self) -> Operation {
        Operation { copies: true, ..self }
    }
}

/// A row for an operation: its name, the file of its verb, the action, the method and the level of
/// the resource.
macro_rules! op {
    ($name:ident, $file:ident, $action:ident, $method:ident, $level:ident) => {{
        let verb: Verb = |call| Box::pin(verbs::$file::run(call));
        row(stringify!($name), Action::$action, stringify!($method), Level::$level, verb)
    }};
}

/// A row for a missing feature: the parameter that asks for it, code and message of a 404.
macro_rules! missing {
    ($name:ident, $action:ident, $parameter:literal, $code:literal, $message:literal) => {{
        let verb: Verb = |call| Box::pin(verbs::absent::missing(call, $code, $message));
        let row = row(stringify!($name), Action::$action, "GET", Level::Bucket, verb);
        row.wanting(&[$parameter]).taking(Unread)
    }};
}

/// A row for a missing feature that is answered with a document: its root, and the contents.
macro_rules! document {
    ($name:ident, $action:ident, $parameter:literal, $root:literal, $inside:literal) => {{
        let verb: Verb = |call| Box::pin(verbs::absent::document(call, $root, $inside));
        let row = row(stringify!($name), Action::$action, "GET", Level::Bucket, verb);
        row.wanting(&[$parameter]).taking(Unread)
    }};
}

/// A row for a setting that is taken only if it is neutral: the function of its verb, the parameter
/// that asks for it, and the elements of its document.
macro_rules! neutral {
    ($name:ident, $function:ident, $action:ident, $parameter:literal, $elements:expr) => {{
        let verb: Verb = |call| Box::pin(verbs::neutral::$function(call));
        let row = row(stringify!($name), Action::$action, "PUT", Level::Bucket, verb);
        row.wanting(&[$parameter]).taking(Input::xml($elements))
    }};
}

/// A row for the deletion of a setting that no bucket has: the parameter that asks for it.
macro_rules! deleted {
    ($name:ident, $action:ident, $parameter:literal) => {{
        let verb: Verb = |call| Box::pin(verbs::absent::deleted(call));
        let row = row(stringify!($name), Action::$action, "DELETE", Level::Bucket, verb);
        row.wanting(&[$parameter])
    }};
}

/// A row for a lock of an object, where no object can have one: the method, the parameter that asks
/// for it, and the form of the body.
macro_rules! unlocked {
    ($name:ident, $action:ident, $method:ident, $parameter:literal, $input:expr) => {{
        let verb: Verb = |call| Box::pin(verbs::absent::unlocked(call));
        let row = row(stringify!($name), Action::$action, stringify!($method), Level::Object, verb);
        row.wanting(&[$parameter]).allowing(VERSION).taking($input)
    }};
}

use Input::{Bytes, Unread};

pub(super) static TABLE: &[Operation] = &[
    op!(ListBuckets, list_buckets, ListAllMyBuckets, GET, Service).allowing(LIST_BUCKETS),
    op!(HeadBucket, head_bucket, ListBucket, HEAD, Bucket),
    op!(GetBucketLocation, get_bucket_location, GetBucketLocation, GET, Bucket)
        .wanting(&["location"]),
    op!(GetBucketVersioning, get_bucket_versioning, GetBucketVersioning, GET, Bucket)
        .wanting(&["versioning"]),
    op!(GetBucketAcl, get_bucket_acl, GetBucketAcl, GET, Bucket).wanting(&["acl"]),
    op!(GetBucketTagging, get_bucket_tagging, GetBucketTagging, GET, Bucket).wanting(&["tagging"]),
    op!(GetBucketPolicyStatus, get_bucket_policy_status, GetBucketPolicyStatus, GET, Bucket)
        .wanting(&["policyStatus"]),
    op!(ListMultipartUploads, list_multipart_uploads, ListBucketMultipartUploads, GET, Bucket)
        .wanting(&["uploads"])
        .allowing(LIST_UPLOADS),
    op!(ListObjectVersions, list_object_versions, ListBucketVersions, GET, Bucket)
        .wanting(&["versions"])
        .allowing(LIST_VERSIONS),
    op!(ListObjectsV2, list_objects_v2, ListBucket, GET, Bucket)
        .wanting(&["list-type"])
        .allowing(LIST_2),
    op!(ListObjects, list_objects, ListBucket, GET, Bucket).allowing(LIST),
    op!(GetBucketCors, get_bucket_cors, GetBucketCors, GET, Bucket).wanting(&["cors"]),
    op!(GetBucketWebsite, get_bucket_website, GetBucketWebsite, GET, Bucket).wanting(&["website"]),
    missing!(
        GetBucketPolicy,
        GetBucketPolicy,
        "policy",
        "NoSuchBucketPolicy",
        "The bucket policy does not exist"
    ),
    // Clients of MinIO also ask for the time of the setting.
    missing!(
        GetBucketLifecycleConfiguration,
        GetLifecycleConfiguration,
        "lifecycle",
        "NoSuchLifecycleConfiguration",
        "The lifecycle configuration does not exist"
    )
    .allowing(&["withUpdatedAt"]),
    op!(GetPublicAccessBlock, get_public_access_block, GetBucketPublicAccessBlock, GET, Bucket)
        .wanting(&["publicAccessBlock"])
        .taking(Unread),
    missing!(
        GetObjectLockConfiguration,
        GetBucketObjectLockConfiguration,
        "object-lock",
        "ObjectLockConfigurationNotFoundError",
        "Object Lock configuration does not exist for this bucket"
    ),
    missing!(
        GetBucketReplication,
        GetReplicationConfiguration,
        "replication",
        "ReplicationConfigurationNotFoundError",
        "The replication configuration was not found"
    ),
    missing!(
        GetBucketEncryption,
        GetEncryptionConfiguration,
        "encryption",
        "ServerSideEncryptionConfigurationNotFoundError",
        "The server side encryption configuration was not found"
    ),
    op!(
        GetBucketOwnershipControls,
        get_bucket_ownership_controls,
        GetBucketOwnershipControls,
        GET,
        Bucket
    )
    .wanting(&["ownershipControls"])
    .taking(Unread),
    document!(GetBucketLogging, GetBucketLogging, "logging", "BucketLoggingStatus", ""),
    document!(
        GetBucketNotificationConfiguration,
        GetBucketNotification,
        "notification",
        "NotificationConfiguration",
        ""
    ),
    op!(
        GetBucketAccelerateConfiguration,
        get_bucket_accelerate_configuration,
        GetAccelerateConfiguration,
        GET,
        Bucket
    )
    .wanting(&["accelerate"])
    .taking(Unread),
    document!(
        GetBucketRequestPayment,
        GetBucketRequestPayment,
        "requestPayment",
        "RequestPaymentConfiguration",
        "<Payer>BucketOwner</Payer>"
    ),
    op!(CreateBucket, create_bucket, CreateBucket, PUT, Bucket)
        .taking(Input::xml(CONFIGURATION))
        .honouring(&[ACL, SETTINGS]),
    op!(PutBucketAcl, put_bucket_acl, PutBucketAcl, PUT, Bucket)
        .wanting(&["acl"])
        .taking(Input::xml(GRANTS))
        .honouring(&[ACL]),
    op!(PutBucketTagging, put_bucket_tagging, PutBucketTagging, PUT, Bucket)
        .wanting(&["tagging"])
        .taking(Input::xml(TAGS)),
    op!(PutBucketCors, put_bucket_cors, PutBucketCors, PUT, Bucket)
        .wanting(&["cors"])
        .taking(Input::xml(RULES)),
    op!(PutBucketWebsite, put_bucket_website, PutBucketWebsite, PUT, Bucket)
        .wanting(&["website"])
        .taking(Input::xml(WEBSITE)),
    op!(PutPublicAccessBlock, put_public_access_block, PutBucketPublicAccessBlock, PUT, Bucket)
        .wanting(&["publicAccessBlock"])
        .taking(Input::xml(PUBLIC_ACCESS)),
    op!(
        PutBucketOwnershipControls,
        put_bucket_ownership_controls,
        PutBucketOwnershipControls,
        PUT,
        Bucket
    )
    .wanting(&["ownershipControls"])
    .taking(Input::xml(&["Rule"])),
    neutral!(
        PutBucketVersioning,
        versioning,
        PutBucketVersioning,
        "versioning",
        &["MfaDelete", "Status"]
    ),
    neutral!(PutBucketLogging, logging, PutBucketLogging, "logging", &["LoggingEnabled"]),
    neutral!(
        PutBucketNotificationConfiguration,
        notification,
        PutBucketNotification,
        "notification",
        NOTIFICATION
    ),
    neutral!(
        PutBucketAccelerateConfiguration,
        accelerate,
        PutAccelerateConfiguration,
        "accelerate",
        &["Status"]
    ),
    neutral!(
        PutBucketRequestPayment,
        request_payment,
        PutBucketRequestPayment,
        "requestPayment",
        &["Payer"]
    ),
    op!(DeleteBucket, delete_bucket, DeleteBucket, DELETE, Bucket),
    op!(DeleteBucketTagging, delete_bucket_tagging, PutBucketTagging, DELETE, Bucket)
        .wanting(&["tagging"]),
    op!(DeleteBucketCors, delete_bucket_cors, PutBucketCors, DELETE, Bucket).wanting(&["cors"]),
    op!(DeleteBucketWebsite, delete_bucket_website, PutBucketWebsite, DELETE, Bucket)
        .wanting(&["website"]),
    op!(
        DeletePublicAccessBlock,
        delete_public_access_block,
        PutBucketPublicAccessBlock,
        DELETE,
        Bucket
    )
    .wanting(&["publicAccessBlock"]),
    op!(
        DeleteBucketOwnershipControls,
        delete_bucket_ownership_controls,
        PutBucketOwnershipControls,
        DELETE,
        Bucket
    )
    .wanting(&["ownershipControls"]),
    deleted!(DeleteBucketPolicy, DeleteBucketPolicy, "policy"),
    deleted!(DeleteBucketLifecycle, PutLifecycleConfiguration, "lifecycle"),
    deleted!(DeleteBucketEncryption, PutEncryptionConfiguration, "encryption"),
    deleted!(DeleteBucketReplication, PutReplicationConfiguration, "replication"),
    op!(DeleteObjects, delete_objects, DeleteObject, POST, Bucket)
        .wanting(&["delete"])
        .taking(Input::xml(&["Object", "Quiet"]))
        .honouring(&[BYPASS]),
    op!(HeadObject, head_object, GetObject, HEAD, Object)
        .allowing(READ)
        .taking(Unread)
        .honouring(&[READ_HEADERS]),
    op!(GetObject, get_object, GetObject, GET, Object)
        .allowing(READ)
        .taking(Unread)
        .honouring(&[READ_HEADERS]),
    op!(GetObjectAcl, get_object_acl, GetObjectAcl, GET, Object)
        .wanting(&["acl"])
        .allowing(VERSION),
    op!(GetObjectTagging, get_object_tagging, GetObjectTagging, GET, Object)
        .wanting(&["tagging"])
        .allowing(VERSION),
    op!(GetObjectAttributes, get_object_attributes, GetObjectAttributes, GET, Object)
        .wanting(&["attributes"])
        .allowing(VERSION)
        .honouring(&[ATTRIBUTES]),
    unlocked!(GetObjectRetention, GetObjectRetention, GET, "retention", Unread),
    unlocked!(GetObjectLegalHold, GetObjectLegalHold, GET, "legal-hold", Unread),
    op!(ListParts, list_parts, ListMultipartUploadParts, GET, Object)
        .wanting(&["uploadId"])
        .allowing(LIST_PARTS),
    op!(PutObject, put_object, PutObject, PUT, Object)
        .taking(Bytes)
        .honouring(&[NEW_OBJECT, CHANGE, ALGORITHM, KIND]),
    op!(CopyObject, copy_object, PutObject, PUT, Object)
        .copying()
        .honouring(&[NEW_OBJECT, CHANGE, ALGORITHM, SOURCE, DIRECTIVES]),
    op!(UploadPart, upload_part, PutObject, PUT, Object)
        .wanting(PART)
        .taking(Bytes)
        .honouring(&[ALGORITHM]),
    op!(UploadPartCopy, upload_part_copy, PutObject, PUT, Object)
        .wanting(PART)
        .copying()
        .honouring(&[SOURCE, &["x-amz-copy-source-range"]]),
    op!(PutObjectAcl, put_object_acl, PutObjectAcl, PUT, Object)
        .wanting(&["acl"])
        .allowing(VERSION)
        .taking(Input::xml(GRANTS))
        .honouring(&[ACL]),
    op!(PutObjectTagging, put_object_tagging, PutObjectTagging, PUT, Object)
        .wanting(&["tagging"])
        .allowing(VERSION)
        .taking(Input::xml(TAGS)),
    unlocked!(
        PutObjectRetention,
        PutObjectRetention,
        PUT,
        "retention",
        Input::xml(&["Mode", "RetainUntilDate"])
    )
    .honouring(&[BYPASS]),
    unlocked!(PutObjectLegalHold, PutObjectLegalHold, PUT, "legal-hold", Input::xml(&["Status"])),
    op!(CreateMultipartUpload, create_multipart_upload, PutObject, POST, Object)
        .wanting(&["uploads"])
        .honouring(&[NEW_OBJECT, CHANGE, ALGORITHM, KIND]),
    op!(CompleteMultipartUpload, complete_multipart_upload, PutObject, POST, Object)
        .wanting(&["uploadId"])
        .taking(Input::Xml { elements: &["Part"], is_of_object: true })
        .honouring(&[CHANGE, KIND, &["x-amz-mp-object-size"]]),
    op!(DeleteObject, delete_object, DeleteObject, DELETE, Object).allowing(VERSION).honouring(&[
        CHANGE,
        &["x-amz-if-match-size"],
        BYPASS,
    ]),
    op!(DeleteObjectTagging, delete_object_tagging, DeleteObjectTagging, DELETE, Object)
        .wanting(&["tagging"])
        .allowing(VERSION),
    op!(AbortMultipartUpload, abort_multipart_upload, AbortMultipartUpload, DELETE, Object)
        .wanting(&["uploadId"]),
];

/// Returns the index of the operation with a name, or the length of the table.
pub(super) fn place_of(name: &str) -> usize {
    TABLE.iter().position(|operation| operation.name == name).unwrap_or(TABLE.len())
}

#[cfg(test)]
mod tests {
    use super::super::operation::{BODY, OWNER, SIGNED};
    use super::*;

    /// Returns the matrix in the form of `docs/s3.md`.
    fn matrix() -> String {
        let mut out = String::from(
            "| operation | action | request | parameters | headers |\n|---|---|---|---|---|\n",
        );
        for operation in TABLE {
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
            if operation.input.is_body() {
                headers.push("those of a body");
            }
            out.push_str(&format!(
                "| {} | {} | `{} {place}{query}` | {} | {} |\n",
                operation.name,
                operation.action,
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

    /// `ListObjectsV2` is `list_objects_v2`.
    fn file_of(name: &str) -> String {
        let mut file = String::new();
        for char in name.chars() {
            if char.is_ascii_uppercase() && !file.is_empty() {
                file.push('_');
            }
            file.push(char.to_ascii_lowercase());
        }
        file
    }

    #[test]
    fn files_of_verbs_have_their_names() {
        let rows: String = include_str!("table.rs").split_whitespace().collect();
        for operation in TABLE {
            let Operation { name, action, .. } = operation;
            let here = format!("op!({name},{},{action:?}", file_of(name));
            let shared = ["missing", "document", "deleted", "unlocked"];
            let shared = shared.map(|how| format!("{how}!({name},{action:?}"));
            let is_neutral = rows.contains(&format!("neutral!({name},"));
            let is_shared = is_neutral || shared.iter().any(|row| rows.contains(row));
            assert!(is_shared || rows.contains(&here), "{name}");
        }
    }

    #[test]
    fn stars_stand_for_names() {
        let put = &TABLE[place_of("PutObject")];
        assert!(put.honours("x-amz-meta-a") && put.honours("content-md5"));
        assert!(!put.honours("x-amz-meta-") && !put.honours("x-amz-copy-source"));
        let get = &TABLE[place_of("GetObject")];
        assert!(get.honours("range") && !get.honours("content-md5"));
    }
}

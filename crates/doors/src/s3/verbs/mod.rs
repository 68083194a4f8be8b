//! The verbs, one in each file, which is named after the operation of S3. Functions that several of
//! them share are in `acl`, `listing` and `receive`.

mod acl;
mod listing;
mod receive;

pub(super) mod abort_multipart_upload;
pub(super) mod absent;
pub(super) mod complete_multipart_upload;
pub(super) mod copy_object;
pub(super) mod create_bucket;
pub(super) mod create_multipart_upload;
pub(super) mod delete_bucket;
pub(super) mod delete_bucket_cors;
pub(super) mod delete_bucket_ownership_controls;
pub(super) mod delete_bucket_tagging;
pub(super) mod delete_bucket_website;
pub(super) mod delete_object;
pub(super) mod delete_object_tagging;
pub(super) mod delete_objects;
pub(super) mod delete_public_access_block;
pub(super) mod get_bucket_accelerate_configuration;
pub(super) mod get_bucket_acl;
pub(super) mod get_bucket_cors;
pub(super) mod get_bucket_location;
pub(super) mod get_bucket_ownership_controls;
pub(super) mod get_bucket_policy_status;
pub(super) mod get_bucket_tagging;
pub(super) mod get_bucket_versioning;
pub(super) mod get_bucket_website;
pub(super) mod get_object;
pub(super) mod get_object_acl;
pub(super) mod get_object_attributes;
pub(super) mod get_object_tagging;
pub(super) mod get_public_access_block;
pub(super) mod head_bucket;
pub(super) mod head_object;
pub(super) mod list_buckets;
pub(super) mod list_multipart_uploads;
pub(super) mod list_object_versions;
pub(super) mod list_objects;
pub(super) mod list_objects_v2;
pub(super) mod list_parts;
pub(super) mod neutral;
pub(super) mod put_bucket_acl;
pub(super) mod put_bucket_cors;
pub(super) mod put_bucket_ownership_controls;
pub(super) mod put_bucket_tagging;
pub(super) mod put_bucket_website;
pub(super) mod put_object;
pub(super) mod put_object_acl;
pub(super) mod put_object_tagging;
pub(super) mod put_public_access_block;
pub(super) mod upload_part;
pub(super) mod upload_part_copy;

use cairn_base::{Timestamp, limits};
use s3s::{S3ErrorCode, S3Result};

use super::error::{invalid, refuse};
use super::query::Query;

/// Returns a time in the form of S3: in whole seconds, as in HTTP headers.
fn time(time: Timestamp) -> s3s::dto::Timestamp {
    Timestamp::from_secs(time.secs()).to_system_time().into()
}

/// Returns the number of entries for a page of a listing: the requested number, and no more than a
/// page may have.
fn page_size(asked: Option<i32>, name: &str) -> S3Result<usize> {
    match asked {
        None => Ok(limits::LIST_KEYS),
        Some(asked) => match usize::try_from(asked) {
            Ok(asked) => Ok(asked.min(limits::LIST_KEYS)),
            Err(_) => Err(invalid(format!("{name} must not be negative"))),
        },
    }
}

/// Checks the version: only `null` exists.
fn check_version(query: &Query) -> S3Result<()> {
    check_version_id(query.get("versionId"))
}

fn check_version_id(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(refuse(S3ErrorCode::NoSuchVersion, "this bucket has no versions")),
    }
}

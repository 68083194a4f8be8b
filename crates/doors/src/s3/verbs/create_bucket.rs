use cairn_auth::Visibility;
use cairn_base::{Error, limits};
use cairn_fs::ops::buckets::{CreateBucket, CreateTaggedBucket, GetBucket};
use cairn_fs::rows::BucketKind;
use http::header::LOCATION;
use http::{HeaderMap, Response, StatusCode};
use s3s::dto::{CreateBucketConfiguration, TagSet};
use s3s::path::check_bucket_name;
use s3s::xml::{DeError, Deserializer};
use s3s::{Body, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, not_implemented, refuse, refuse_with, translate};
use super::super::headers::text;
use super::super::store::DEFAULT_REGION;
use super::super::tags::{self, Tags};
use super::super::{features, reply, xml};
use super::acl;

/// Makes a bucket. If it already exists as requested, that is a success: the answer to the first
/// request may have been lost.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let name = call.bucket();
    // The store accepts names that S3 reserves.
    if !check_bucket_name(name) {
        return Err(S3ErrorCode::InvalidBucketName.into());
    }
    let configuration: Option<CreateBucketConfiguration> = xml::parse_some(&call.xml)?;
    let configuration = configuration.unwrap_or_default();
    if configuration.bucket.is_some() || configuration.location.is_some() {
        return Err(not_implemented("directory buckets are not implemented"));
    }
    if let Some(location) = &configuration.location_constraint {
        check_location(&call.store.region, location.as_str())?;
    }
    let tags = tags::of_set(tags_in(&call.xml)?, limits::BUCKET_TAGS)?;
    let acl = acl::canned(call.store, call.headers())?;
    check_settings(call.headers(), acl)?;
    let visibility = acl.unwrap_or(Visibility::Private);
    let create = CreateBucket { name: name.to_owned(), kind: BucketKind::S3, visibility };
    let fs = &call.store.fs;
    let made = match (fs.check_new_bucket(call.caller, name), tags.is_empty()) {
        (Err(error), _) => Err(error),
        (Ok(()), true) => fs.run(call.caller, create).await,
        (Ok(()), false) => {
            let verb = CreateTaggedBucket { create, tags: tags.clone() };
            fs.run(call.caller, verb).await
        }
    };
    match made {
        Ok(_) => {}
        Err(Error::Exists(_)) => {
            let location = configuration.location_constraint.as_ref();
            let is_first = location.is_none_or(|name| name.as_str() == DEFAULT_REGION);
            exists(&call, visibility, tags, is_first).await?
        }
        Err(error) => {
            let invalid = S3ErrorCode::InvalidBucketName;
            return Err(translate(error, Codes { invalid, ..Codes::bucket() }));
        }
    }
    let mut response = reply::empty(StatusCode::OK);
    reply::insert(response.headers_mut(), LOCATION, &format!("/{name}"));
    Ok(response)
}

/// Returns the tags of a configuration, which the library ignores.
fn tags_in(body: &[u8]) -> S3Result<TagSet> {
    if body.trim_ascii().is_empty() {
        return Ok(TagSet::new());
    }
    let mut xml = Deserializer::new(body);
    let read = xml.named_element("CreateBucketConfiguration", |xml| {
        let mut tags = TagSet::new();
        xml.for_each_element(|xml, name| match name {
            b"Tags" if !tags.is_empty() => Err(DeError::DuplicateField),
            b"Tags" => {
                tags = xml.list_content("Tag")?;
                Ok(())
            }
            b"LocationConstraint" => xml.text(|_| Ok(())),
            _ => Err(DeError::UnexpectedTagName),
        })?;
        Ok(tags)
    });
    let bad =
        |_| refuse(S3ErrorCode::MalformedXML, "the CreateBucketConfiguration cannot be parsed");
    read.map_err(bad)
}

/// Checks the location. A server with a region takes only that region; others take any name of a
/// region.
fn check_location(region: &str, location: &str) -> S3Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let fits = match region {
        "" => !location.is_empty() && location.len() <= 64 && location.bytes().all(plain),
        region => location == region,
    };
    if fits {
        Ok(())
    } else {
        Err(refuse_with(
            "InvalidLocationConstraint",
            StatusCode::BAD_REQUEST,
            "The specified location-constraint is not valid",
        ))
    }
}

/// Checks settings for which only the default value of buckets is accepted.
fn check_settings(headers: &HeaderMap, acl: Option<Visibility>) -> S3Result<()> {
    match text(headers, "x-amz-bucket-object-lock-enabled")? {
        None | Some("false") => {}
        Some(_) => return Err(features::is_off("object-lock")),
    }
    match text(headers, "x-amz-object-ownership")? {
        None => Ok(()),
        Some("BucketOwnerEnforced") if acl == Some(Visibility::Public) => Err(refuse_with(
            "InvalidBucketAclWithObjectOwnership",
            StatusCode::BAD_REQUEST,
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        )),
        Some("BucketOwnerEnforced") => Ok(()),
        Some(_) => Err(features::is_off("ownershipControls")),
    }
}

/// Answers for a bucket that exists. Only in the first region, or without a region, S3 makes one's
/// own bucket again.
async fn exists(
    call: &Call<'_>,
    visibility: Visibility,
    mut tags: Tags,
    is_first_region: bool,
) -> S3Result<()> {
    let named = GetBucket { name: call.bucket().to_owned() };
    let Ok((opened, _)) = call.store.fs.read(call.caller, named).await else {
        return Err(refuse(S3ErrorCode::BucketAlreadyExists, ""));
    };
    let bucket = opened.bucket;
    if bucket.owner != call.caller.user() {
        return Err(refuse(S3ErrorCode::BucketAlreadyExists, ""));
    }
    if !is_first_region {
        let what = "a bucket in a region other than us-east-1 is made once";
        return Err(refuse(S3ErrorCode::BucketAlreadyOwnedByYou, what));
    }
    let chosen = bucket.chosen_visibility();
    let mut has = bucket.tags;
    has.sort_unstable();
    tags.sort_unstable();
    if (bucket.kind, chosen, has) == (BucketKind::S3, visibility, tags) {
        Ok(())
    } else {
        let what = "it has another visibility, other tags, or was made by another door";
        Err(refuse(S3ErrorCode::BucketAlreadyOwnedByYou, what))
    }
}

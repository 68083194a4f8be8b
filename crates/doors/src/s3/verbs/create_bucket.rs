use cairn_auth::Visibility;
use cairn_base::{Error, limits};
use cairn_fs::ops::buckets::{CreateBucket, CreateTaggedBucket, GetBucket};
use cairn_fs::rows::BucketKind;
use http::{HeaderMap, StatusCode};
use s3s::dto::{CreateBucketInput, CreateBucketOutput, TagSet};
use s3s::xml::{DeError, Deserializer};
use s3s::{S3ErrorCode, S3Result};

use super::super::error::{Codes, not_implemented, refuse, refuse_with, translate};
use super::super::headers::text;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::tags::{self, Tags};
use super::acl;

/// A bucket that is there already as it is asked for is a success: the answer to the first request
/// may have been lost.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: CreateBucketInput,
) -> S3Result<CreateBucketOutput> {
    let configuration = input.create_bucket_configuration.unwrap_or_default();
    if configuration.bucket.is_some() || configuration.location.is_some() {
        return Err(not_implemented("directory buckets are not implemented"));
    }
    if let Some(location) = &configuration.location_constraint {
        check_location(&store.region, location.as_str())?;
    }
    let tags = tags::of_set(tags_in(&asked.body)?, limits::BUCKET_TAGS)?;
    let acl = acl::canned(&asked.headers)?;
    check_settings(&asked.headers, acl)?;
    let visibility = acl.unwrap_or(Visibility::Private);
    let name = input.bucket;
    let create = CreateBucket { name: name.clone(), kind: BucketKind::S3, visibility };
    let made = match tags.is_empty() {
        true => store.fs.run(&asked.caller, create).await,
        false => {
            let verb = CreateTaggedBucket { create, tags: tags.clone() };
            store.fs.run(&asked.caller, verb).await
        }
    };
    let location = Some(format!("/{name}"));
    match made {
        Ok(_) => Ok(CreateBucketOutput { location }),
        Err(Error::Exists(_)) => {
            exists(store, &asked, name, visibility, tags).await?;
            Ok(CreateBucketOutput { location })
        }
        Err(error) => {
            let invalid = S3ErrorCode::InvalidBucketName;
            Err(translate(error, Codes { invalid, ..Codes::bucket() }))
        }
    }
}

/// The tags of a configuration, which the library passes over.
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
    let bad = |_| refuse(S3ErrorCode::MalformedXML, "the configuration of the bucket");
    read.map_err(bad)
}

/// A server of one region has buckets in that one; others take any name of a region for theirs.
fn check_location(region: &str, location: &str) -> S3Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let fits = match region {
        "" => !location.is_empty() && location.len() <= 64 && location.bytes().all(plain),
        region => location == region,
    };
    match fits {
        true => Ok(()),
        false => Err(refuse_with(
            "InvalidLocationConstraint",
            StatusCode::BAD_REQUEST,
            "The specified location-constraint is not valid",
        )),
    }
}

/// Settings of which one value is what buckets have anyway.
fn check_settings(headers: &HeaderMap, acl: Option<Visibility>) -> S3Result<()> {
    match text(headers, "x-amz-bucket-object-lock-enabled")? {
        None | Some("false") => {}
        Some(_) => return Err(not_implemented("x-amz-bucket-object-lock-enabled")),
    }
    match text(headers, "x-amz-object-ownership")? {
        None => Ok(()),
        Some("BucketOwnerEnforced") if acl == Some(Visibility::Public) => Err(refuse_with(
            "InvalidBucketAclWithObjectOwnership",
            StatusCode::BAD_REQUEST,
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        )),
        Some("BucketOwnerEnforced") => Ok(()),
        Some(_) => Err(not_implemented("x-amz-object-ownership: use BucketOwnerEnforced")),
    }
}

async fn exists(
    store: &Store,
    asked: &Asked,
    name: String,
    visibility: Visibility,
    mut tags: Tags,
) -> S3Result<()> {
    let Ok((opened, _)) = store.fs.read(&asked.caller, GetBucket { name }).await else {
        return Err(refuse(S3ErrorCode::BucketAlreadyExists, ""));
    };
    let bucket = opened.bucket;
    if bucket.owner != asked.caller.user() {
        return Err(refuse(S3ErrorCode::BucketAlreadyExists, ""));
    }
    let mut has = bucket.tags;
    has.sort_unstable();
    tags.sort_unstable();
    match (bucket.kind, bucket.visibility, has) == (BucketKind::S3, visibility, tags) {
        true => Ok(()),
        false => {
            let what = "it has another visibility, other tags, or was made by another door";
            Err(refuse(S3ErrorCode::BucketAlreadyOwnedByYou, what))
        }
    }
}

//! Access control lists: what there is of them is the visibility of a bucket.

use cairn_auth::{Caller, Visibility};
use cairn_base::UserId;
use cairn_fs::ops::buckets::{GetBucket, UpdateBucket};
use cairn_fs::ops::put_object::MayWrite;
use cairn_fs::rows::Bucket;
use http::HeaderMap;
use s3s::S3Result;
use s3s::dto::{
    AccessControlPolicy, GetBucketAclInput, GetBucketAclOutput, GetObjectAclInput,
    GetObjectAclOutput, Grant, Grantee, Owner, Permission, PutBucketAclInput, PutBucketAclOutput,
    PutObjectAclInput, PutObjectAclOutput, Type,
};

use super::super::error::{Codes, bad_request, not_implemented};
use super::super::headers::text;
use super::super::library::Asked;
use super::super::owner;
use super::super::store::Store;
use super::{check_version, get_bucket};

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";

/// The visibility that a canned ACL of a bucket asks for.
pub(super) fn canned(headers: &HeaderMap) -> S3Result<Option<Visibility>> {
    match text(headers, "x-amz-acl")? {
        None => Ok(None),
        Some("private") => Ok(Some(Visibility::Private)),
        Some("public-read") => Ok(Some(Visibility::Public)),
        Some(other) => Err(not_implemented(format!("ACL {other:?}: use private or public-read"))),
    }
}

/// The canned ACL of an object: it must say what holds for all objects of its bucket, and is
/// refused where that cannot be kept.
pub(super) async fn check_object(store: &Store, asked: &Asked, bucket: &str) -> S3Result<()> {
    let wanted = match text(&asked.headers, "x-amz-acl")? {
        None => return Ok(()),
        Some("private" | "bucket-owner-full-control") => Visibility::Private,
        Some("public-read") => Visibility::Public,
        Some(_) => return Err(not_implemented("an ACL of an object other than its bucket's")),
    };
    // Only a caller who may write learns how visible the bucket is.
    let verb = MayWrite { bucket: bucket.to_owned() };
    store.read(&asked.caller, bucket, Codes::bucket(), verb).await?;
    let verb = GetBucket { name: bucket.to_owned() };
    let (opened, _) = store.read(&Caller::system(), bucket, Codes::bucket(), verb).await?;
    match (wanted, opened.bucket.visibility) {
        (wanted, visibility) if wanted == visibility => Ok(()),
        (Visibility::Private, _) => Err(not_implemented(
            "a private object in a public bucket: anybody may read all that is in it. Put it in \
             a private bucket",
        )),
        _ => Err(not_implemented("a public object in a private bucket: set the ACL of the bucket")),
    }
}

/// Takes a canned ACL, or a list that says no more than one of the two.
pub(crate) async fn put_bucket(
    store: &Store,
    asked: Asked,
    input: PutBucketAclInput,
) -> S3Result<PutBucketAclOutput> {
    let visibility = match (canned(&asked.headers)?, input.access_control_policy) {
        (Some(visibility), None) => visibility,
        (None, Some(policy)) => {
            let bucket = get_bucket::open(store, &asked, &input.bucket).await?;
            listed(policy, bucket.owner)?
        }
        _ => return Err(bad_request("give either a canned ACL or a list of grants")),
    };
    let name = input.bucket;
    let verb = UpdateBucket {
        name: name.clone(),
        visibility: Some(visibility),
        ..UpdateBucket::default()
    };
    store.run(&asked.caller, &name, Codes::bucket(), verb).await?;
    Ok(PutBucketAclOutput::default())
}

/// The visibility that a list of grants comes to: the owner everything, everybody may read or not.
fn listed(policy: AccessControlPolicy, owner: UserId) -> S3Result<Visibility> {
    let (mut owner_has_all, mut visibility) = (false, Visibility::Private);
    for grant in policy.grants.unwrap_or_default() {
        let permission = grant.permission.as_ref().map(|permission| permission.as_str());
        let Grantee { id, uri, email_address, .. } = match grant.grantee {
            Some(grantee) => grantee,
            None => return Err(beyond_canned()),
        };
        match (id.as_deref(), uri.as_deref(), email_address, permission) {
            (Some(id), None, None, Some(Permission::FULL_CONTROL)) if owner::is_id(id, owner) => {
                owner_has_all = true;
            }
            (None, Some(ALL_USERS), None, Some(Permission::READ)) => {
                visibility = Visibility::Public;
            }
            _ => return Err(beyond_canned()),
        }
    }
    if owner_has_all { Ok(visibility) } else { Err(beyond_canned()) }
}

fn beyond_canned() -> s3s::S3Error {
    not_implemented("ACLs beyond what the canned private and public-read say")
}

pub(crate) async fn get_bucket(
    store: &Store,
    asked: Asked,
    input: GetBucketAclInput,
) -> S3Result<GetBucketAclOutput> {
    let bucket = get_bucket::open(store, &asked, &input.bucket).await?;
    let (owner, grants) = access(store, &bucket).await?;
    Ok(GetBucketAclOutput { grants: Some(grants), owner: Some(owner) })
}

/// An object is as visible as its bucket.
pub(crate) async fn get_object(
    store: &Store,
    asked: Asked,
    input: GetObjectAclInput,
) -> S3Result<GetObjectAclOutput> {
    check_version(input.version_id.as_deref())?;
    let bucket = get_bucket::open(store, &asked, &input.bucket).await?;
    let opened = store.fs.open(&asked.caller, &input.bucket, &input.key).await;
    if let Err(error) = opened {
        let bucket = input.bucket.as_str();
        return Err(store.refused(&asked.caller, &[bucket], error, Codes::object()).await);
    }
    let (owner, grants) = access(store, &bucket).await?;
    Ok(GetObjectAclOutput { grants: Some(grants), owner: Some(owner), request_charged: None })
}

/// Accepts what is so anyway.
pub(crate) async fn put_object(
    store: &Store,
    asked: Asked,
    input: PutObjectAclInput,
) -> S3Result<PutObjectAclOutput> {
    check_version(input.version_id.as_deref())?;
    if input.access_control_policy.is_some() || !asked.headers.contains_key("x-amz-acl") {
        return Err(not_implemented("ACLs of objects other than the canned private"));
    }
    check_object(store, &asked, &input.bucket).await?;
    let opened = store.fs.open(&asked.caller, &input.bucket, &input.key).await;
    match opened {
        Ok(_) => Ok(PutObjectAclOutput::default()),
        Err(error) => {
            let bucket = input.bucket.as_str();
            Err(store.refused(&asked.caller, &[bucket], error, Codes::object()).await)
        }
    }
}

async fn access(store: &Store, bucket: &Bucket) -> S3Result<(Owner, Vec<Grant>)> {
    let owner = owner::owner(&store.fs, bucket.owner).await?;
    let mut grants = vec![Grant {
        grantee: Some(Grantee {
            display_name: owner.display_name.clone(),
            email_address: None,
            id: owner.id.clone(),
            type_: Type::from_static(Type::CANONICAL_USER),
            uri: None,
        }),
        permission: Some(Permission::from_static(Permission::FULL_CONTROL)),
    }];
    if bucket.visibility == Visibility::Public {
        grants.push(Grant {
            grantee: Some(Grantee {
                display_name: None,
                email_address: None,
                id: None,
                type_: Type::from_static(Type::GROUP),
                uri: Some(ALL_USERS.to_owned()),
            }),
            permission: Some(Permission::from_static(Permission::READ)),
        });
    }
    Ok((owner, grants))
}

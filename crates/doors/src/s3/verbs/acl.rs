//! Access control lists: they express only the visibility of a bucket.

use cairn_auth::{Caller, Visibility};
use cairn_fs::rows::Bucket;
use http::HeaderMap;
use s3s::dto::{Grant, Grantee, Owner, Permission, Type};
use s3s::{S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::{not_implemented, refuse};
use super::super::headers::text;
use super::super::owner;
use super::super::store::PublicAcl;
use super::super::store::Store;

pub(super) const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";

/// Returns the visibility that a canned ACL of a bucket asks for.
pub(super) fn canned(store: &Store, headers: &HeaderMap) -> S3Result<Option<Visibility>> {
    match text(headers, "x-amz-acl")? {
        None => Ok(None),
        Some("private") => Ok(Some(Visibility::Private)),
        Some("public-read") => public(store).map(Some),
        Some(other) => Err(not_implemented(format!("ACL {other:?}: use private or public-read"))),
    }
}

/// Returns the visibility of a bucket that anybody may list, if an ACL may ask for it.
pub(super) fn public(store: &Store) -> S3Result<Visibility> {
    match store.public_acl {
        PublicAcl::Accept => Ok(Visibility::Public),
        PublicAcl::Refuse => Err(not_implemented(
            "the ACL public-read of a bucket: a public bucket lets anybody read all its objects, \
             too. Use `cairn bucket set NAME --visibility public`, or start the server with \
             --s3-public-acl accept",
        )),
    }
}

/// Checks the canned ACL of an object: it must match the visibility of its bucket, and is refused
/// otherwise.
pub(super) async fn check_object(call: &Call<'_>) -> S3Result<()> {
    let wanted = match text(call.headers(), "x-amz-acl")? {
        None => return Ok(()),
        Some("private" | "bucket-owner-full-control") => Visibility::Private,
        Some("public-read") => Visibility::Public,
        Some(_) => return Err(not_implemented("an ACL of an object other than its bucket's")),
    };
    // Only a caller that may write learns the visibility of the bucket.
    call.may_write().await?;
    let bucket = call.store.bucket(&Caller::system(), call.bucket()).await?;
    if let Some(block) = bucket.public_access_block
        && block.refuses()
        && wanted == Visibility::Public
    {
        let what = "the public access block of the bucket refuses public ACLs";
        return Err(refuse(S3ErrorCode::AccessDenied, what));
    }
    match (wanted, bucket.chosen_visibility()) {
        (wanted, visibility) if wanted == visibility => Ok(()),
        (Visibility::Private, _) => Err(not_implemented(
            "a private object in a public bucket: anybody may read all that is in it. Put it in \
             a private bucket",
        )),
        _ => Err(not_implemented("a public object in a private bucket: set the ACL of the bucket")),
    }
}

/// Returns the list that expresses the visibility of a bucket and its contents.
pub(super) async fn listed(store: &Store, bucket: &Bucket) -> S3Result<(Owner, Vec<Grant>)> {
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
    if bucket.chosen_visibility() == Visibility::Public {
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

use cairn_auth::Visibility;
use cairn_base::UserId;
use cairn_fs::ops::buckets::UpdateBucket;
use http::{Response, StatusCode};
use s3s::dto::{AccessControlPolicy, Grantee, Permission};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, bad_request, not_implemented};
use super::super::store::Store;
use super::super::{owner, reply, xml};
use super::acl::{ALL_USERS, canned, public};

/// Takes a canned ACL, or a list that says no more than one of the two.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let policy: Option<AccessControlPolicy> = xml::parse_some(&call.xml)?;
    let visibility = match (canned(call.store, call.headers())?, policy) {
        (Some(visibility), None) => visibility,
        (None, Some(policy)) => {
            let bucket = call.settings().await?;
            visibility_of(call.store, policy, bucket.owner)?
        }
        _ => {
            call.allowed().await?;
            return Err(bad_request("give either a canned ACL or a list of grants"));
        }
    };
    let verb = UpdateBucket {
        name: call.bucket().to_owned(),
        visibility: Some(visibility),
        ..UpdateBucket::default()
    };
    call.run(Codes::bucket(), verb).await?;
    Ok(reply::empty(StatusCode::OK))
}

/// Returns the visibility that a list of grants expresses: everything for the owner, and reading
/// for everybody or not.
fn visibility_of(
    store: &Store,
    policy: AccessControlPolicy,
    owner: UserId,
) -> S3Result<Visibility> {
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
                visibility = public(store)?;
            }
            _ => return Err(beyond_canned()),
        }
    }
    if owner_has_all { Ok(visibility) } else { Err(beyond_canned()) }
}

fn beyond_canned() -> s3s::S3Error {
    not_implemented(
        "ACLs other than the canned private and public-read: rights of users are granted by \
         `cairn bucket set NAME --grant USER:read`",
    )
}

//! The one place that decides on rights.

use std::fmt;

use cairn_base::{Error, Result};

use crate::access::Visibility;
use crate::action::Holder;
use crate::{AccessContext, Action, BucketAccess, Caller, Label, Principal};

/// Target of an action.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    /// The store as a whole: users, nodes, the list of buckets.
    Store,
    /// The directory of all buckets, as file systems see it.
    TopLevel,
    Bucket(BucketAccess<'a>),
    /// An object or file, or all of the bucket's. The key is unknown if a file was reached by its
    /// number.
    Object(BucketAccess<'a>, Option<&'a str>),
}

/// Decides whether `caller` may do `action` to `resource`.
///
/// # Errors
/// `Denied` if not; `ReadOnly` if only the read-only bucket prevents it.
pub fn authorize(
    caller: &Caller,
    action: Action,
    resource: Resource<'_>,
    context: &AccessContext<'_>,
) -> Result<()> {
    if is_allowed(caller, action, resource, context) {
        return check_writable(caller, action, resource);
    }
    let origin = context.origin;
    tracing::debug!(
        principal = ?caller.principal(),
        %action,
        resource = %resource.with_key(),
        source = origin.source.map(tracing::field::display),
        tls = origin.tls,
        credential = origin.credential.as_ref().map(|id| tracing::field::display(id.as_str())),
        "denied"
    );
    Err(Error::Denied(match action.holder() {
        Holder::Root => format!("{action}: only root may"),
        Holder::User => format!("{action}: only users may, so send credentials"),
        Holder::With(_) | Holder::WithOrPublic(_) => format!("{action} in {resource}"),
    }))
}

/// Refuses changes to the contents of a read-only bucket, to all callers except the store itself.
fn check_writable(caller: &Caller, action: Action, resource: Resource<'_>) -> Result<()> {
    let (Resource::Bucket(bucket) | Resource::Object(bucket, _)) = resource else { return Ok(()) };
    let is_own = caller.principal() == Principal::System;
    if bucket.read_only && action.changes_contents() && !is_own {
        Err(Error::ReadOnly(format!("{resource} takes no changes now")))
    } else {
        Ok(())
    }
}

/// Decides like [`authorize`], but without an error that says why. For choices among many things.
///
/// Policies are to be evaluated here. Rights do not depend on the context.
pub fn is_allowed(
    caller: &Caller,
    action: Action,
    resource: Resource<'_>,
    _context: &AccessContext<'_>,
) -> bool {
    if let Resource::TopLevel = resource {
        // Everybody may read it, and nobody may change it as if it held files.
        return matches!(
            action,
            Action::GetObject | Action::ListBucket | Action::GetBucketSettings
        );
    }
    if caller.is_root() {
        return true;
    }
    let has = |right| match resource {
        Resource::Bucket(bucket) | Resource::Object(bucket, _) => {
            bucket.rights_of(caller).contains(right)
        }
        Resource::Store | Resource::TopLevel => false,
    };
    match action.holder() {
        Holder::Root => false,
        Holder::User => matches!(caller.principal(), Principal::User(_)),
        Holder::With(right) => has(right),
        Holder::WithOrPublic(right) => resource.is_public() || has(right),
    }
}

impl Resource<'_> {
    fn is_public(&self) -> bool {
        match self {
            Resource::Bucket(bucket) | Resource::Object(bucket, _) => {
                bucket.visibility == Visibility::Public
            }
            Resource::Store | Resource::TopLevel => false,
        }
    }

    /// Shows the resource with its key, for the log of this machine, which may show keys.
    fn with_key(&self) -> impl fmt::Display {
        match self {
            Resource::Object(_, Some(key)) => format!("{self}: {key:?}"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Store => f.write_str("the store"),
            Resource::TopLevel => f.write_str("the top-level directory, which holds buckets only"),
            Resource::Bucket(bucket) | Resource::Object(bucket, _) => match bucket.label {
                Label::Name(name) => write!(f, "bucket {name}"),
                Label::Number(bucket) => write!(f, "bucket {bucket}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, Rights};
    use cairn_base::{Timestamp, UserId};

    const OWNER: UserId = UserId(7);
    const READER: UserId = UserId(8);
    const WRITER: UserId = UserId(9);
    const STRANGER: UserId = UserId(10);

    fn decide(caller: &Caller, resource: Resource<'_>, action: Action) -> Result<()> {
        let context = AccessContext { origin: &Origin::default(), now: Timestamp(0) };
        let decided = authorize(caller, action, resource, &context);
        assert_eq!(decided.is_ok(), is_allowed(caller, action, resource, &context));
        decided
    }

    /// Every principal x an action of each sort x both visibilities.
    #[test]
    fn matrix() {
        use Action::{GetBucketSettings, GetObject, ListBucket, PutBucketSettings, PutObject};
        let grants = [(READER, Rights::READ), (WRITER, Rights::WRITE)];
        let all = [GetObject, ListBucket, PutObject, GetBucketSettings, PutBucketSettings];
        let public = &[GetObject, ListBucket][..];
        let reader = &[GetObject, ListBucket, GetBucketSettings][..];
        let table: [(Caller, &[Action], &[Action]); 7] = [
            (Caller::anonymous(), &[], public),
            (Caller::verified(STRANGER), &[], public),
            (Caller::verified(READER), reader, reader),
            (Caller::verified(WRITER), &[PutObject], &[GetObject, ListBucket, PutObject]),
            (Caller::verified(OWNER), &all, &all),
            (Caller::verified(UserId::ROOT), &all, &all),
            (Caller::system(), &all, &all),
        ];
        for (caller, private, public) in table {
            for action in all {
                for (visibility, allowed) in
                    [(Visibility::Private, private), (Visibility::Public, public)]
                {
                    let label = Label::Name("b");
                    let bucket = BucketAccess {
                        label,
                        owner: OWNER,
                        visibility,
                        grants: &grants,
                        read_only: false,
                    };
                    for resource in [Resource::Bucket(bucket), Resource::Object(bucket, Some("k"))]
                    {
                        let got = decide(&caller, resource, action).is_ok();
                        assert_eq!(got, allowed.contains(&action), "{caller:?} {action}");
                    }
                    let got = decide(&caller, Resource::Store, action).is_ok();
                    assert_eq!(got, caller.is_root(), "{caller:?} {action}");
                }
            }
        }
    }

    /// Actions that no right in a bucket gives.
    #[test]
    fn of_the_store() {
        for action in Action::ALL {
            let by = |caller| decide(&caller, Resource::Store, *action).is_ok();
            assert!(by(Caller::system()) && by(Caller::verified(UserId::ROOT)), "{action}");
            assert!(!by(Caller::anonymous()), "{action}");
            let is_for_users = [Action::CreateBucket, Action::ListAllMyBuckets, Action::Mount];
            assert_eq!(by(Caller::verified(OWNER)), is_for_users.contains(action), "{action}");
        }
    }

    #[test]
    fn the_top_level_is_looked_at_by_all_and_changed_by_nobody() {
        for caller in [Caller::anonymous(), Caller::verified(STRANGER), Caller::system()] {
            decide(&caller, Resource::TopLevel, Action::ListBucket).unwrap();
            decide(&caller, Resource::TopLevel, Action::PutObject).unwrap_err();
            decide(&caller, Resource::TopLevel, Action::Operate).unwrap_err();
        }
    }

    #[test]
    fn nobody_is_not_the_owner_of_an_ownerless_bucket() {
        let bucket = BucketAccess {
            label: Label::Name("b"),
            owner: UserId::NOBODY,
            visibility: Visibility::Private,
            grants: &[(UserId::NOBODY, Rights::ALL)],
            read_only: false,
        };
        let (anonymous, resource) = (Caller::anonymous(), Resource::Object(bucket, None));
        assert!(decide(&anonymous, resource, Action::GetObject).is_err());
        let owner = Caller::verified(OWNER);
        assert!(decide(&owner, Resource::Store, Action::CollectGarbage).is_err());
    }

    #[test]
    fn a_bucket_that_is_read_only_is_changed_by_nobody_but_the_store() {
        let (label, visibility) = (Label::Name("b"), Visibility::Public);
        let grants = &[][..];
        let bucket = BucketAccess { label, owner: OWNER, visibility, grants, read_only: true };
        for action in Action::ALL {
            let by = |caller| {
                let context = AccessContext { origin: &Origin::default(), now: Timestamp(0) };
                authorize(&caller, *action, Resource::Object(bucket, Some("k")), &context)
            };
            let of_root = by(Caller::verified(UserId::ROOT));
            if action.changes_contents() {
                assert!(matches!(of_root, Err(Error::ReadOnly(_))), "{action}")
            } else {
                of_root.unwrap()
            }
            by(Caller::system()).unwrap();
            // A caller without the right learns only about the right.
            if action.changes_contents() && action.holder() != Holder::User {
                assert!(
                    matches!(by(Caller::verified(STRANGER)), Err(Error::Denied(_))),
                    "{action}"
                );
            }
        }
    }

    #[test]
    fn a_refusal_names_no_more_than_the_caller_does() {
        let label = Label::Number(cairn_base::BucketId(5));
        let visibility = Visibility::Private;
        let (grants, read_only) = (&[][..], false);
        let bucket = BucketAccess { label, owner: OWNER, visibility, grants, read_only };
        let resource = Resource::Object(bucket, Some("secret"));
        let error = decide(&Caller::verified(STRANGER), resource, Action::GetObject).unwrap_err();
        assert_eq!(error.to_string(), "denied: s3:GetObject in bucket 5");
    }
}

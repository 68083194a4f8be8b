//! Actions that may be allowed or denied: S3's own, and Cairn's where S3 has none.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Rights;

/// Callers that may do an action as long as there are no policies, in addition to root and the
/// store itself, which may do everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// No other caller.
    Root,
    /// Every user.
    User,
    /// Users with this right in the bucket.
    With(Rights),
    /// Like [`Holder::With`]; in a public bucket everybody.
    WithOrPublic(Rights),
}

use Holder::{Root, User, With, WithOrPublic};

macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident, $name:literal, $holder:expr;)*) => {
        /// An action. New ones go to the end: some are sent, as numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Action {
            $($(#[$doc])* $action,)*
        }

        impl Action {
            pub const ALL: &[Action] = &[$(Action::$action),*];

            /// Returns the name of the action in policies.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Action::$action => $name,)*
                }
            }

            pub const fn holder(self) -> Holder {
                match self {
                    $(Action::$action => $holder,)*
                }
            }
        }
    };
}

actions! {
    /// Read an object, its attributes and what else a file has.
    GetObject, "s3:GetObject", WithOrPublic(Rights::READ);
    /// List keys and directories.
    ListBucket, "s3:ListBucket", WithOrPublic(Rights::READ);
    /// Make, replace and change objects, and the parts of uploads.
    PutObject, "s3:PutObject", With(Rights::WRITE);
    /// Read all settings and the usage of a bucket.
    GetBucketSettings, "cairn:GetBucketSettings", With(Rights::READ);
    /// Change settings that S3 does not know.
    PutBucketSettings, "cairn:PutBucketSettings", With(Rights::ADMIN);
    DeleteObject, "s3:DeleteObject", With(Rights::WRITE);
    GetObjectTagging, "s3:GetObjectTagging", WithOrPublic(Rights::READ);
    PutObjectTagging, "s3:PutObjectTagging", With(Rights::WRITE);
    DeleteObjectTagging, "s3:DeleteObjectTagging", With(Rights::WRITE);
    AbortMultipartUpload, "s3:AbortMultipartUpload", With(Rights::WRITE);
    ListMultipartUploadParts, "s3:ListMultipartUploadParts", With(Rights::WRITE);
    ListBucketMultipartUploads, "s3:ListBucketMultipartUploads", With(Rights::WRITE);
    CreateBucket, "s3:CreateBucket", User;
    DeleteBucket, "s3:DeleteBucket", With(Rights::ADMIN);
    ListAllMyBuckets, "s3:ListAllMyBuckets", User;
    /// Change the visibility of a bucket and the rights of users in it.
    PutBucketAcl, "s3:PutBucketAcl", With(Rights::ADMIN);
    PutBucketTagging, "s3:PutBucketTagging", With(Rights::ADMIN);
    PutBucketQuota, "cairn:PutBucketQuota", Root;
    /// Use the store as a file system.
    Mount, "cairn:Mount", User;
    /// Do what nodes do for the store: sessions, the cluster map, garbage.
    Operate, "cairn:Operate", Root;
    ManageUsers, "cairn:ManageUsers", Root;
    CollectGarbage, "cairn:CollectGarbage", Root;
    DumpMetadata, "cairn:DumpMetadata", Root;
    /// Ask anything at `/admin`.
    Administer, "cairn:Administer", Root;
    ReadMetrics, "cairn:ReadMetrics", Root;
    GetObjectAcl, "s3:GetObjectAcl", With(Rights::READ);
    GetObjectAttributes, "s3:GetObjectAttributes", WithOrPublic(Rights::READ);
    /// Visibility of an object, which is that of its bucket.
    PutObjectAcl, "s3:PutObjectAcl", With(Rights::WRITE);
    ListBucketVersions, "s3:ListBucketVersions", WithOrPublic(Rights::READ);
    GetBucketAcl, "s3:GetBucketAcl", With(Rights::READ);
    GetBucketLocation, "s3:GetBucketLocation", With(Rights::READ);
    GetBucketTagging, "s3:GetBucketTagging", With(Rights::READ);
    GetBucketVersioning, "s3:GetBucketVersioning", With(Rights::READ);
    GetBucketPolicy, "s3:GetBucketPolicy", With(Rights::READ);
    GetBucketPolicyStatus, "s3:GetBucketPolicyStatus", With(Rights::READ);
    GetBucketCors, "s3:GetBucketCORS", With(Rights::READ);
    GetBucketLogging, "s3:GetBucketLogging", With(Rights::READ);
    GetBucketNotification, "s3:GetBucketNotification", With(Rights::READ);
    GetBucketObjectLockConfiguration, "s3:GetBucketObjectLockConfiguration", With(Rights::READ);
    GetBucketOwnershipControls, "s3:GetBucketOwnershipControls", With(Rights::READ);
    GetBucketPublicAccessBlock, "s3:GetBucketPublicAccessBlock", With(Rights::READ);
    GetBucketRequestPayment, "s3:GetBucketRequestPayment", With(Rights::READ);
    GetBucketWebsite, "s3:GetBucketWebsite", With(Rights::READ);
    GetAccelerateConfiguration, "s3:GetAccelerateConfiguration", With(Rights::READ);
    GetEncryptionConfiguration, "s3:GetEncryptionConfiguration", With(Rights::READ);
    GetLifecycleConfiguration, "s3:GetLifecycleConfiguration", With(Rights::READ);
    GetReplicationConfiguration, "s3:GetReplicationConfiguration", With(Rights::READ);
    /// Export buckets to clients without credentials.
    ManageExports, "cairn:ManageExports", Root;
    PutBucketCors, "s3:PutBucketCORS", With(Rights::ADMIN);
    PutBucketWebsite, "s3:PutBucketWebsite", With(Rights::ADMIN);
    // Names of S3 for features that Cairn does not have yet. Where S3 answers something without the
    // feature, they have the holders that they will have; no verb needs the others, so only root
    // has them. Their numbers are taken, so that features that are developed at the same time do
    // not conflict.
    PutBucketVersioning, "s3:PutBucketVersioning", With(Rights::ADMIN);
    GetObjectVersion, "s3:GetObjectVersion", Root;
    GetObjectVersionAcl, "s3:GetObjectVersionAcl", Root;
    GetObjectVersionAttributes, "s3:GetObjectVersionAttributes", Root;
    GetObjectVersionTagging, "s3:GetObjectVersionTagging", Root;
    PutObjectVersionAcl, "s3:PutObjectVersionAcl", Root;
    PutObjectVersionTagging, "s3:PutObjectVersionTagging", Root;
    DeleteObjectVersion, "s3:DeleteObjectVersion", Root;
    DeleteObjectVersionTagging, "s3:DeleteObjectVersionTagging", Root;
    PutBucketObjectLockConfiguration, "s3:PutBucketObjectLockConfiguration", Root;
    GetObjectRetention, "s3:GetObjectRetention", With(Rights::READ);
    PutObjectRetention, "s3:PutObjectRetention", With(Rights::WRITE);
    GetObjectLegalHold, "s3:GetObjectLegalHold", With(Rights::READ);
    PutObjectLegalHold, "s3:PutObjectLegalHold", With(Rights::WRITE);
    BypassGovernanceRetention, "s3:BypassGovernanceRetention", Root;
    PutBucketPolicy, "s3:PutBucketPolicy", Root;
    DeleteBucketPolicy, "s3:DeleteBucketPolicy", With(Rights::ADMIN);
    PutBucketPublicAccessBlock, "s3:PutBucketPublicAccessBlock", With(Rights::ADMIN);
    GetAccountPublicAccessBlock, "s3:GetAccountPublicAccessBlock", Root;
    PutAccountPublicAccessBlock, "s3:PutAccountPublicAccessBlock", Root;
    PutBucketOwnershipControls, "s3:PutBucketOwnershipControls", With(Rights::ADMIN);
    PutEncryptionConfiguration, "s3:PutEncryptionConfiguration", With(Rights::ADMIN);
    UpdateObjectEncryption, "s3:UpdateObjectEncryption", Root;
    PutLifecycleConfiguration, "s3:PutLifecycleConfiguration", With(Rights::ADMIN);
    PutReplicationConfiguration, "s3:PutReplicationConfiguration", With(Rights::ADMIN);
    GetObjectVersionForReplication, "s3:GetObjectVersionForReplication", Root;
    ReplicateObject, "s3:ReplicateObject", Root;
    ReplicateDelete, "s3:ReplicateDelete", Root;
    ReplicateTags, "s3:ReplicateTags", Root;
    InitiateReplication, "s3:InitiateReplication", Root;
    GetObjectAnnotation, "s3:GetObjectAnnotation", Root;
    PutObjectAnnotation, "s3:PutObjectAnnotation", Root;
    DeleteObjectAnnotation, "s3:DeleteObjectAnnotation", Root;
    ListObjectAnnotations, "s3:ListObjectAnnotations", Root;
    PutBucketLogging, "s3:PutBucketLogging", With(Rights::ADMIN);
    PutBucketNotification, "s3:PutBucketNotification", With(Rights::ADMIN);
    PutAccelerateConfiguration, "s3:PutAccelerateConfiguration", With(Rights::ADMIN);
    PutBucketRequestPayment, "s3:PutBucketRequestPayment", With(Rights::ADMIN);
}

impl Action {
    /// Returns true if the action changes the contents of a bucket or the list of buckets. A
    /// read-only store refuses such an action to everybody but itself.
    pub const fn changes_contents(self) -> bool {
        matches!(
            self,
            Action::PutObject
                | Action::DeleteObject
                | Action::PutObjectTagging
                | Action::DeleteObjectTagging
                | Action::PutObjectAcl
                | Action::AbortMultipartUpload
                | Action::CreateBucket
                | Action::DeleteBucket
                | Action::DeleteObjectVersion
                | Action::PutObjectVersionAcl
                | Action::PutObjectVersionTagging
                | Action::DeleteObjectVersionTagging
                | Action::PutObjectRetention
                | Action::PutObjectLegalHold
                | Action::UpdateObjectEncryption
                | Action::ReplicateObject
                | Action::ReplicateDelete
                | Action::ReplicateTags
                | Action::PutObjectAnnotation
                | Action::DeleteObjectAnnotation
        )
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ActionSet(u128);

impl ActionSet {
    pub const NONE: ActionSet = ActionSet(0);

    pub const fn of(actions: &[Action]) -> ActionSet {
        let (mut bits, mut at) = (0, 0);
        while at < actions.len() {
            bits |= 1 << actions[at] as u8;
            at += 1;
        }
        ActionSet(bits)
    }

    #[must_use]
    pub const fn with(self, action: Action) -> ActionSet {
        ActionSet(self.0 | 1 << action as u8)
    }

    pub const fn contains(self, other: ActionSet) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Action::ALL.iter().filter(|action| self.0 & 1 << **action as u8 != 0);
        let names: Vec<&str> = all.map(|action| action.name()).collect();
        f.write_str(&names.join(", "))
    }
}

// A set has room for all actions.
const _: () = assert!(Action::ALL.len() <= u128::BITS as usize);

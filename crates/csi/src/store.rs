//! The calls of a driver to a server. They wait, so they are made on threads of their own.

use tonic::Status;

/// A bucket that is a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredVolume {
    pub bucket: String,
    /// The most bytes in it; 0 for no quota.
    pub quota: u64,
    /// Root owns it, as whom drivers act. Of another owner it is no volume of theirs: the owner
    /// could read and change it.
    pub is_own: bool,
}

/// A page of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    pub volumes: Vec<StoredVolume>,
    /// Start of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Why a server did not do it, with its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    NotFound(String),
    /// The request makes no sense to the server, or it would refuse it again.
    Refused(String),
    /// Later it may be possible.
    Unavailable(String),
    Full(String),
    Other(String),
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Status {
        match error {
            StoreError::NotFound(text) => Status::not_found(text),
            StoreError::Refused(text) => Status::failed_precondition(text),
            StoreError::Unavailable(text) => Status::unavailable(text),
            StoreError::Full(text) => Status::resource_exhausted(text),
            StoreError::Other(text) => Status::internal(text),
        }
    }
}

/// A server, as one who may make and delete buckets and set quotas.
pub trait Store: Send + Sync + 'static {
    fn find(&self, bucket: &str) -> Result<Option<StoredVolume>, StoreError>;

    /// Makes a bucket, or finds that it is there.
    fn make(&self, bucket: &str) -> Result<(), StoreError>;

    fn set_quota(&self, bucket: &str, bytes: u64) -> Result<(), StoreError>;

    /// Lets nodes mount a bucket: clients of NFS, or a user, as it is configured. It may be so
    /// already.
    fn export(&self, bucket: &str) -> Result<(), StoreError>;

    /// Ends that, if it is so.
    fn end_export(&self, bucket: &str) -> Result<(), StoreError>;

    /// The buckets whose names begin with `prefix`, at most `limit` of them. `after` is the
    /// [`Page::next`] of a page before.
    fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, StoreError>;

    /// Removes everything in a bucket.
    fn clear(&self, bucket: &str) -> Result<(), StoreError>;

    /// Removes a bucket in which nothing is.
    fn remove(&self, bucket: &str) -> Result<(), StoreError>;
}

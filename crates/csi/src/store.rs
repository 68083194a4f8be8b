//! Calls of a driver to a server. They block, so they are made on separate threads.

use tonic::Status;

/// A bucket that is a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredVolume {
    pub bucket: String,
    /// Most bytes in it; 0 for no quota.
    pub quota: u64,
    /// Set if root owns it: drivers act as root. A bucket of another owner is no volume of theirs:
    /// the owner could read and change it.
    pub is_own: bool,
}

/// A page of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    pub volumes: Vec<StoredVolume>,
    /// Start of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Reason why a server did not do it, in the server's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    NotFound(String),
    /// The request makes no sense to the server, or the server would refuse it again.
    Refused(String),
    /// It may be possible later.
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

/// A server, seen by a client that may make and delete buckets and set quotas.
pub trait Store: Send + Sync + 'static {
    fn find(&self, bucket: &str) -> Result<Option<StoredVolume>, StoreError>;

    /// Makes a bucket, unless it is there.
    fn make(&self, bucket: &str) -> Result<(), StoreError>;

    fn set_quota(&self, bucket: &str, bytes: u64) -> Result<(), StoreError>;

    /// Lets nodes mount a bucket: clients of NFS, or a user, as configured. The bucket may be
    /// exported already.
    fn export(&self, bucket: &str) -> Result<(), StoreError>;

    /// Removes the export if the bucket has one.
    fn end_export(&self, bucket: &str) -> Result<(), StoreError>;

    /// Returns the buckets whose names begin with `prefix`, at most `limit` of them. `after` is the
    /// [`Page::next`] of the previous page.
    fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, StoreError>;

    /// Removes everything in a bucket.
    fn clear(&self, bucket: &str) -> Result<(), StoreError>;

    /// Removes an empty bucket.
    fn remove(&self, bucket: &str) -> Result<(), StoreError>;
}

//! The admission of bytes of uploads, before they arrive.

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_meta::ops::user_quotas::{FindRoom, QuotaRoom};

use crate::Fs;
use crate::incoming::{AdmissionRequest, Quota, QuotaHold};

impl Fs {
    /// Admits bytes of an upload to a bucket, before they arrive. They count until the returned
    /// value is dropped; returns `None` if there is no quota. The object under the key, if the key
    /// is stated, makes room.
    ///
    /// # Errors
    /// `Full` if a quota leaves too little.
    pub async fn let_in(
        &self,
        bucket: &str,
        key: Option<&str>,
        wanted: AdmissionRequest,
    ) -> Result<Option<QuotaHold>> {
        let Some(room) = self.find_room(bucket, key).await? else { return Ok(None) };
        let quotas = quotas_of(&room);
        if quotas.is_empty() {
            return Ok(None);
        }
        let incoming = &self.inner.incoming;
        let held = incoming.hold(quotas.iter().map(|(quota, _)| *quota), wanted.bytes());
        // Others may have published the bytes that they held: of two uploads at once, the later one
        // sees what the other holds or has stored.
        let Some(room) = self.find_room(bucket, key).await? else { return Ok(None) };
        for (quota, room) in quotas_of(&room) {
            let before = held.quotas.iter().find(|(held, _)| *held == quota);
            let free = room.saturating_sub(before.map_or(0, |(_, before)| *before));
            if !wanted.fits(free) {
                return Err(full(bucket, quota, free, wanted));
            }
        }
        Ok(Some(held))
    }

    /// Checks whether there is room for this many bytes now, without holding it.
    ///
    /// # Errors
    /// Same errors as [`Fs::let_in`].
    pub async fn check_room(&self, bucket: &str, bytes: u64) -> Result<()> {
        self.let_in(bucket, None, AdmissionRequest::Exactly(bytes)).await.map(drop)
    }

    /// Returns the room that quotas leave; `None` if the master is of an earlier version: then
    /// quotas decide when bytes are published.
    async fn find_room(&self, bucket: &str, key: Option<&str>) -> Result<Option<QuotaRoom>> {
        let verb = FindRoom { bucket: bucket.to_owned(), key: key.map(str::to_owned) };
        let system = Caller::system();
        let found = match self.read_now(&system, &verb) {
            Some(found) => found,
            None => self.read(&system, verb).await,
        };
        match found {
            Err(Error::NotImplemented(_)) => Ok(None),
            found => found.map(Some),
        }
    }
}

fn quotas_of(room: &QuotaRoom) -> Vec<(Quota, u64)> {
    let of_bucket = room.of_bucket.map(|left| (Quota::Bucket(room.bucket), left));
    let of_owner = room.of_owner.map(|left| (Quota::Owner(room.owner), left));
    of_bucket.into_iter().chain(of_owner).collect()
}

fn full(bucket: &str, quota: Quota, free: u64, wanted: AdmissionRequest) -> Error {
    let whose = match quota {
        Quota::Bucket(_) => format!("the quota of bucket {bucket}"),
        Quota::Owner(_) => format!("the quota of the owner of bucket {bucket} for all its buckets"),
    };
    let what = match wanted {
        AdmissionRequest::Exactly(bytes) => format!("leaves {free} bytes, and these are {bytes}"),
        AdmissionRequest::Portion => "is used up".to_owned(),
    };
    Error::Full(format!("{whose} {what}: delete something, or have root raise it"))
}

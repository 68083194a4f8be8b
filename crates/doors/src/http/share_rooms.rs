//! Uploads by share links that are not stored yet. They count from their first byte on, so that
//! many senders at once write no more than a link allows. A sender that hangs up or is refused
//! leaves no trace in the counts.
//!
//! These are the senders of one door. The store counts the files that they store, at all doors, and
//! decides.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_auth::ShareLinkId;
use cairn_base::Error;
use cairn_fs::rows::{ShareLink, UploadLimits};
use parking_lot::Mutex;

use super::error::Failure;

/// Links with uploads in progress.
#[derive(Default)]
pub struct ShareRooms(Mutex<HashMap<ShareLinkId, ShareRoom>>);

#[derive(Default)]
struct ShareRoom {
    senders: usize,
    /// The counts of the store, as far as this door knows.
    counted: UploadLimits,
    /// The room that senders hold in addition to the counts.
    held: UploadLimits,
}

/// One request that adds files, and the part of its link's room that it holds.
pub struct ShareSender {
    rooms: Arc<ShareRooms>,
    id: ShareLinkId,
    most: UploadLimits,
    held: UploadLimits,
}

fn plus(one: UploadLimits, other: UploadLimits) -> UploadLimits {
    UploadLimits {
        files: one.files.saturating_add(other.files),
        bytes: one.bytes.saturating_add(other.bytes),
    }
}

fn minus(one: UploadLimits, other: UploadLimits) -> UploadLimits {
    UploadLimits {
        files: one.files.saturating_sub(other.files),
        bytes: one.bytes.saturating_sub(other.bytes),
    }
}

fn is_within(one: UploadLimits, most: UploadLimits) -> bool {
    one.files <= most.files && one.bytes <= most.bytes
}

/// Returns the larger of two counts, as one of them may be older.
fn newer(one: UploadLimits, other: UploadLimits) -> UploadLimits {
    UploadLimits { files: one.files.max(other.files), bytes: one.bytes.max(other.bytes) }
}

fn full() -> Error {
    Error::TooLarge("the share link takes no more files, or none of this size".into())
}

impl ShareRooms {
    /// Returns the files and bytes that may still be added.
    pub fn left(&self, id: &ShareLinkId, link: &ShareLink) -> UploadLimits {
        let rooms = self.0.lock();
        let known = rooms.get(id).map(|room| (room.counted, room.held));
        let (counted, held) = known.unwrap_or_default();
        let taken = plus(newer(counted, link.uploaded), held);
        minus(link.uploads.unwrap_or_default(), taken)
    }

    pub fn enter(self: &Arc<Self>, id: &ShareLinkId, link: &ShareLink) -> ShareSender {
        let mut rooms = self.0.lock();
        let room = rooms.entry(id.clone()).or_default();
        room.senders += 1;
        room.counted = newer(room.counted, link.uploaded);
        ShareSender {
            rooms: Arc::clone(self),
            id: id.clone(),
            most: link.uploads.unwrap_or_default(),
            held: UploadLimits::default(),
        }
    }
}

impl ShareSender {
    /// Checks whether there is room for this many bytes, before they arrive.
    ///
    /// # Errors
    /// Same errors as [`ShareSender::file`].
    pub fn check(&self, bytes: u64) -> Result<(), Failure> {
        self.decide(self.rooms.0.lock().get(&self.id), UploadLimits { files: 0, bytes })
    }

    /// Takes room for another file.
    ///
    /// # Errors
    /// `TooLarge` if the link takes no more, and `Busy` if only uploads in progress leave no room.
    pub fn file(&mut self) -> Result<(), Failure> {
        self.hold(UploadLimits { files: 1, bytes: 0 })
    }

    /// Takes room for further bytes of a file.
    ///
    /// # Errors
    /// Same errors as [`ShareSender::file`].
    pub fn bytes(&mut self, bytes: u64) -> Result<(), Failure> {
        self.hold(UploadLimits { files: 0, bytes })
    }

    fn hold(&mut self, more: UploadLimits) -> Result<(), Failure> {
        let mut rooms = self.rooms.0.lock();
        self.decide(rooms.get(&self.id), more)?;
        if let Some(room) = rooms.get_mut(&self.id) {
            room.held = plus(room.held, more);
        }
        drop(rooms);
        self.held = plus(self.held, more);
        Ok(())
    }

    fn decide(&self, room: Option<&ShareRoom>, more: UploadLimits) -> Result<(), Failure> {
        let (counted, held) = room.map(|room| (room.counted, room.held)).unwrap_or_default();
        if !is_within(plus(plus(counted, self.held), more), self.most) {
            return Err(full().into());
        }
        if is_within(plus(plus(counted, held), more), self.most) {
            Ok(())
        } else {
            Err(Failure::Busy("others add files by this share link just now"))
        }
    }

    /// Notes that the store has counted everything that this sender holds.
    pub fn counted(&mut self) {
        let held = std::mem::take(&mut self.held);
        if let Some(room) = self.rooms.0.lock().get_mut(&self.id) {
            room.held = minus(room.held, held);
            room.counted = plus(room.counted, held);
        }
    }

    /// Notes that the store has subtracted these uploads from its counts.
    pub fn returned(&mut self, uploads: UploadLimits) {
        if let Some(room) = self.rooms.0.lock().get_mut(&self.id) {
            room.counted = minus(room.counted, uploads);
        }
    }
}

impl Drop for ShareSender {
    fn drop(&mut self) {
        let mut rooms = self.rooms.0.lock();
        let Some(room) = rooms.get_mut(&self.id) else { return };
        room.held = minus(room.held, self.held);
        room.senders -= 1;
        if room.senders == 0 {
            rooms.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::UserId;

    use super::*;

    fn limits(files: u64, bytes: u64) -> UploadLimits {
        UploadLimits { files, bytes }
    }

    fn kind(outcome: Result<(), Failure>) -> &'static str {
        match outcome {
            Ok(()) => "taken",
            Err(Failure::Busy(_)) => "busy",
            Err(Failure::Store(error)) => error.kind(),
            Err(_) => "other",
        }
    }

    #[test]
    fn what_senders_hold_counts_until_they_go() {
        let rooms = Arc::new(ShareRooms::default());
        let id = ShareLinkId { user: UserId(7), id: "A".into() };
        let link = ShareLink {
            uploads: Some(limits(3, 100)),
            uploaded: limits(1, 10),
            ..ShareLink::default()
        };
        let (mut one, mut two) = (rooms.enter(&id, &link), rooms.enter(&id, &link));
        assert_eq!(kind(one.bytes(91)), "too_large", "even if it were alone");
        assert_eq!(kind(one.file()), "taken");
        assert_eq!(kind(one.bytes(60)), "taken");
        assert_eq!(rooms.left(&id, &link), limits(1, 30));
        assert_eq!((kind(two.file()), kind(two.file())), ("taken", "busy"));
        assert_eq!((kind(two.bytes(31)), kind(two.bytes(30))), ("busy", "taken"));
        // It hangs up.
        drop(one);
        assert_eq!((kind(two.file()), kind(two.bytes(60))), ("taken", "taken"));
        assert_eq!((kind(two.file()), kind(two.bytes(1))), ("too_large", "too_large"));
        // All that it holds is counted, and then is not.
        two.counted();
        assert_eq!(rooms.left(&id, &link), limits(0, 0));
        two.returned(limits(1, 90));
        assert_eq!(rooms.left(&id, &link), limits(1, 90));
        drop(two);
        assert!(rooms.0.lock().is_empty(), "links by which nothing comes are not remembered");
        assert_eq!(rooms.left(&id, &link), limits(2, 90));
    }
}

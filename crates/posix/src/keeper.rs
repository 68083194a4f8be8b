//! The keeper of names and attributes, which hears that they must be asked for again.

use cairn_base::Ino;

/// A cache of attributes and names: the kernel behind a mount, for one. These calls must not wait:
/// whoever makes a change elsewhere waits for them.
pub trait Keeper: Send + Sync {
    /// Whether it says when it forgets inodes ([`crate::Posix::forget`]). Of others nothing is
    /// remembered.
    fn counts(&self) -> bool;

    /// Whether names may be kept.
    fn keeps_names(&self) -> bool;

    /// All names are to be asked for again.
    fn forget_names(&self);

    /// The attributes of an inode are to be asked for again, and with them its bytes. Whether the
    /// inode was known.
    fn forget_attributes(&self, ino: Ino) -> bool;
}

/// Keeps nothing, as a server of requests that end with their answers.
pub struct Nobody;

impl Keeper for Nobody {
    fn counts(&self) -> bool {
        false
    }

    fn keeps_names(&self) -> bool {
        false
    }

    fn forget_names(&self) {}

    fn forget_attributes(&self, _: Ino) -> bool {
        true
    }
}

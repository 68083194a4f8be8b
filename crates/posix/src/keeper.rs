//! The cache of names and attributes in front of this file system, and the calls that invalidate
//! it.

use cairn_base::Ino;

/// A cache of attributes and names, such as the kernel behind a mount. These calls must not wait: a
/// change elsewhere waits for them.
pub trait Keeper: Send + Sync {
    /// Returns whether the keeper reports that it forgets inodes ([`crate::Posix::forget`]). For
    /// other keepers no inodes are remembered.
    fn counts(&self) -> bool;

    /// Returns whether names may be kept.
    fn keeps_names(&self) -> bool;

    /// Invalidates all names.
    fn forget_names(&self);

    /// Invalidates the attributes of an inode, and with them its bytes. Returns whether the keeper
    /// knew the inode.
    fn forget_attributes(&self, ino: Ino) -> bool;
}

/// A keeper that keeps nothing, for servers whose requests end with their answers.
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

//! POSIX access control lists, encoded as in Linux's extended attributes: the version, 2, as four
//! bytes, then eight bytes per entry: tag (2), permissions (2) and id (4), little-endian.

use bytes::{BufMut, Bytes, BytesMut};
use cairn_base::{Error, Result};

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
/// Number of entries of one list at most: the list is part of an inode's row.
const ENTRIES: usize = 128;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

/// The user or group that an entry is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AclSubject {
    User(u32),
    Group(u32),
}

/// A list of permissions of users and groups. Permissions are one digit of a mode.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Acl {
    pub owner: u32,
    pub group: u32,
    pub other: u32,
    /// Upper bound of the permissions of the group and of all named users and groups.
    pub mask: Option<u32>,
    /// Named entries, users before groups.
    pub named: Vec<(AclSubject, u32)>,
}

impl Acl {
    /// Parses an attribute's value; `None` for a list without entries, which counts as no list.
    ///
    /// # Errors
    /// `NotImplemented` for another version, `TooLarge` beyond 128 entries, `Invalid` for a list
    /// that does not decide everything exactly once.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>> {
        let invalid = |what: &str| Error::Invalid(format!("access control list: {what}"));
        let (version, entries) = value.split_first_chunk().ok_or_else(|| invalid("too short"))?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(Error::NotImplemented(format!("access control list version {version}")));
        }
        let (entries, []) = entries.as_chunks::<ENTRY_BYTES>() else {
            return Err(invalid("ends within an entry"));
        };
        if entries.len() > ENTRIES {
            let what = format!("access control list of {} entries", entries.len());
            return Err(Error::TooLarge(what));
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let (mut acl, mut last) = (Acl::default(), 0);
        for [t0, t1, p0, p1, id @ ..] in entries {
            let (tag, perms) = (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*p0, *p1]));
            let (perms, id) = (u32::from(perms), u32::from_le_bytes(*id));
            let repeats = matches!(tag, USER | NAMED_GROUP);
            if perms > 7 || tag < last || (tag == last && !repeats) {
                return Err(invalid("entries out of order, or unknown permissions"));
            }
            last = tag;
            match tag {
                OWNER => acl.owner = perms,
                USER => acl.named.push((AclSubject::User(id), perms)),
                GROUP => acl.group = perms,
                NAMED_GROUP => acl.named.push((AclSubject::Group(id), perms)),
                MASK => acl.mask = Some(perms),
                OTHER => acl.other = perms,
                _ => return Err(invalid("an entry of an unknown kind")),
            }
        }
        let has = |wanted: u16| entries.iter().any(|entry| entry[..2] == wanted.to_le_bytes());
        if ![OWNER, GROUP, OTHER].into_iter().all(has) {
            return Err(invalid("it lacks the entry of the owner, the group or others"));
        }
        if acl.mask.is_none() && !acl.named.is_empty() {
            return Err(invalid("it names users or groups, but has no mask"));
        }
        Ok(Some(acl))
    }

    /// Encodes the list as the value of the attribute.
    pub fn encode(&self) -> Bytes {
        let mut value = BytesMut::with_capacity(4 + ENTRY_BYTES * (4 + self.named.len()));
        value.put_u32_le(VERSION);
        let mut entry = |tag: u16, perms: u32, id: u32| {
            value.put_u16_le(tag);
            value.put_u16_le(perms as u16);
            value.put_u32_le(id);
        };
        entry(OWNER, self.owner, NOBODY);
        for (named, perms) in &self.named {
            if let AclSubject::User(uid) = named {
                entry(USER, *perms, *uid);
            }
        }
        entry(GROUP, self.group, NOBODY);
        for (named, perms) in &self.named {
            if let AclSubject::Group(gid) = named {
                entry(NAMED_GROUP, *perms, *gid);
            }
        }
        if let Some(mask) = self.mask {
            entry(MASK, mask, NOBODY);
        }
        entry(OTHER, self.other, NOBODY);
        value.freeze()
    }

    /// Returns whether a mode can express the same permissions.
    pub fn is_a_mode(&self) -> bool {
        self.mask.is_none()
    }

    /// Permission bits of a file with this list. If there is a mask, it takes the place of the
    /// group's bits.
    pub fn permissions(&self) -> u32 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// Returns the list of a file with that mode: `chmod` changes its owner, mask and others.
    pub fn with_mode(&self, mode: u32) -> Acl {
        let mut acl = self.clone();
        (acl.owner, acl.other) = (mode >> 6 & 7, mode & 7);
        match &mut acl.mask {
            Some(mask) => *mask = mode >> 3 & 7,
            None => acl.group = mode >> 3 & 7,
        }
        acl
    }

    /// Returns the part of a directory's default list that applies to an inode made with `mode`
    /// there: nobody gets more than `mode` permits.
    pub fn limited_to(&self, mode: u32) -> Acl {
        let mut acl = self.clone();
        acl.owner &= mode >> 6;
        acl.other &= mode;
        *acl.mask.as_mut().unwrap_or(&mut acl.group) &= mode >> 3;
        acl
    }

    /// Returns whether a caller that is not the owner has the permissions `wanted`; `is_member`
    /// says which groups the caller is in. The first match decides: named users, the groups (any of
    /// them), others.
    pub fn permits(
        &self,
        uid: u32,
        is_member: impl Fn(u32) -> bool,
        gid: u32,
        wanted: u32,
    ) -> bool {
        let masked = |perms: u32| perms & self.mask.unwrap_or(7) & wanted == wanted;
        let user = self.named.iter().find(|(named, _)| *named == AclSubject::User(uid));
        if let Some((_, perms)) = user {
            return masked(*perms);
        }
        let own = is_member(gid).then_some(self.group);
        let named = self.named.iter().filter_map(|(named, perms)| match named {
            AclSubject::Group(gid) if is_member(*gid) => Some(*perms),
            _ => None,
        });
        let mut groups = own.into_iter().chain(named).peekable();
        match groups.peek() {
            None => self.other & wanted == wanted,
            Some(_) => groups.any(masked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(mask: u32, named: &[(AclSubject, u32)]) -> Acl {
        Acl { owner: 7, group: 5, other: 4, mask: Some(mask), named: named.to_vec() }
    }

    #[test]
    fn what_is_encoded_is_parsed_again() {
        let named = [(AclSubject::User(7), 6), (AclSubject::User(8), 0), (AclSubject::Group(9), 3)];
        for acl in [acl(7, &named), acl(0, &[]), Acl { mask: None, ..acl(0, &[]) }] {
            assert_eq!(Acl::parse(&acl.encode()).unwrap(), Some(acl));
        }
        assert_eq!(Acl::parse(&VERSION.to_le_bytes()).unwrap(), None);
    }

    #[test]
    fn anything_else_is_refused() {
        let whole = acl(7, &[(AclSubject::User(7), 6)]).encode();
        for length in 0..whole.len() {
            let cut = Acl::parse(&whole[..length]);
            assert!(cut.is_err() || length == 4, "{length} bytes: {cut:?}");
        }
        for at in (0..whole.len()).filter(|at| (at % 8 < 4) || *at < 12) {
            let mut changed = whole.to_vec();
            changed[at] ^= 0x80;
            let read = Acl::parse(&changed);
            let is_id = at >= 8 && at % 8 < 4;
            assert!(read.is_err() || is_id, "byte {at}: {read:?}");
        }
        let unmasked = Acl { mask: None, ..acl(0, &[(AclSubject::Group(1), 4)]) };
        assert_eq!(Acl::parse(&unmasked.encode()).unwrap_err().kind(), "invalid");
        let many: Vec<_> = (0..ENTRIES as u32).map(|id| (AclSubject::User(id), 4)).collect();
        assert_eq!(Acl::parse(&acl(7, &many).encode()).unwrap_err().kind(), "too_large");
    }

    #[test]
    fn the_first_that_fits_decides() {
        let named =
            [(AclSubject::User(1), 6), (AclSubject::Group(10), 4), (AclSubject::Group(11), 2)];
        let acl = acl(6, &named);
        let in_groups = |groups: &'static [u32]| move |gid: u32| groups.contains(&gid);
        assert!(acl.permits(1, in_groups(&[]), 99, 6));
        assert!(!acl.permits(1, in_groups(&[99]), 99, 1), "the user, not the group");
        assert!(acl.permits(2, in_groups(&[10]), 99, 4));
        assert!(acl.permits(2, in_groups(&[10, 11]), 99, 2));
        assert!(!acl.permits(2, in_groups(&[10, 11]), 99, 6), "no group has both");
        assert!(!acl.permits(2, in_groups(&[99]), 99, 1), "the mask takes it away");
        assert!(acl.permits(2, in_groups(&[]), 99, 4));
        assert!(!acl.permits(2, in_groups(&[]), 99, 2));
    }

    #[test]
    fn modes_and_lists_limit_each_other() {
        let acl = acl(6, &[(AclSubject::User(1), 6)]);
        assert_eq!(acl.permissions(), 0o764);
        assert_eq!(acl.with_mode(0o610), Acl { owner: 6, mask: Some(1), other: 0, ..acl.clone() });
        let limited = acl.limited_to(0o640);
        assert_eq!((limited.permissions(), limited.group), (0o640, 5));
        let plain = Acl { mask: None, ..acl };
        assert_eq!(plain.limited_to(0o644).permissions(), 0o644);
    }
}

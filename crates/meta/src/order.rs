//! The order in which clients of NFS list a directory, and the cookies of its entries.
//!
//! ```text
//!   63     62 ............ 8   7 ...... 0
//!   0      hash of the name    place        a cookie: after this entry the listing goes on
//! ```
//!
//! The order is that of a hash of the names, and of the names where hashes are equal. So a cookie
//! is a position in an order that no change of the directory changes: whether its entry is still
//! there does not matter, and neither does which process gave it.

use aws_lc_rs::digest;

/// Bits of a cookie for the place among entries with an equal hash.
const PLACE_BITS: u32 = 8;

/// Lowest cookie of an entry. A listing that goes on after a lower number begins with the first
/// entry.
pub const FIRST_COOKIE: u64 = 1 << PLACE_BITS;

/// A position in a directory: entries before it were listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cookie {
    pub hash: u64,
    /// Number of entries before this one with an equal hash. Two such entries are as good as never
    /// in one directory by accident, and more than 256 cannot be made.
    pub place: u8,
}

impl Cookie {
    pub fn from_number(number: u64) -> Cookie {
        Cookie { hash: number >> PLACE_BITS, place: number as u8 }
    }

    /// Returns the cookie as a number. It fits in 63 bits, since some clients treat it as signed.
    pub fn number(self) -> u64 {
        self.hash << PLACE_BITS | u64::from(self.place)
    }

    /// Returns the cookie of an entry that follows the entry with the cookie `self`.
    pub fn next(self, hash: u64) -> Cookie {
        let place = if hash == self.hash { self.place.saturating_add(1) } else { 0 };
        Cookie { hash, place }
    }
}

/// The cookie before that of the first entry: no name has the hash 0.
pub const BEGINNING: Cookie = Cookie { hash: 0, place: 0 };

/// Returns the hash of a name, with the slash of a directory: the first 55 bits of its SHA-256. Its
/// ordered entry has it in its key, and clients keep cookies, so it must never change.
pub fn hash_of(name: &[u8]) -> u64 {
    let hash = digest::digest(&digest::SHA256, name);
    let first = hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    (first >> (1 + PLACE_BITS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_cookies_stay_as_they_are() {
        // The first bytes of SHA-256 of "abc" are ba7816bf8f01cfea.
        assert_eq!(hash_of(b"abc"), 0xba78_16bf_8f01_cfea >> 9);
        let cookie = Cookie { hash: hash_of(b"abc"), place: 3 };
        assert_eq!(cookie.number(), (0xba78_16bf_8f01_cfea_u64 >> 9 << 8) + 3);
        assert_eq!(Cookie::from_number(cookie.number()), cookie);
        for name in 0..10_000_u32 {
            let number = BEGINNING.next(hash_of(&name.to_be_bytes())).number();
            assert!((FIRST_COOKIE..=i64::MAX as u64).contains(&number));
        }
    }

    #[test]
    fn names_with_equal_hashes_have_cookies_of_their_own() {
        let first = BEGINNING.next(7);
        let second = first.next(7);
        assert!(first < second && second < second.next(8));
        assert_eq!((first.place, second.place, second.next(8).place), (0, 1, 0));
    }
}

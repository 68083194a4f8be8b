//! Cookies of listings of directories that are not held open: a number for each name, the same at
//! all times and in all processes.

use std::collections::HashMap;

use bytes::Bytes;
use cairn_base::Ino;
use parking_lot::Mutex;

/// Number of names remembered, in each of two generations.
const NAMES: usize = 1 << 15;
/// Lowest number of a name.
pub const FIRST: u64 = 3;

/// Returns the number of a name: a hash (FNV-1a, its bits mixed) of the cursor after which a
/// listing continues. It fits in 63 bits, since some clients treat it as signed.
pub fn number_of(cursor: &[u8]) -> u64 {
    let hash = cursor.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((mixed ^ (mixed >> 32)) >> 1).max(FIRST)
}

/// Names that were listed recently, including those that are gone since.
#[derive(Default)]
pub struct Cookies(Mutex<[HashMap<(Ino, u64), Bytes>; 2]>);

impl Cookies {
    /// Remembers a name that is listed. Returns its number.
    pub fn give(&self, directory: Ino, cursor: Bytes) -> u64 {
        let number = number_of(&cursor);
        let mut generations = self.0.lock();
        generations[0].insert((directory, number), cursor);
        if generations[0].len() >= NAMES {
            generations.swap(0, 1);
            generations[0].clear();
        }
        number
    }

    /// Returns the name with a number, if it was listed recently.
    pub fn find(&self, directory: Ino, number: u64) -> Option<Bytes> {
        let generations = self.0.lock();
        generations.iter().find_map(|names| names.get(&(directory, number)).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_as_they_are() {
        // The numbers must not change: clients may have them from before an update.
        assert_eq!(number_of(b"a"), 0x177b_e898_b75c_37b8);
        assert_eq!(number_of("häuser/".as_bytes()), 0x10b4_9493_5be1_7ac7);
        for name in 0..10_000u32 {
            let number = number_of(&name.to_be_bytes());
            assert!((FIRST..=i64::MAX as u64).contains(&number));
        }
    }

    #[test]
    fn numbers_of_names_that_are_alike_differ() {
        let names = (0..200_000u32).map(|name| number_of(format!("file-{name:09}").as_bytes()));
        let numbers: std::collections::HashSet<u64> = names.collect();
        assert_eq!(numbers.len(), 200_000);
    }

    #[test]
    fn what_was_given_of_late_is_found_and_memory_is_bounded() {
        let cookies = Cookies::default();
        let name = |number: usize| Bytes::from(format!("name {number}"));
        let first = cookies.give(Ino(1), name(0));
        assert_eq!(cookies.find(Ino(1), first), Some(name(0)));
        assert_eq!(cookies.find(Ino(2), first), None, "another directory");
        for number in 1..3 * NAMES {
            let cookie = cookies.give(Ino(1), name(number));
            assert_eq!(cookies.find(Ino(1), cookie), Some(name(number)));
        }
        assert_eq!(cookies.find(Ino(1), first), None);
        let held: usize = cookies.0.lock().iter().map(HashMap::len).sum();
        assert!(held <= 2 * NAMES);
    }
}

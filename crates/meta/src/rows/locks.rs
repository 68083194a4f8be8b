//! Advisory locks.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer, put_varint, take_varint};
use cairn_base::{Result, SessionId};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Row, narrow, unexpected};

/// Count of numbers in the encoding of a lock.
const NUMBERS: usize = 6;

/// The kind of a lock: flock(2) and fcntl(2) know nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Space {
    /// Unknown kind, which conflicts with both kinds.
    #[default]
    Both,
    Fcntl,
    Flock,
}

impl Space {
    fn meets(self, other: Space) -> bool {
        self == other || self == Space::Both || other == Space::Both
    }

    fn number(self) -> u64 {
        match self {
            Space::Both => 0,
            Space::Fcntl => 1,
            Space::Flock => 2,
        }
    }

    fn of(number: u64) -> Result<Space> {
        match number {
            0 => Ok(Space::Both),
            1 => Ok(Space::Fcntl),
            2 => Ok(Space::Flock),
            other => Err(unexpected("space of a lock", other)),
        }
    }
}

/// A lock on a range of bytes of a file, as fcntl(2) has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lock {
    pub session: SessionId,
    /// Owner within the session, as numbered by its kernel.
    pub owner: u64,
    /// Process, as numbered by the machine of the session; for display.
    pub pid: u32,
    /// Exclusive: nobody else has any lock on the range. Otherwise nobody else has an exclusive
    /// one.
    pub exclusive: bool,
    pub start: u64,
    /// Last byte of the range.
    pub last: u64,
    pub space: Space,
}

/// The locks on a file: the row `l f <ino>`. Locks of one owner in one space neither overlap nor
/// could they be joined. They are ordered by owner, space, and bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Locks {
    pub held: Vec<Lock>,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Lock {
    fn is_of(&self, other: &Lock) -> bool {
        (self.session, self.owner) == (other.session, other.owner) && self.space.meets(other.space)
    }

    fn overlaps(&self, other: &Lock) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Returns whether the two locks cannot be held at the same time.
    pub fn conflicts(&self, other: &Lock) -> bool {
        !self.is_of(other)
            && self.space.meets(other.space)
            && self.overlaps(other)
            && (self.exclusive || other.exclusive)
    }
}

impl Locks {
    /// Takes a range away from its owner.
    pub fn release(&mut self, range: &Lock) {
        let held = std::mem::take(&mut self.held);
        for lock in held {
            if !lock.is_of(range) || !lock.overlaps(range) {
                self.held.push(lock);
                continue;
            }
            if lock.start < range.start {
                self.held.push(Lock { last: range.start - 1, ..lock });
            }
            if lock.last > range.last {
                self.held.push(Lock { start: range.last + 1, ..lock });
            }
        }
    }

    /// Gives a range to its owner, replacing the owner's former locks within it.
    pub fn grant(&mut self, lock: Lock) {
        self.release(&lock);
        self.held.push(lock);
        self.held.sort_unstable_by_key(|lock| (lock.session, lock.owner, lock.space, lock.start));
        self.held.dedup_by(|next, lock| {
            let joins = next.is_of(lock)
                && next.space == lock.space
                && next.exclusive == lock.exclusive
                && lock.last.checked_add(1) == Some(next.start);
            if joins {
                lock.last = next.last;
            }
            joins
        });
    }
}

impl Row for Locks {
    fn encode(&self) -> Bytes {
        let mut numbers = Vec::new();
        for lock in &self.held {
            let Lock { session, owner, pid, exclusive, start, last, space } = *lock;
            let kind = u64::from(exclusive) | space.number() << 1;
            for number in [session.0, owner, pid.into(), kind, start, last] {
                put_varint(&mut numbers, number);
            }
        }
        let mut writer = Writer::new(FORMAT);
        writer.bytes(1, &numbers).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Locks> {
        let mut locks = Locks::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            if field.tag != 1 {
                field.keep(&mut locks.unknown);
                continue;
            }
            let mut rest = &field.value[..];
            while !rest.is_empty() {
                let mut numbers = [0; NUMBERS];
                for number in &mut numbers {
                    *number = take_varint(&mut rest)?;
                }
                let [session, owner, pid, kind, start, last] = numbers;
                if start > last {
                    return Err(unexpected("lock", format!("{start} to {last}")));
                }
                let (session, pid) = (SessionId(session), narrow("lock", pid)?);
                let (exclusive, space) = (kind & 1 == 1, Space::of(kind >> 1)?);
                locks.held.push(Lock { session, owner, pid, exclusive, start, last, space });
            }
        }
        Ok(locks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    fn any_lock() -> impl Strategy<Value = Lock> {
        let range = (0..BYTES).prop_flat_map(|start| (Just(start), start..BYTES));
        let owner = (0..2u64, 0..3u64, any::<bool>());
        (owner, any::<bool>(), range).prop_map(|((session, owner, flock), exclusive, range)| {
            let (start, last) = range;
            let space = match owner {
                0 => Space::Both,
                _ if flock => Space::Flock,
                _ => Space::Fcntl,
            };
            Lock { session: SessionId(session), owner, pid: 1, exclusive, start, last, space }
        })
    }

    /// Returns the locks that an owner has on each byte.
    fn of_bytes(locks: &Locks, of: &Lock) -> Vec<Option<bool>> {
        let of_byte = |byte| {
            let mut held = locks.held.iter().filter(|lock| lock.is_of(of));
            let at = |lock: &&Lock| (lock.start..=lock.last).contains(&byte);
            held.find(at).map(|lock| lock.exclusive)
        };
        (0..BYTES).map(of_byte).collect()
    }

    proptest! {
        #[test]
        fn each_byte_is_as_it_was_asked_for_last(
            steps in proptest::collection::vec((any_lock(), any::<bool>()), 1..40),
        ) {
            let mut locks = Locks::default();
            for (lock, grant) in steps {
                let mut wanted = of_bytes(&locks, &lock);
                for byte in lock.start..=lock.last {
                    wanted[byte as usize] = grant.then_some(lock.exclusive);
                }
                if grant { locks.grant(lock) } else { locks.release(&lock) }
                prop_assert_eq!(of_bytes(&locks, &lock), wanted);
                prop_assert_eq!(&Locks::decode(&locks.encode()).unwrap(), &locks);
                for pair in locks.held.windows(2).filter(|pair| pair[0].is_of(&pair[1])) {
                    prop_assert!(pair[0].last < pair[1].start, "they overlap: {locks:?}");
                    let touches = pair[0].last + 1 == pair[1].start;
                    prop_assert!(!touches || pair[0].exclusive != pair[1].exclusive);
                }
            }
        }

        #[test]
        fn any_bytes_are_locks_or_an_error(bytes: Vec<u8>) {
            let _ = Locks::decode(&[&[FORMAT][..], &bytes].concat().into());
        }
    }

    #[test]
    fn the_end_of_all_bytes_is_no_end() {
        let all = Lock {
            session: SessionId(1),
            owner: 1,
            pid: 1,
            exclusive: true,
            start: 0,
            last: u64::MAX,
            space: Space::Both,
        };
        let mut locks = Locks::default();
        locks.grant(all);
        locks.grant(Lock { start: 10, ..all });
        assert_eq!(locks.held, [all]);
        locks.release(&Lock { start: 5, ..all });
        assert_eq!(locks.held, [Lock { last: 4, ..all }]);
    }

    #[test]
    fn what_is_locked_by_flock_is_not_by_fcntl() {
        let lock = |owner, space| Lock {
            session: SessionId(1),
            owner,
            pid: 1,
            exclusive: true,
            start: 0,
            last: 9,
            space,
        };
        for (one, other, conflicts) in [
            (Space::Flock, Space::Fcntl, false),
            (Space::Flock, Space::Flock, true),
            (Space::Fcntl, Space::Fcntl, true),
            (Space::Both, Space::Fcntl, true),
            (Space::Flock, Space::Both, true),
        ] {
            assert_eq!(lock(1, one).conflicts(&lock(2, other)), conflicts, "{one:?} {other:?}");
            assert!(!lock(1, one).conflicts(&lock(1, other)));
        }
        // One owner has a lock on each, and gives them back one by one.
        let mut locks = Locks::default();
        locks.grant(lock(1, Space::Flock));
        locks.grant(lock(1, Space::Fcntl));
        assert_eq!(locks.held.len(), 2);
        locks.release(&lock(1, Space::Flock));
        assert_eq!(locks.held, [lock(1, Space::Fcntl)]);
        locks.release(&lock(1, Space::Both));
        assert_eq!(locks, Locks::default());
    }
}

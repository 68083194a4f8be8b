//! Feeds arbitrary and slightly wrong bytes to every parser: none panics, and none accepts bytes
//! that it did not write.

use cairn_base::{BlockId, BodyId, GroupId, Owner, SessionId};
use proptest::prelude::*;

use super::Key;
use super::hint::{BlockEntry, Hint, HintEntry};
use super::record::{self, Kind, RecordHeader, RecordPlace, Tombstone};
use super::segment::SegmentHeader;

const CASES: u32 = 100_000;

fn quick() -> ProptestConfig {
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

fn key() -> impl Strategy<Value = Key> {
    (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(group, session, counter)| Key {
        group: GroupId(group),
        block: BlockId { session: SessionId(session), counter },
    })
}

fn owner() -> impl Strategy<Value = Owner> {
    (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(session, counter, chunk)| Owner {
        body: BodyId { session: SessionId(session), counter },
        chunk,
    })
}

fn header() -> impl Strategy<Value = RecordHeader> {
    let place = (any::<u32>(), any::<u64>(), any::<u64>())
        .prop_map(|(segment, salt, offset)| RecordPlace { segment, salt, offset });
    let rest = (any::<bool>(), any::<u64>(), any::<u64>(), 1..=4u32 << 20, any::<u32>());
    (place, key(), owner(), rest).prop_map(|(place, key, owner, rest)| RecordHeader {
        kind: if rest.0 { Kind::Block } else { Kind::Tombstones },
        place,
        key,
        owner,
        sequence: rest.1,
        synced: rest.2,
        length: rest.3,
        stored: if rest.0 && rest.1 % 2 == 0 { rest.3.div_ceil(2) } else { rest.3 },
        table_crc: rest.4,
    })
}

fn entry() -> impl Strategy<Value = HintEntry> {
    (any::<bool>(), key(), owner(), any::<u32>(), 1..=4u32 << 20, any::<u64>()).prop_map(
        |(block, key, owner, place, length, sequence)| {
            if block {
                let stored = if sequence % 2 == 0 { length.div_ceil(2) } else { length };
                let position = place;
                HintEntry::Block(BlockEntry { key, owner, position, length, stored, sequence })
            } else {
                HintEntry::Tombstone(Tombstone { key, segment: place, sequence })
            }
        },
    )
}

/// Changes some bytes. Returns whether any differs in the end.
fn spoil(bytes: &mut Vec<u8>, changes: &[(usize, u8)], len: usize) -> bool {
    let before = bytes.clone();
    for (at, value) in changes {
        let len = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at % len) {
            *byte ^= value;
        }
    }
    bytes.truncate(bytes.len() - len % (bytes.len() + 1) / 8);
    *bytes != before
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4)
}

proptest! {
    #![proptest_config(quick())]

    #[test]
    fn segment_header(number: u32, salt: u64, codecs: bool, changes in changes(), junk: [u8; 64]) {
        let header = SegmentHeader { cluster: [3; 16], disk: [4; 16], number, salt, codecs };
        let mut bytes = header.encode();
        prop_assert_eq!(SegmentHeader::decode(&bytes).unwrap(), Some(header));
        if spoil(&mut bytes, &changes, 0) {
            prop_assert_eq!(SegmentHeader::decode(&bytes).unwrap(), None);
        }
        prop_assert_eq!(SegmentHeader::decode(&junk).unwrap(), None);
    }

    #[test]
    fn record_header(
        header in header(), changes in changes(), cut: usize, junk in any::<[[u8; 32]; 5]>()
    ) {
        let mut bytes = header.encode();
        prop_assert_eq!(bytes.len(), record::HEADER_BYTES);
        prop_assert_eq!(RecordHeader::decode_at(&bytes, header.place), Some(header));
        if spoil(&mut bytes, &changes, cut) {
            prop_assert_eq!(RecordHeader::decode(&bytes), None);
        }
        let mut junk = junk.concat();
        prop_assert_eq!(RecordHeader::decode(&junk), None);
        // Repairs the checksum, so that the fields themselves are parsed.
        junk.truncate(record::HEADER_BYTES - 4);
        junk.splice(..8, *b"CrnR\x01\x01\x00\x01");
        super::seal(&mut junk);
        if let Some(header) = RecordHeader::decode(&junk) {
            prop_assert!(header.length as usize <= cairn_base::limits::BLOCK_BYTES);
        }
    }

    #[test]
    fn tombstones(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let all = Tombstone::decode_all(&data);
        prop_assert_eq!(all.is_some(), data.len() % record::TOMBSTONE_BYTES == 0);
        let mut back = Vec::new();
        all.into_iter().flatten().for_each(|tombstone| tombstone.encode(&mut back));
        prop_assert!(back.is_empty() || back == data);
    }

    #[test]
    fn checksum_table(
        table in proptest::collection::vec(any::<u8>(), 0..20),
        first in 0usize..6,
        data in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let good = record::table(&data);
        prop_assert!(record::verify(&good, 0, &data));
        prop_assert!(!record::verify(&good, first + 1, &data));
        let stored = table.get(first * 4..).is_some_and(|rest| rest.starts_with(&good));
        prop_assert!(!record::verify(&table, first, &data) || stored);
    }

    #[test]
    fn hint(
        entries in proptest::collection::vec(entry(), 0..6),
        changes in changes(),
        cut: usize,
        junk in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let hint = Hint { segment: 7, salt: 9, end: u64::MAX, entries };
        let mut bytes = hint.encode();
        prop_assert_eq!(Hint::decode(&bytes), Some(hint));
        if spoil(&mut bytes, &changes, cut) {
            prop_assert_eq!(Hint::decode(&bytes), None);
        }
        prop_assert_eq!(Hint::decode(&junk), None);
    }
}

//! The parsers of entries take any bytes without a panic and without large allocations.

use bytes::Bytes;
use cairn_meta::engine::Fence;
use cairn_meta::engine::raft::entry::{Entry, Members, Proposal, encode_pending, parse_entries};
use proptest::prelude::*;

use super::model::{batch, entry};
use crate::support::{delete, put};

/// One of each kind.
fn samples() -> Vec<Entry> {
    let fence = Fence { epoch: 3, batch: 9 };
    let members = Members { voters: vec![[1, 2].into(), [2, 3].into()], learners: [9].into() };
    vec![
        entry(1, 5, Proposal::Empty),
        batch(1, 6, fence, vec![put("a", "1"), delete("b")]),
        entry(2, 7, Proposal::TakeOver { batch: 17 }),
        entry(2, 8, Proposal::Members(members)),
        entry(4, 9, Proposal::GivenUp { epoch: 4 }),
    ]
}

fn bytes(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut out).unwrap());
    out
}

#[test]
fn what_is_written_is_read() {
    let body = bytes(&samples());
    assert_eq!(body.len(), samples().iter().map(Entry::encoded_bytes).sum::<usize>());
    assert_eq!(parse_entries(5, 5, &body.clone().into()).unwrap(), samples());
    for (index, body) in encode_pending(&samples()).unwrap() {
        let parsed = parse_entries(index, 1, &body.into()).unwrap();
        assert_eq!(parsed[0], samples()[index as usize - 5]);
    }
    for cut in 0..body.len() {
        assert!(parse_entries(5, 5, &body[..cut].to_vec().into()).is_err());
    }
    assert!(parse_entries(5, 4, &body.clone().into()).is_err());
    assert!(parse_entries(u64::MAX - 2, 5, &body.into()).is_err());
}

/// docs/format-engine.md.
#[test]
fn bytes_are_as_documented() {
    let fence = Fence { epoch: 3, batch: 9 };
    let hex = |entry| {
        let bytes = bytes(&[entry]);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(hex(entry(2, 1, Proposal::Empty)), "02000000000000000000000000000000");
    assert_eq!(
        hex(batch(2, 1, fence, vec![put("k", "v"), delete("d")])),
        "0200000000000000010000002300000003000000000000000900000000000000020000000100010000006b76\
         0100ffffffff64"
    );
    assert_eq!(
        hex(entry(2, 1, Proposal::TakeOver { batch: 5 })),
        "020000000000000002000000080000000500000000000000"
    );
    let members = Members { voters: vec![[1].into()], learners: [2].into() };
    assert_eq!(
        hex(entry(2, 1, Proposal::Members(members))),
        "0200000000000000030000001500000001010001000000000000000100\
         0200000000000000"
    );
    assert_eq!(
        hex(entry(2, 1, Proposal::GivenUp { epoch: 5 })),
        "020000000000000004000000080000000500000000000000"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), count in any::<u32>()) {
        let body = Bytes::from(bytes);
        if let Ok(entries) = parse_entries(1, count, &body) {
            prop_assert!(entries.len() * 16 <= body.len());
        }
        let _ = Members::parse(&body);
    }

    /// Sound entries with a few bytes changed.
    #[test]
    fn nearly_entries(place in 0..177usize, value in any::<u8>(), count in 0..7u32) {
        let mut body = bytes(&samples());
        let place = place % body.len();
        body[place] = value;
        if let Ok(entries) = parse_entries(5, count, &body.into()) {
            prop_assert_eq!(entries.len(), count as usize);
        }
    }
}

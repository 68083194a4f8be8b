//! Messages between members, and bytes that are none.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::path::Path;

use bytes::Bytes;
use cairn_meta::engine::Fence;
use cairn_meta::engine::raft::digest::{RowDigests, TableDigest};
use cairn_meta::engine::raft::entry::{EntryId, Members};
use cairn_meta::engine::raft::message::{
    AppendOutcome, Envelope, Message, Reply, SECTION_BYTES, encode, encode_reply, parse,
    parse_reply,
};
use cairn_meta::engine::raft::{Membership, SnapshotState, Vote};
use cairn_sim::golden::compare;
use proptest::prelude::*;

use super::model::batch;
use crate::support::{delete, put};

const PARTIES: Envelope = Envelope { generation: 7, from: 1, to: 2 };

fn all_kinds() -> Vec<Message> {
    let vote = Vote { term: 3, member: 1, committed: true };
    let id = |index| Some(EntryId { term: 2, index });
    let entries = (5..8)
        .map(|n| batch(2, n, Fence { epoch: 1, batch: n }, vec![put("a", "x"), delete("b")]))
        .collect();
    let members = Members { voters: vec![BTreeSet::from([1, 2, 3])], learners: [4].into() };
    let taken = SnapshotState {
        applied: EntryId { term: 2, index: 9 },
        fence: Fence { epoch: 1, batch: 8 },
        given_up: true,
        membership: Membership { entry: id(0), members },
    };
    let rows = vec![put("a", "x"), put("b", "")];
    vec![
        Message::Append { vote, before: id(4), committed: id(3), entries },
        Message::Append { vote, before: None, committed: None, entries: vec![] },
        Message::Vote { vote: Vote { committed: false, ..vote }, last: id(9) },
        Message::Ask { last: None },
        Message::Probe,
        Message::Begin { vote, transfer: 77, taken },
        Message::Page { transfer: 77, number: 0, rows },
        Message::End { vote, transfer: 77, pages: 1 },
        Message::HandOver { vote, last: id(9), begins: true },
        Message::HandOver { vote, last: None, begins: false },
        Message::Compare,
        Message::Digests,
    ]
}

fn digests() -> RowDigests {
    let digest = |rows| TableDigest { rows, sum: u64::MAX - rows };
    let tables = [(0, digest(1)), (b'i', digest(7)), (255, digest(9))].into();
    RowDigests { entry: EntryId { term: 2, index: 5 }, tables }
}

/// A table that comes twice, and tables in another order, are no digests.
#[test]
fn digests_have_each_table_once_in_order() {
    let bytes = encode_reply(&Reply::Digests(Some(digests())));
    let entry_end = 5 + 17 + 2;
    for (of, to) in [(1, 0), (0, 2), (2, 0)] {
        let mut wrong = bytes.to_vec();
        wrong[entry_end + of * 17] = bytes[entry_end + to * 17];
        assert!(parse_reply(&wrong).is_err(), "{of} {to}");
    }
}

fn all_replies() -> Vec<Reply> {
    let vote = Vote { term: 3, member: 0, committed: false };
    let id = Some(EntryId { term: 2, index: 5 });
    vec![
        Reply::Appended(AppendOutcome::All),
        Reply::Appended(AppendOutcome::UpTo(id)),
        Reply::Appended(AppendOutcome::UpTo(None)),
        Reply::Appended(AppendOutcome::Conflict),
        Reply::Appended(AppendOutcome::HigherVote(vote)),
        Reply::Voted { vote, granted: true, last: id },
        Reply::Voted { vote, granted: false, last: None },
        Reply::Asked { yes: true },
        Reply::Heard,
        Reply::Installed { vote },
        Reply::Superseded { generation: u64::MAX },
        Reply::Digests(None),
        Reply::Digests(Some(digests())),
    ]
}

#[test]
fn each_message_and_each_answer_is_read_as_it_was_written() {
    for message in all_kinds() {
        let bytes = encode(PARTIES, &message).unwrap();
        assert_eq!(parse(&bytes).unwrap(), (PARTIES, message));
    }
    for reply in all_replies() {
        assert_eq!(parse_reply(&encode_reply(&reply)).unwrap(), reply);
    }
    let refused = encode_reply(&Reply::Refused { reason: "é".repeat(4000) });
    let error = parse_reply(&refused).unwrap_err();
    assert!(error.kind() == "unavailable" && refused.len() < 2000, "{error}");
}

/// A member of this version and one of an earlier version understand each other.
#[test]
fn bytes_stay_as_they_are() {
    let mut text = String::new();
    let mut add = |of: &dyn Debug, bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{of:?}\n{hex}").unwrap();
    };
    for message in all_kinds() {
        add(&message, &encode(PARTIES, &message).unwrap());
    }
    for reply in all_replies() {
        add(&reply, &encode_reply(&reply));
    }
    let refused = Reply::Refused { reason: "no".into() };
    add(&refused, &encode_reply(&refused));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/raft/messages.txt");
    compare(&path, &text).expect("another version for messages with other bytes");
}

#[test]
fn what_is_cut_short_or_too_long_or_newer_is_refused() {
    for message in all_kinds() {
        let bytes = encode(PARTIES, &message).unwrap();
        for end in 0..bytes.len() {
            assert!(parse(&bytes.slice(..end)).is_err(), "{message:?} up to {end}");
        }
        let longer = Bytes::from([&bytes[..], b"x"].concat());
        assert!(parse(&longer).is_err(), "{message:?}");
        let newer = Bytes::from([&[2], &bytes[1..]].concat());
        let error = parse(&newer).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }
    for reply in all_replies() {
        let bytes = encode_reply(&reply);
        for end in 0..bytes.len() {
            assert!(parse_reply(&bytes[..end]).is_err(), "{reply:?} up to {end}");
        }
    }
    let rows = vec![put("a", &"x".repeat(SECTION_BYTES))];
    let page = Message::Page { transfer: 1, number: 0, rows };
    assert_eq!(encode(PARTIES, &page).unwrap_err().kind(), "too_large");
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(
        kind in 0u16..12,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        of in any::<prop::sample::Index>(),
    ) {
        let mut made = vec![1, 0];
        made.extend_from_slice(&kind.to_le_bytes());
        made.extend_from_slice(&bytes);
        let _ = parse(&made.clone().into());
        let _ = parse_reply(&made);
        let kinds = all_kinds();
        let mut bent = encode(PARTIES, of.get(&kinds)).unwrap().to_vec();
        for (at, with) in flips {
            let at = at.index(bent.len());
            bent[at] ^= with;
        }
        if let Ok(parsed) = parse(&bent.into()) {
            prop_assert_eq!(parse(&encode(parsed.0, &parsed.1).unwrap()).unwrap(), parsed);
        }
    }
}

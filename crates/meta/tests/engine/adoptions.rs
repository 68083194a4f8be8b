//! The rows of one server become those of a cluster, and no difference between them is overlooked.

use bytes::Bytes;
use cairn_base::{Capability, CapabilitySet, ClusterMap, Timestamp};
use cairn_meta::dump::{self, ClusterRows, RowDifference, RowFault};
use cairn_meta::engine::{Change, Engine, Memory};
use cairn_meta::rows::{Hold, Row, Session, StoreIdentity, Tally, decode_number, encode_number};
use cairn_meta::{capabilities, keys};

use crate::support::{all, commit, put};

const CLUSTER: u64 = 0xC1;

fn cluster_rows(capabilities: CapabilitySet) -> ClusterRows {
    let map = ClusterMap { replicas: 3, minimum: 1, capabilities, ..ClusterMap::default() };
    let (batch, ends) = (7, Timestamp::from_secs(7_258_118_400));
    let hold = Hold { owner: "test".into(), batch, ends, ..Hold::default() };
    ClusterRows { map, hold }
}

/// The rows of a server with more than one page of them.
fn server() -> Memory {
    let engine = Memory::new();
    let filler = (0..1200).map(|n| put(&format!("i{n:05}"), "inode"));
    let session = Session { owner: 0, ..Session::default() };
    let special: [Change; 4] = [
        (keys::owned_epoch(), Some(encode_number(5))),
        (keys::session(cairn_base::SessionId(9)), Some(session.encode())),
        (Bytes::from_static(b"Hordered"), Some(Bytes::from_static(b"x"))),
        (Bytes::from_static(b"ttally"), Some(Tally { entries: 3, ..Tally::default() }.encode())),
    ];
    let cluster = (keys::config("cluster"), Some(StoreIdentity::new(CLUSTER).encode()));
    commit(&engine, filler.chain(special).chain([cluster]).collect());
    capabilities::enable(&engine, Capability::RequiredFields).unwrap();
    engine
}

fn adopted(server: &Memory, rows: &ClusterRows) -> Memory {
    let mut bytes = Vec::new();
    dump::write(&*server.snapshot().unwrap(), &mut bytes, &mut |_| {}).unwrap();
    let engine = Memory::new();
    rows.adopt(&engine, &mut &bytes[..], &mut |_| {}).unwrap();
    engine
}

fn differences(server: &Memory, cluster: &Memory, rows: &ClusterRows) -> Vec<RowDifference> {
    let (server, cluster) = (server.snapshot().unwrap(), cluster.snapshot().unwrap());
    let mut found = Vec::new();
    dump::compare(&*server, &*cluster, rows, &mut |one| found.push(one), &mut |_| {}).unwrap();
    found
}

#[test]
fn all_rows_are_taken_over_and_two_are_added() {
    let server = server();
    let rows = cluster_rows(capabilities::enabled(&server).unwrap());
    let cluster = adopted(&server, &rows);
    assert_eq!(differences(&server, &cluster, &rows), []);
    let (before, after) = (all(&server), all(&cluster));
    // Without the ordered entry.
    assert_eq!(after.len(), before.len() + 1);
    assert!(capabilities::enabled(&cluster).unwrap().contains(Capability::RequiredFields));
    let identity = StoreIdentity::decode(&after[&keys::config("cluster")]).unwrap();
    assert_eq!(identity, StoreIdentity::new(CLUSTER));
    assert_eq!(decode_number(&after[&keys::owned_epoch()]).unwrap(), 0);
    let session = keys::session(cairn_base::SessionId(9));
    assert_eq!(after[&session], before[&session], "a session goes on as it is");
    assert!(cluster.fence().unwrap().batch > server.fence().unwrap().batch);
}

#[test]
fn each_difference_is_found() {
    let server = server();
    let rows = cluster_rows(CapabilitySet::NONE);
    let plant = |key: Bytes, row: Option<&'static [u8]>| {
        let cluster = adopted(&server, &rows);
        commit(&cluster, vec![(key.clone(), row.map(Bytes::from_static))]);
        let found = differences(&server, &cluster, &rows);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].key, key);
        found[0].fault
    };
    for key in ["i00000", "i00499", "i00500", "i01199"] {
        let key = Bytes::from(key);
        assert_eq!(plant(key.clone(), None), RowFault::Absent);
        assert_eq!(plant(key, Some(b"other")), RowFault::Altered);
    }
    for stray in [&b"A"[..], b"i005000", b"cmap0", b"z"] {
        assert_eq!(plant(Bytes::from(stray), Some(b"more")), RowFault::Stray);
    }
    for own in [keys::map(), keys::hold(dump::ADOPTION_HOLD), keys::config("cluster")] {
        assert_eq!(plant(own.clone(), None), RowFault::Absent);
        assert_eq!(plant(own, Some(b"other")), RowFault::Altered);
    }
}

#[test]
fn rows_of_a_cluster_are_no_rows_of_a_server() {
    let server = server();
    let rows = cluster_rows(CapabilitySet::NONE);
    let cluster = adopted(&server, &rows);
    let mut bytes = Vec::new();
    dump::write(&*cluster.snapshot().unwrap(), &mut bytes, &mut |_| {}).unwrap();
    let engine = Memory::new();
    let refused = rows.adopt(&engine, &mut &bytes[..], &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("of a cluster already"), "{refused}");
    assert!(!matches!(dump::contents(&engine).unwrap(), dump::Contents::Store(_)));
}

#[test]
fn a_server_that_goes_on_gives_no_number_again() {
    let server = server();
    commit(&server, vec![(keys::config("next_ino"), Some(encode_number(77)))]);
    let before = server.fence().unwrap();
    dump::skip_numbers(&server).unwrap();
    let rows = all(&server);
    let number = |name: &str| decode_number(&rows[&keys::config(name)]).unwrap();
    assert!(number("next_ino") > 77 + (1 << 30));
    assert!(number("next_user") > 1000 && number("next_export") > 1000);
    let after = server.fence().unwrap();
    assert!(after.batch > before.batch + (1 << 30) && after.epoch > before.epoch);
}

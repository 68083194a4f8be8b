//! Rows as they were stored by this version and the ones before.

use std::collections::BTreeSet;

use bytes::Bytes;
use cairn_base::Error;
use cairn_base::codec::Writer;
use cairn_meta::rows::FORMAT;
use cairn_sim::golden::{among, hex, unhex};

use crate::{folder, rows};

/// A kind of row that gets a further field gets a further line, and the former lines stay readable.
#[test]
fn every_row_that_was_ever_stored_is_read() {
    for row in rows::stored() {
        let path = folder("rows").join(format!("{}.txt", row.name));
        let lines = among(&path, &hex(&row.bytes)).unwrap_or_else(|wrong| panic!("{wrong}"));
        for line in lines {
            let stored = Bytes::from(unhex(&line));
            let again =
                (row.again)(&stored).unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert_eq!(hex(&again), line, "{}", row.name);
        }
    }
}

/// An older version that changes a row must destroy nothing of a newer one. Rows of extents have no
/// such fields: an unknown field may be an extent, and would be read as a hole.
#[test]
fn a_row_that_is_changed_keeps_the_fields_of_a_newer_version() {
    let mut newer = Writer::new(FORMAT);
    newer.number(90, 7).text(4000, "from the future");
    let unknown = newer.finish().slice(1..);
    let mut changed = BTreeSet::new();
    for row in rows::stored() {
        let future = Bytes::from([&row.bytes[..], &unknown].concat());
        if row.name == "Extents" {
            let error = (row.again)(&future).unwrap_err();
            assert!(matches!(error, Error::NotImplemented(_)), "{error}");
            changed.insert(row.name);
            continue;
        }
        assert_eq!((row.again)(&future).unwrap(), future, "{}", row.name);
        let other = (row.change)(&future).unwrap();
        assert_ne!(other, future, "{} is not changed", row.name);
        assert!(other.ends_with(&unknown), "{}", row.name);
        let without = other.slice(..other.len() - unknown.len());
        assert_eq!((row.change)(&row.bytes).unwrap(), without, "{}", row.name);
        changed.insert(row.name);
    }
    assert_eq!(changed, rows::NAMES.into_iter().collect());
}

#[test]
fn a_row_that_is_cut_is_an_error_or_a_row() {
    for row in rows::stored() {
        for end in 0..row.bytes.len() {
            if let Ok(cut) = (row.again)(&row.bytes.slice(..end)) {
                assert_eq!((row.again)(&cut).unwrap(), cut, "{} cut at {end}", row.name);
            }
        }
    }
}

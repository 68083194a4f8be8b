//! Listings in an order that no change of the directory changes, with ordered entries and without.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cairn_base::Ino;
use cairn_meta::keys;
use cairn_meta::ops::link::Link;
use cairn_meta::ops::order_directory::OrderDirectory;
use cairn_meta::ops::readdir_in_order::{OrderedPage, ReaddirInOrder, SORTED_ENTRIES};
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::rmdir::Rmdir;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::order::{Cookie, hash_of};
use cairn_meta::rows::{BucketKind, Entry, Kind, MasterEpochs, OrderStage, Row, Tally};

use crate::harness::Store;

fn page(store: &mut Store, ino: Ino, after: u64, limit: usize) -> Option<OrderedPage> {
    store.run(ReaddirInOrder { ino, after, limit, attributes: true }).unwrap()
}

/// A change between two pages, which sees the entries that were listed.
type Between<'a> = dyn FnMut(&mut Store, &[(Bytes, Kind)]) + 'a;

/// Lists a directory page by page. `between` is called after each page, with the names in it.
fn list(store: &mut Store, ino: Ino, limit: usize, between: &mut Between<'_>) -> Vec<Bytes> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let page = page(store, ino, after, limit).unwrap();
        let found: Vec<(Bytes, Kind)> =
            page.entries.iter().map(|one| (one.listed.name.clone(), one.listed.kind)).collect();
        let cookies: Vec<u64> = page.entries.iter().map(|one| one.cookie).collect();
        assert!(cookies.is_sorted_by(|one, next| one < next));
        assert!(cookies.first().is_none_or(|first| *first > after));
        names.extend(found.iter().map(|(name, _)| name.clone()));
        between(store, &found);
        let Some(next) = page.next else { return names };
        after = next;
    }
}

fn order(store: &mut Store, ino: Ino) -> u32 {
    let mut steps = 1;
    while !store.run(OrderDirectory { ino }).unwrap() {
        steps += 1;
    }
    steps
}

fn ordered(store: &Store, ino: Ino) -> BTreeMap<Bytes, (Ino, Kind)> {
    let (start, end) = keys::ordered_from(ino, 0);
    let rows = store.rows.range(start..end);
    let parsed = rows.map(|(key, row)| {
        let (_, hash, name) = keys::ordered_parts(key).unwrap();
        assert_eq!(hash, hash_of(&name));
        let Entry { ino, kind, .. } = Entry::decode(row).unwrap();
        (name, (ino, kind))
    });
    parsed.collect()
}

/// Checks that the ordered entries of a directory are its entries.
pub fn check_ordered(store: &Store, ino: Ino) {
    let (start, end) = keys::entries_from(ino, b"");
    let entries = store.rows.range(start..end).map(|(key, row)| {
        let Entry { ino, kind, .. } = Entry::decode(row).unwrap();
        (keys::entry_name(key), (ino, kind))
    });
    let entries: BTreeMap<Bytes, (Ino, Kind)> = entries.collect();
    assert_eq!(ordered(store, ino), entries, "ordered entries of {ino}");
}

fn long(text: &str) -> String {
    format!("{}{text}", "x".repeat(200))
}

fn remove(store: &mut Store, parent: Ino, name: &[u8], kind: Kind) {
    let name = name.to_vec();
    match kind {
        Kind::Directory => store.run(Rmdir { parent, name }).map(drop),
        _ => store.run(Unlink { parent, name }).map(drop),
    }
    .unwrap();
}

/// Makes names that stay, and one in three that goes.
fn fill(store: &mut Store, top: Ino, count: u64) -> BTreeSet<Bytes> {
    let mut stay = BTreeSet::new();
    for number in 0..count {
        let goes = number % 3 == 0;
        let name = long(&format!("{} {number}", if goes { "goes" } else { "stays" }));
        match number % 10 {
            0 => drop(store.directory(top, &name)),
            _ => drop(store.file(top, &name)),
        }
        if !goes {
            stay.insert(Bytes::from(name));
        }
    }
    stay
}

/// Removes and renames what was listed and need not stay, and makes new names.
fn churn(store: &mut Store, top: Ino, found: &[(Bytes, Kind)], made: &mut u64) {
    for (name, kind) in found.iter().filter(|(name, _)| !name[200..].starts_with(b"stays")) {
        *made += 1;
        let target = long(&format!("new {made}")).into_bytes();
        if (*made).is_multiple_of(3) {
            let (mode, source_name) = (RenameMode::NoReplace, name.to_vec());
            let (source_parent, target_parent, target_name) = (top, top, target);
            let rename = Rename { source_parent, source_name, target_parent, target_name, mode };
            store.run(rename).unwrap();
        } else {
            remove(store, top, name, *kind);
        }
    }
}

fn stays_are_listed_once(count: u64, limit: usize) {
    let mut store = Store::new(count);
    store.forgetful = false;
    let top = store.bucket("bucket", BucketKind::Posix);
    let stay = fill(&mut store, top, count);
    let mut made = 0;
    if count > SORTED_ENTRIES {
        assert_eq!(page(&mut store, top, 0, 10), None);
        assert!(order(&mut store, top) > 2);
    }
    let listed = list(&mut store, top, limit, &mut |store, found| {
        churn(store, top, found, &mut made);
    });
    let all: BTreeSet<&Bytes> = listed.iter().collect();
    assert!(stay.iter().all(|name| all.contains(name)));
    let stayed = listed.iter().filter(|name| name[200..].starts_with(b"stays")).count();
    assert_eq!(stayed, stay.len(), "a name is listed twice");
    assert!(made > count / 4, "names go while they are listed");
}

#[test]
fn names_that_stay_are_listed_once_in_a_small_directory() {
    stays_are_listed_once(200, 7);
}

#[test]
fn names_that_stay_are_listed_once_in_a_large_directory() {
    stays_are_listed_once(2 * SORTED_ENTRIES + 500, 90);
}

#[test]
fn ordered_entries_follow_their_entries_from_the_first_step_on() {
    let mut store = Store::new(3);
    store.forgetful = false;
    let top = store.bucket("bucket", BucketKind::Posix);
    let names = fill(&mut store, top, 2 * SORTED_ENTRIES + 100);
    let first = names.first().unwrap().to_vec();
    let last = names.last().unwrap().to_vec();
    let ino = store.file(top, "zz");
    let mut steps = 0;
    loop {
        steps += 1;
        let link = Link { ino, parent: top, name: format!("link {steps}").into_bytes() };
        store.run(link).unwrap();
        store.file(top, &format!("zzz {steps}"));
        if store.run(OrderDirectory { ino: top }).unwrap() {
            break;
        }
        match steps {
            1 => remove(&mut store, top, &first, Kind::File),
            2 => remove(&mut store, top, &last, Kind::File),
            _ => {}
        }
    }
    assert!(steps > 2);
    check_ordered(&store, top);
    assert!(store.run(OrderDirectory { ino: top }).unwrap(), "it is done");
    // What is ordered is what is sorted.
    let all = list(&mut store, top, 400, &mut |_, _| {});
    let mut sorted: Vec<Bytes> = ordered(&store, top).into_keys().collect();
    sorted.sort_by_key(|name| hash_of(name));
    for name in &mut sorted {
        let bytes = name.strip_suffix(b"/").map_or(name.len(), <[u8]>::len);
        name.truncate(bytes);
    }
    assert_eq!(all, sorted);
    // The last entry takes the order with it.
    loop {
        let page = page(&mut store, top, 0, 1000).unwrap();
        for one in &page.entries {
            remove(&mut store, top, &one.listed.name, one.listed.kind);
        }
        if page.next.is_none() {
            break;
        }
    }
    let tally = Tally::decode(&store.rows[&keys::tally(top)]).unwrap();
    assert_eq!((tally.entries, tally.order), (0, None));
    assert!(ordered(&store, top).is_empty());
}

#[test]
fn an_order_from_before_a_master_that_kept_none_is_made_anew() {
    let mut store = Store::new(4);
    store.forgetful = false;
    let top = store.bucket("bucket", BucketKind::Posix);
    let names = fill(&mut store, top, SORTED_ENTRIES + 100);
    let epochs = |ordered_since| {
        let row = MasterEpochs { ordered_since, ..MasterEpochs::default() };
        (keys::owned_epoch(), row.encode())
    };
    store.rows.extend([epochs(3)]);
    order(&mut store, top);
    // That master removes an entry, and nothing else.
    let gone = names.first().unwrap();
    store.rows.remove(&keys::file_entry(top, gone));
    store.rows.extend([epochs(5)]);
    assert_eq!(page(&mut store, top, 0, 10), None);
    order(&mut store, top);
    check_ordered(&store, top);
    let tally = Tally::decode(&store.rows[&keys::tally(top)]).unwrap();
    let order = tally.order.unwrap();
    assert_eq!((order.since, order.stage), (5, OrderStage::Complete));
    assert!(!list(&mut store, top, 300, &mut |_, _| {}).contains(gone));
}

#[test]
fn entries_with_equal_hashes_are_told_apart() {
    let mut store = Store::new(5);
    store.forgetful = false;
    let top = store.bucket("bucket", BucketKind::Posix);
    fill(&mut store, top, SORTED_ENTRIES + 1);
    order(&mut store, top);
    // As if the names had one hash.
    let (start, end) = keys::ordered_from(top, 0);
    let rows: Vec<(Bytes, Bytes)> =
        store.rows.range(start..end).map(|(key, row)| (key.clone(), row.clone())).collect();
    let first = keys::ordered_parts(&rows[0].0).unwrap().1;
    for (key, row) in &rows[..5] {
        let (_, _, name) = keys::ordered_parts(key).unwrap();
        store.rows.remove(key);
        store.rows.insert(keys::ordered_entry(top, first, &name), row.clone());
    }
    for limit in 1..7 {
        let (mut listed, mut after) = (Vec::new(), 0);
        while listed.len() < 7 {
            let page = page(&mut store, top, after, limit).unwrap();
            listed.extend(page.entries.into_iter().map(|one| (one.cookie, one.listed.name)));
            after = page.next.unwrap();
        }
        let places: Vec<u8> =
            listed.iter().take(6).map(|(number, _)| Cookie::from_number(*number).place).collect();
        assert_eq!(places, [0, 1, 2, 3, 4, 0]);
        let names: BTreeSet<&Bytes> = listed.iter().map(|(_, name)| name).collect();
        assert_eq!(names.len(), listed.len());
    }
}

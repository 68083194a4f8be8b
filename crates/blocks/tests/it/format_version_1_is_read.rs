//! The fixture was written by the first version of the format. It never changes.

use std::path::{Path, PathBuf};

use cairn_base::Disk;
use cairn_blocks::Blocks;
use cairn_sim::SimDisk;

use crate::support::{GROUP, id, is_there, open, put, run};

const LENGTHS: [usize; 5] = [1, 364, 700, 5000, 17_000];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

fn load(names: &[&str]) -> SimDisk {
    let disk = SimDisk::new(1);
    for name in names {
        let bytes = std::fs::read(fixture().join(name)).unwrap();
        disk.create(name).unwrap().write_at(&[&bytes], 0).unwrap();
    }
    disk
}

#[test]
fn with_and_without_its_hint() {
    for names in [&["00000001.seg", "00000001.hint"][..], &["00000001.seg"][..]] {
        let store = open(&load(names));
        let report = store.open_report();
        assert_eq!((report.damaged_segments, report.torn_records), (0, 0));
        assert_eq!(report.scanned_segments, 2 - names.len() as u64);
        for (counter, len) in LENGTHS.into_iter().enumerate() {
            assert_eq!(is_there(&store, counter as u64, len), counter != 2);
        }
    }
}

/// Writes what the fixture is made of; today's writer must still write the very same bytes.
#[test]
fn and_is_what_is_written_today() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        for (counter, len) in LENGTHS.into_iter().enumerate() {
            put(&store, counter as u64, len).await.unwrap();
        }
        store.delete(GROUP, &[id(2)]).await.unwrap();
    });
    store.close().unwrap();
    for name in ["00000001.seg", "00000001.hint"] {
        let bytes = disk.contents(name).unwrap();
        if std::env::var_os("CAIRN_WRITE_FIXTURE").is_some() {
            std::fs::create_dir_all(fixture()).unwrap();
            std::fs::write(fixture().join(name), &bytes).unwrap();
        }
        assert!(bytes == std::fs::read(fixture().join(name)).unwrap(), "{name} differs");
    }
}

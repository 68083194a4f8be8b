use cairn_base::Disk;
use cairn_base::disk::read_exact_at;
use cairn_sim::SimDisk;

const SEEDS: u64 = 300;

fn contents(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    disk.contents(name).ok()
}

#[test]
fn what_was_synced_stays() {
    let disk = SimDisk::new(1);
    let file = disk.create("a").unwrap();
    file.write_at(&[&[7; 2000]], 100).unwrap();
    file.sync_data().unwrap();
    disk.sync().unwrap();
    file.write_at(&[&[8; 512]], 4096).unwrap();
    for seed in 0..SEEDS {
        let after = contents(&disk.crash_image(seed), "a").unwrap();
        assert_eq!(after[100..2100], [7; 2000]);
        assert!(after.len() == 2100 || after.len() == 4608);
    }
}

#[test]
fn sectors_are_kept_dropped_and_torn_one_by_one() {
    let disk = SimDisk::new(1);
    let file = disk.create("a").unwrap();
    file.write_at(&[&[1; 1024]], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync().unwrap();
    file.write_at(&[&[2; 1024]], 0).unwrap();
    file.write_at(&[&[3; 1024]], 0).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let after = contents(&disk.crash_image(seed), "a").unwrap();
        let kind = |sector: &[u8]| {
            if sector.iter().all(|&byte| byte == sector[0]) { sector[0] } else { 99 }
        };
        seen.insert((kind(&after[..512]), kind(&after[512..])));
    }
    for wanted in [(1, 1), (3, 3), (1, 3), (3, 1), (2, 3), (1, 99)] {
        assert!(seen.contains(&wanted), "{wanted:?} not in {seen:?}");
    }
}

#[test]
fn names_last_once_synced() {
    let disk = SimDisk::new(1);
    disk.create("old").unwrap();
    disk.sync().unwrap();
    disk.rename("old", "new").unwrap();
    disk.create("other").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let mut names = disk.crash_image(seed).list().unwrap();
        names.sort();
        seen.insert(names.join(" "));
    }
    assert_eq!(seen, ["new", "new other", "old", "old other"].map(String::from).into());
    disk.sync().unwrap();
    for seed in 0..SEEDS {
        assert_eq!(disk.crash_image(seed).list().unwrap(), ["new", "other"]);
    }
}

#[test]
fn a_failed_sync_leaves_its_sectors_in_doubt_for_good() {
    let disk = SimDisk::new(1);
    let file = disk.create("a").unwrap();
    file.write_at(&[&[1; 512]], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync().unwrap();
    file.write_at(&[&[2; 512]], 0).unwrap();
    disk.add_fault(cairn_sim::Fault::once(Some(cairn_sim::Call::SyncData), 0));
    let other = disk.open("a").unwrap();
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert!(other.sync_data().is_err(), "every open file hears of it");
    other.sync_data().unwrap();
    let mut buf = [0; 512];
    read_exact_at(&*file, &mut buf, 0).unwrap();
    assert_eq!(buf, [2; 512]);
    assert!((0..SEEDS).any(|seed| contents(&disk.crash_image(seed), "a").unwrap()[0] == 1));
    file.write_at(&[&[4; 512]], 0).unwrap();
    file.sync_data().unwrap();
    assert!((0..SEEDS).all(|seed| contents(&disk.crash_image(seed), "a").unwrap() == [4; 512]));
}

#[test]
fn a_killed_process_loses_nothing() {
    let disk = SimDisk::new(1);
    let file = disk.create("a").unwrap();
    file.write_at(&[b"hello"], 0).unwrap();
    let after = disk.kill();
    file.write_at(&[b"HELLO"], 0).unwrap();
    assert_eq!(contents(&after, "a").unwrap(), b"hello");
}

#[test]
fn a_recording_has_every_sync_and_mark() {
    let disk = SimDisk::new(1);
    disk.record();
    let file = disk.create("a").unwrap();
    file.sync_data().unwrap();
    disk.mark(5);
    disk.sync().unwrap();
    let marks: Vec<u64> = disk.recorded().iter().map(|snapshot| snapshot.mark).collect();
    assert_eq!(marks, [0, 5, 5]);
}

#[test]
fn a_cut_file_does_not_get_its_old_end_back() {
    let disk = SimDisk::new(1);
    let file = disk.create("a").unwrap();
    file.write_at(&[&[1; 2048]], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync().unwrap();
    file.set_len(512).unwrap();
    file.set_len(2048).unwrap();
    file.sync_data().unwrap();
    let after = contents(&disk.crash_image(3), "a").unwrap();
    assert_eq!(after[512..], [0; 1536]);
}

#[test]
fn a_removed_file_is_kept_as_long_as_it_may_be_needed() {
    let disk = SimDisk::new(1);
    let write = |name: &str| {
        let file = disk.create(name).unwrap();
        file.write_at(&[&[1; 8192]], 0).unwrap();
        file.sync_data().unwrap();
        file
    };
    drop((write("a"), write("b")));
    let open = write("c");
    disk.sync().unwrap();
    assert_eq!(disk.held_bytes(), 3 * 8192);
    // A power cut may bring them back.
    ["a", "c"].iter().for_each(|name| disk.remove(name).unwrap());
    assert_eq!(disk.held_bytes(), 3 * 8192);
    disk.sync().unwrap();
    assert_eq!(disk.held_bytes(), 2 * 8192);
    let mut bytes = [0; 8192];
    assert_eq!(open.read_at(&mut bytes, 0).unwrap(), 8192);
    assert_eq!(bytes, [1; 8192]);
    drop(open);
    assert_eq!(disk.held_bytes(), 8192);
    // Another file takes the name.
    drop(write("d"));
    disk.rename("d", "b").unwrap();
    assert_eq!(disk.held_bytes(), 2 * 8192);
    disk.sync().unwrap();
    assert_eq!(disk.held_bytes(), 8192);
    assert_eq!(disk.contents("b").unwrap(), [1; 8192]);
}

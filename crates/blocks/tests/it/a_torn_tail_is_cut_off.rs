use cairn_base::Disk;
use cairn_blocks::Blocks;
use cairn_sim::SimDisk;

use crate::support::{GROUP, id, is_there, open, put, run};

const SEGMENT: &str = "00000001.seg";
/// The last record: of 17,000 bytes, so that it has two sub-blocks.
const LAST: u64 = 3;
const LENGTHS: [usize; 4] = [700, 5000, 64, 17_000];

/// A disk whose last record begins at the returned offset and ends at the other.
fn sample() -> (SimDisk, usize, usize) {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        for (counter, len) in LENGTHS.into_iter().enumerate() {
            put(&store, counter as u64, len).await.unwrap();
        }
    });
    let sectors = |len: usize| (144 + 4 * len.div_ceil(16 << 10) + len).div_ceil(512) * 512;
    let start = 8192 + LENGTHS[..3].iter().map(|len| sectors(*len)).sum::<usize>();
    (disk.kill(), start, start + sectors(LENGTHS[3]))
}

/// `cut` bytes of the last record reached the disk, then zeros or garbage.
fn check(disk: &SimDisk, cut: usize, end: usize, garbage: bool) {
    let disk = disk.kill();
    let rest = vec![if garbage { 0xA5 } else { 0 }; end - cut];
    disk.overwrite(SEGMENT, cut as u64, &rest).unwrap();
    for round in 0..2 {
        let store = open(&disk);
        assert_eq!(store.open_report().damaged_segments, 0);
        for (counter, len) in LENGTHS.into_iter().enumerate().take(3) {
            assert!(is_there(&store, counter as u64, len), "cut at {cut}");
        }
        let last = is_there(&store, LAST, LENGTHS[3]);
        assert_eq!(last, round == 1, "cut at {cut}");
        if round == 0 {
            run(async {
                put(&store, LAST, LENGTHS[3]).await.unwrap();
                store.close().unwrap();
            });
        }
    }
}

#[test]
fn at_every_sector() {
    let (disk, start, end) = sample();
    for cut in (start..end - 511).step_by(512) {
        check(&disk, cut, end, false);
        check(&disk, cut, end, true);
    }
}

#[test]
fn at_every_byte_of_the_header_and_the_table() {
    let (disk, start, end) = sample();
    for cut in start..start + 160 {
        check(&disk, cut, end, false);
        check(&disk, cut, end, true);
    }
}

#[test]
fn when_the_file_is_cut_short() {
    let (disk, start, _) = sample();
    for len in [start, start + 1, start + 143, start + 512, start + 9000] {
        let disk = disk.kill();
        disk.open(SEGMENT).unwrap().set_len(len as u64).unwrap();
        let store = open(&disk);
        assert!(is_there(&store, 2, LENGTHS[2]));
        assert!(!is_there(&store, LAST, LENGTHS[3]));
    }
}

#[test]
fn but_a_broken_record_in_the_middle_is_damage_and_costs_no_other() {
    let (disk, _, _) = sample();
    disk.overwrite(SEGMENT, 8192, &[0xFF; 512]).unwrap();
    let store = open(&disk);
    assert_eq!(store.open_report().damaged_segments, 1);
    assert!(!is_there(&store, 0, LENGTHS[0]));
    for (counter, len) in LENGTHS.into_iter().enumerate().skip(1) {
        assert!(is_there(&store, counter as u64, len));
    }
    run(async {
        let usage = store.usage().await.unwrap();
        assert_eq!((usage.blocks, usage.damaged_segments), (3, 1));
        // Damaged blocks stay for a repair.
        store.delete(GROUP, &[id(1), id(2), id(3)]).await.unwrap();
        assert_eq!(store.compact(false).unwrap().segments_removed, 0);
    });
}

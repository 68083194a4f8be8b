use cairn_blocks::Blocks;
use cairn_sim::SimDisk;

use crate::support::{GROUP, id, is_there, open, put, run};

const LEN: usize = 3000;

#[test]
fn and_what_lives_stays() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        for counter in 0..200 {
            put(&store, counter, LEN).await.unwrap();
        }
        let before = disk.used_bytes();
        let gone: Vec<_> = (0..200).filter(|counter| counter % 5 != 0).map(id).collect();
        store.delete(GROUP, &gone).await.unwrap();
        let planned = store.compact(true).unwrap();
        assert!(planned.segments_removed >= 9, "{planned:?}");
        assert_eq!(disk.used_bytes(), before);
        let report = store.compact(false).unwrap();
        assert!(report.moved_blocks >= 30 && report.segments_removed >= 9, "{report:?}");
        // Once the dead segments are gone, so are their tombstones.
        store.compact(false).unwrap();
        assert!(disk.used_bytes() < before / 2, "{} of {before}", disk.used_bytes());
    });
    for disk in [disk.crash_image(1), disk.kill()] {
        let store = open(&disk);
        for counter in 0..200 {
            assert_eq!(is_there(&store, counter, LEN), counter % 5 == 0);
        }
    }
}

#[test]
fn without_end_in_bounded_space() {
    let disk = SimDisk::new(1);
    let mut store = open(&disk);
    run(async {
        for round in 0..60u64 {
            for n in 0..20 {
                put(&store, round * 20 + n, LEN).await.unwrap();
            }
            if round >= 3 {
                let gone: Vec<_> = (0..20).map(|n| id((round - 3) * 20 + n)).collect();
                store.delete(GROUP, &gone).await.unwrap();
            }
            store.compact(false).unwrap();
            if round % 7 == 0 {
                store.close().unwrap();
                store = open(&disk);
            }
            assert!(disk.used_bytes() < 1 << 20, "round {round}: {}", disk.used_bytes());
        }
    });
    for counter in 0..1200 {
        assert_eq!(is_there(&store, counter, LEN), counter >= 57 * 20, "{counter}");
    }
}

#[test]
fn but_not_what_is_corrupt() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        for counter in 0..15 {
            put(&store, counter, LEN).await.unwrap();
        }
        store.close().unwrap();
        disk.flip_bit("00000001.seg", 8192 + 2000, 1).unwrap();
        let store = open(&disk);
        let report = store.scrub(|_, _| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!((report.blocks, report.sick.len()), (15, 1));
        assert_eq!(report.sick[0].block, id(0));
        assert_eq!(report.sick[0].owner, crate::support::owner(0));
        assert!(store.verify(GROUP, id(0)).is_err() && store.verify(GROUP, id(1)).is_ok());
        let gone: Vec<_> = (2..15).map(id).collect();
        store.delete(GROUP, &gone).await.unwrap();
        let report = store.compact(false).unwrap();
        assert_eq!((report.corrupt_blocks, report.segments_removed), (1, 0));
        assert!(is_there(&store, 1, LEN));
        let sick = store.get(GROUP, id(0), 0..1).await;
        assert!(matches!(sick, Err(cairn_base::Error::Corrupt { .. })), "{sick:?}");
        store.delete(GROUP, &[id(0)]).await.unwrap();
        assert_eq!(store.compact(false).unwrap().segments_removed, 1);
        assert!(is_there(&store, 1, LEN));
    });
}

use bytes::Bytes;
use cairn_base::limits::{BLOCK_BYTES, SUB_BLOCK_BYTES};
use cairn_base::{BlockId, Error, GroupId, SessionId};
use cairn_blocks::{BlockInfo, Blocks};
use cairn_sim::SimDisk;

use crate::support::{GROUP, bytes, id, is_there, open, owner, put, run};

const LENGTHS: [usize; 10] =
    [1, 2, 363, 364, 365, 512, SUB_BLOCK_BYTES, SUB_BLOCK_BYTES + 1, 300_000, BLOCK_BYTES];

#[test]
fn whole_after_writing_closing_and_crashing() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        for (counter, len) in LENGTHS.into_iter().enumerate() {
            put(&store, counter as u64, len).await.unwrap();
        }
    });
    let check = |disk: &SimDisk, scanned: bool| {
        let store = open(disk);
        for (counter, len) in LENGTHS.into_iter().enumerate() {
            assert!(is_there(&store, counter as u64, len));
        }
        let report = store.open_report();
        assert_eq!((report.blocks, report.damaged_segments), (LENGTHS.len() as u64, 0));
        assert_eq!(report.scanned_segments > 0, scanned);
    };
    check(&disk.crash_image(3), true);
    store.close().unwrap();
    check(&disk.crash_image(3), false);
}

#[test]
fn in_every_range() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let len = 5 * SUB_BLOCK_BYTES as u32 + 100;
    let edges: Vec<u32> = (0..=5)
        .flat_map(|unit| [-1i64, 0, 1].map(|by| i64::from(unit) * SUB_BLOCK_BYTES as i64 + by))
        .chain([i64::from(len) - 1, i64::from(len)])
        .filter_map(|edge| u32::try_from(edge).ok())
        .collect();
    run(async {
        put(&store, 9, len as usize).await.unwrap();
        let whole = bytes(9, len as usize);
        for cold in [false, true] {
            disk.set_cold(cold);
            for &start in &edges {
                for &end in edges.iter().filter(|end| **end >= start) {
                    let got = store.get(GROUP, id(9), start..end).await.unwrap();
                    assert_eq!(got, whole.slice(start as usize..end as usize), "{start}..{end}");
                    let now = store.get_now(GROUP, id(9), start..end).unwrap();
                    assert_eq!(now, (!cold || start == end).then_some(got));
                }
            }
        }
        let beyond = store.get(GROUP, id(9), 0..len + 1).await;
        assert!(matches!(beyond, Err(Error::RangeNotSatisfiable { size }) if size == len.into()));
    });
}

#[test]
fn far_ranges_of_the_largest_block() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        put(&store, 1, BLOCK_BYTES).await.unwrap();
        let whole = bytes(1, BLOCK_BYTES);
        for start in (0..BLOCK_BYTES - 5000).step_by(77_777) {
            let got = store.get(GROUP, id(1), start as u32..start as u32 + 5000).await.unwrap();
            assert_eq!(got, whole.slice(start..start + 5000));
        }
    });
}

#[test]
fn once_written_they_cannot_be_written_again() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        put(&store, 1, 100).await.unwrap();
        let again = store.put(GROUP, id(1), owner(1), Bytes::from_static(b"other")).await;
        assert!(matches!(again, Err(Error::Exists(_))), "{again:?}");
        assert!(is_there(&store, 1, 100));
        for bad in [0, BLOCK_BYTES + 1] {
            assert!(matches!(put(&store, 2, bad).await, Err(Error::Invalid(_))));
        }
        let unknown = store.get(GROUP, id(3), 0..1).await;
        assert!(matches!(unknown, Err(Error::NotFound(_))));
        let elsewhere = store.get(GroupId(2), id(1), 0..1).await;
        assert!(matches!(elsewhere, Err(Error::NotFound(_))));
    });
}

#[test]
fn the_inventory_lists_them_in_order_page_by_page() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut expected = Vec::new();
    run(async {
        for n in 0..700u64 {
            let session = SessionId(n % 3 * 10);
            let block = BlockId { session, counter: n.wrapping_mul(7919) % 1000 };
            let data = Bytes::from(vec![1; 1 + n as usize % 50]);
            let length = data.len() as u32;
            store.put(GROUP, block, owner(n), data).await.unwrap();
            store.put(GroupId(9), block, owner(n), Bytes::from_static(b"x")).await.unwrap();
            expected.push(BlockInfo { block, owner: owner(n), length });
        }
        expected.sort_by_key(|info| info.block);
        let gone: Vec<BlockId> = expected.iter().step_by(3).map(|info| info.block).collect();
        store.delete(GROUP, &gone).await.unwrap();
        expected.retain(|info| !gone.contains(&info.block));
        for limit in [1, 7, 256, 10_000] {
            let mut got: Vec<BlockInfo> = Vec::new();
            loop {
                let after = got.last().map(|info| info.block);
                let page = store.inventory(GROUP, after, limit).await.unwrap();
                assert!(page.len() <= limit);
                if page.is_empty() {
                    break;
                }
                got.extend(page);
            }
            assert_eq!(got, expected);
        }
        assert_eq!(store.groups(), [GROUP, GroupId(9)]);
        assert_eq!(store.usage().await.unwrap().blocks, 700 + expected.len() as u64);
    });
}

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, BodyId, Error, GroupId, Owner, Result, SessionId};
use cairn_blocks::{
    BlockCounters, BlockInfo, BlockPlace, Blocks, KeptBlocks, Manner, Peers, Usage, Wish,
};
use cairn_sim::{Call, Fault, SimDisk};

use crate::support::{bytes, id, run};

const GROUP: GroupId = GroupId(77);
const PIECE: u32 = 64 << 10;
const BLOCK: u32 = 5 * PIECE / 2;
const LIMIT: u64 = 64 << 20;

/// Has every block, and counts who asks.
#[derive(Default)]
struct Elsewhere {
    asked: AtomicU64,
    is_gone: bool,
}

fn whole(block: BlockId) -> Bytes {
    bytes(block.counter, BLOCK as usize)
}

#[async_trait]
impl Blocks for Elsewhere {
    async fn write(&self, _: Wish, _: BlockId, _: Owner, _: Bytes) -> Result<GroupId> {
        Ok(GROUP)
    }

    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        assert_eq!(group, GROUP);
        if self.is_gone {
            return Err(Error::Unavailable("gone".into()));
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(whole(block).slice(range.start as usize..range.end as usize))
    }

    fn get_now(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn delete(&self, _: GroupId, _: &[BlockId]) -> Result<()> {
        Ok(())
    }

    fn groups(&self) -> Vec<GroupId> {
        vec![GROUP]
    }

    async fn inventory(&self, _: GroupId, _: Option<BlockId>, _: usize) -> Result<Vec<BlockInfo>> {
        Ok(Vec::new())
    }

    async fn is_compressed(&self, _: GroupId, _: BlockId) -> Result<bool> {
        Ok(false)
    }

    async fn usage(&self) -> Result<Usage> {
        Ok(Usage { free_bytes: 42, ..Usage::default() })
    }

    async fn room(&self) -> Result<Usage> {
        self.usage().await
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        None
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters::default()
    }
}

fn keep(disk: &SimDisk) -> (Arc<Elsewhere>, KeptBlocks) {
    let elsewhere = Arc::new(Elsewhere::default());
    let front = Arc::clone(&elsewhere) as Arc<dyn Blocks>;
    (elsewhere, KeptBlocks::open(front, Arc::new(disk.clone()), LIMIT, PIECE).unwrap())
}

async fn read(blocks: &KeptBlocks, counter: u64, range: Range<u32>) {
    let got = match blocks.get_now(GROUP, id(counter), range.clone()).unwrap() {
        Some(bytes) => bytes,
        None => blocks.get(GROUP, id(counter), range.clone()).await.unwrap(),
    };
    assert!(got == whole(id(counter))[range.start as usize..range.end as usize]);
}

/// The pieces of a block.
fn pieces() -> [Range<u32>; 3] {
    [0..PIECE, PIECE..2 * PIECE, 2 * PIECE..BLOCK]
}

/// Reads until what is read is kept, which happens behind the reader's back.
async fn read_until_kept(blocks: &KeptBlocks, elsewhere: &Elsewhere, counter: u64) {
    let end = Instant::now() + Duration::from_secs(300);
    loop {
        let before = elsewhere.asked.load(Ordering::Relaxed);
        for range in pieces() {
            read(blocks, counter, range).await;
        }
        if elsewhere.asked.load(Ordering::Relaxed) == before {
            return;
        }
        assert!(Instant::now() < end, "block {counter} is never kept");
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_was_read_is_there_after_a_restart_and_without_elsewhere() {
    let disk = SimDisk::new(1);
    run(async {
        let (elsewhere, blocks) = keep(&disk);
        for counter in 0..20 {
            read_until_kept(&blocks, &elsewhere, counter).await;
        }
        let kept = blocks.counted().kept.unwrap();
        assert!(kept.hits >= 60 && kept.misses >= 60 && kept.bytes >= 20 * u64::from(BLOCK));
        assert_eq!(blocks.usage().await.unwrap().free_bytes, 42);
    });
    run(async {
        let gone = Arc::new(Elsewhere { is_gone: true, ..Elsewhere::default() });
        let blocks = KeptBlocks::open(gone, Arc::new(disk.kill()), LIMIT, PIECE).unwrap();
        for counter in 0..20 {
            for range in pieces() {
                read(&blocks, counter, range).await;
            }
        }
        let other = blocks.get(GROUP, id(20), 0..PIECE).await;
        assert!(matches!(other, Err(Error::Unavailable(_))));
    });
}

#[test]
fn a_power_cut_takes_some_and_spoils_none() {
    let disk = SimDisk::new(2);
    run(async {
        let (elsewhere, blocks) = keep(&disk);
        for counter in 0..10 {
            read_until_kept(&blocks, &elsewhere, counter).await;
        }
    });
    for seed in 0..20 {
        let (_, blocks) = keep(&disk.crash_image(seed));
        run(async {
            for counter in 0..10 {
                for range in pieces() {
                    read(&blocks, counter, range).await;
                }
            }
        });
    }
}

#[test]
fn it_takes_no_more_than_it_may() {
    let disk = SimDisk::new(3);
    run(async {
        let (elsewhere, blocks) = keep(&disk);
        let count = 2 * LIMIT / u64::from(BLOCK);
        for counter in 0..count {
            read_until_kept(&blocks, &elsewhere, counter).await;
            // One segment more, and what is on its way.
            assert!(disk.used_bytes() < LIMIT + (40 << 20), "{}", disk.used_bytes());
        }
        // The newest are there, the oldest are not.
        let asked = |counter| {
            let before = elsewhere.asked.load(Ordering::Relaxed);
            let (elsewhere, blocks) = (&elsewhere, &blocks);
            async move {
                read(blocks, counter, 0..PIECE).await;
                elsewhere.asked.load(Ordering::Relaxed) - before
            }
        };
        assert_eq!(asked(count - 1).await, 0);
        assert_eq!(asked(0).await, 1);
    });
}

#[test]
fn what_rots_or_was_cut_short_is_read_elsewhere_and_kept_anew() {
    let disk = SimDisk::new(4);
    run(async {
        let (elsewhere, blocks) = keep(&disk);
        // Less than the piece that the block has.
        while blocks.get_now(GROUP, id(1), 0..100).unwrap().is_none() {
            read(&blocks, 1, 0..100).await;
            tokio::task::yield_now().await;
        }
        read_until_kept(&blocks, &elsewhere, 1).await;
        let asked = elsewhere.asked.load(Ordering::Relaxed);
        let content = disk.contents("00000001.seg").unwrap();
        let data = whole(id(1));
        let needle = &data[PIECE as usize..PIECE as usize + 64];
        let at = content.windows(64).position(|window| window == needle).unwrap();
        disk.flip_bit("00000001.seg", at as u64 + 9, 3).unwrap();
        for range in pieces() {
            read(&blocks, 1, range).await;
        }
        assert_eq!(elsewhere.asked.load(Ordering::Relaxed), asked + 1);
        read_until_kept(&blocks, &elsewhere, 1).await;
    });
}

#[test]
fn a_disk_that_fails_costs_reads_and_nothing_else() {
    let disk = SimDisk::new(5);
    run(async {
        let (elsewhere, blocks) = keep(&disk);
        read_until_kept(&blocks, &elsewhere, 1).await;
        disk.add_fault(Fault::once(Some(Call::Read), 0).sticky());
        disk.add_fault(Fault::once(Some(Call::Write), 0).sticky());
        for counter in 0..4 {
            for range in pieces() {
                read(&blocks, counter, range).await;
            }
        }
    });
}

/// Answers each question in a way of its own.
struct Odd;

const PLACE: BlockPlace = BlockPlace {
    segment: 1,
    salt: 2,
    offset: 3,
    owner: Owner { body: BodyId { session: SessionId(4), counter: 5 }, chunk: 6 },
    length: 7,
};

#[async_trait]
impl Blocks for Odd {
    async fn write(&self, _: Wish, _: BlockId, _: Owner, _: Bytes) -> Result<GroupId> {
        Ok(GROUP)
    }

    async fn get(&self, _: GroupId, block: BlockId, _: Range<u32>) -> Result<Bytes> {
        Err(Error::NotFound(format!("block {block}")))
    }

    fn get_now(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn delete(&self, _: GroupId, _: &[BlockId]) -> Result<()> {
        Ok(())
    }

    fn groups(&self) -> Vec<GroupId> {
        vec![GROUP]
    }

    async fn inventory(&self, _: GroupId, _: Option<BlockId>, _: usize) -> Result<Vec<BlockInfo>> {
        Ok(Vec::new())
    }

    async fn is_compressed(&self, _: GroupId, _: BlockId) -> Result<bool> {
        Ok(true)
    }

    async fn usage(&self) -> Result<Usage> {
        Ok(Usage { free_bytes: 3, ..Usage::default() })
    }

    async fn room(&self) -> Result<Usage> {
        Ok(Usage { free_bytes: 1, ..Usage::default() })
    }

    fn available(&self) -> Result<()> {
        Err(Error::Unavailable("odd".into()))
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        Some(PLACE)
    }

    fn manner(&self) -> Manner {
        Manner { patience: Duration::from_secs(9), is_near: true }
    }

    fn counted(&self) -> BlockCounters {
        let peers = Peers { connections: 8, ..Peers::default() };
        BlockCounters { peers, kept: None }
    }
}

/// The cache passes on the properties of the blocks behind it: in front of a near server nothing
/// is kept twice, and no needless request is made.
#[test]
fn what_elsewhere_says_of_itself_is_said_here() {
    let disk = Arc::new(SimDisk::new(4));
    let front = KeptBlocks::open(Arc::new(Odd), disk, LIMIT, PIECE).unwrap();
    assert!(front.manner().is_near);
    assert_eq!(front.place(GROUP, id(1)), Some(PLACE));
    assert_eq!(front.manner().patience, Duration::from_secs(9));
    assert_eq!(front.counted().peers.connections, 8);
    assert!(front.available().is_err());
    assert_eq!(run(front.room()).unwrap().free_bytes, 1);
    assert_eq!(run(front.usage()).unwrap().free_bytes, 3);
    assert_eq!(front.groups(), [GROUP]);
}

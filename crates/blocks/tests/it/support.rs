//! Helpers of the tests.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{BlockId, BodyId, Disk, GroupId, Owner, Rng, SessionId};
use cairn_blocks::{Blocks, Config, How, Store};

pub const GROUP: GroupId = GroupId(1);

pub fn config() -> Config {
    Config {
        segment_bytes: 64 << 10,
        reserve_bytes: 16 << 10,
        rng: Arc::new(SeededRng::new(7)),
        ..Config::new([1; 16], [2; 16])
    }
}

pub fn open(disk: &(impl Disk + Clone)) -> Store {
    Store::open(Arc::new(disk.clone()), config()).unwrap()
}

pub fn id(counter: u64) -> BlockId {
    BlockId { session: SessionId(5), counter }
}

pub fn owner(counter: u64) -> Owner {
    let body = BodyId { session: SessionId(5), counter: counter ^ 0xff };
    Owner { body, chunk: counter as u32 }
}

/// Blocks whose counter has this bit have text, and are to be compressed.
pub const TEXT: u64 = 1 << 40;

/// The bytes of block `counter`, if it is `len` bytes long.
pub fn bytes(counter: u64, len: usize) -> Bytes {
    if counter & TEXT > 0 {
        let line = |n: u64| format!("{{\"time\":{n},\"user\":{}}}\n", (counter ^ n) * 7919 % 1000);
        return (0..).flat_map(|n| line(n).into_bytes()).take(len).collect();
    }
    let mut bytes = vec![0; len];
    SeededRng::new(counter.wrapping_mul(0x1234_5678_9abc_def1)).fill(&mut bytes);
    Bytes::from(bytes)
}

pub async fn put(store: &Store, counter: u64, len: usize) -> cairn_base::Result<()> {
    let how = How { over: false, compress: counter & TEXT > 0 };
    store.put_as(GROUP, id(counter), owner(counter), bytes(counter, len), how).await
}

/// Whether the block is there; checks every byte.
pub fn is_there(store: &Store, counter: u64, len: usize) -> bool {
    let range = 0..len as u32;
    let got = match store.get_now(GROUP, id(counter), range.clone()).transpose() {
        Some(got) => got,
        // On a real disk it may not be in memory.
        None => std::thread::scope(|scope| {
            let waited = scope.spawn(|| run(store.get(GROUP, id(counter), range)));
            waited.join().unwrap()
        }),
    };
    match got {
        Ok(got) => {
            assert_eq!(got, bytes(counter, len), "block {counter}");
            assert_eq!(store.stat(GROUP, id(counter)).unwrap().owner, owner(counter));
            true
        }
        Err(cairn_base::Error::NotFound(_)) => false,
        Err(error) => panic!("block {counter}: {error}"),
    }
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

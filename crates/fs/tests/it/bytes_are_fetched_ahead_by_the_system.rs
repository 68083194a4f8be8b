//! Bytes of a disk of this machine that are soon read are brought into memory by the system, not by
//! reading and checking them twice.

use std::sync::atomic::Ordering::SeqCst;

use crate::world::{BUCKET, World, data, root, run};

const LEN: u64 = 1_000_000;

#[test]
fn and_not_read_twice() {
    run(async {
        let (world, _) = World::watched(1, Default::default()).await;
        let all = data(1, LEN as usize);
        world.put("file", &all).await.unwrap();
        let (world, blocks) = world.killed_and_watched(2).await;
        let object = world.fs.open(&root(), BUCKET, "file").await.unwrap();
        let before = blocks.reads.load(SeqCst);

        let half = LEN / 2;
        object.will_read(half..LEN).await;
        assert!(blocks.told.load(SeqCst) >= 1);
        assert_eq!(blocks.reads.load(SeqCst), before, "it was only told");
        assert_eq!(object.read_all(half..LEN).await.unwrap(), all.slice(half as usize..));
        assert!(blocks.reads.load(SeqCst) > before);

        // An empty range asks for nothing.
        let told = blocks.told.load(SeqCst);
        object.will_read(LEN..LEN).await;
        assert_eq!(blocks.told.load(SeqCst), told);
    });
}

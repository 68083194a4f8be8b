use cairn_fs::ops::buckets::DeleteBucket;
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::list_objects::ListObjects;

use crate::world::{BUCKET, World, data, root, run};

/// Keys that each have directories of their own: more rows than one operation may read or change.
#[test]
fn a_page_ends_early_and_a_deletion_takes_several_operations() {
    run(async {
        let world = World::new(1).await;
        let mut wanted = Vec::new();
        for number in 0..1000 {
            let key = format!("{number:04}/a/b/c/d/e/f");
            world.put(&key, &data(1, 3)).await.unwrap();
            wanted.push(key);
        }
        let (mut listed, mut pages) = (Vec::new(), 0);
        let mut list =
            ListObjects { bucket: BUCKET.into(), max_keys: 1000, ..ListObjects::default() };
        loop {
            let page = world.fs.read(&root(), list.clone()).await.unwrap();
            pages += 1;
            listed.extend(page.objects.into_iter().map(|found| found.key));
            match page.next {
                Some(next) => list.after = next,
                None => break,
            }
        }
        assert_eq!(listed, wanted);
        assert!(pages > 1, "the limit of an operation was not reached");
        let keys: Vec<_> = listed.into_iter().map(|key| (key, Conditions::default())).collect();
        let mut deleted = Vec::new();
        let tell = |key: &str, reply: cairn_base::Result<bool>| {
            assert!(reply.unwrap(), "{key}");
            deleted.push(key.to_owned());
        };
        world.fs.delete_objects(&root(), BUCKET, &keys, tell).await.unwrap();
        assert_eq!(deleted, wanted);
        world.fs.run(&root(), DeleteBucket { name: BUCKET.into() }).await.unwrap();
    });
}

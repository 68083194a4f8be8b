use cairn_auth::{Caller, Visibility};
use cairn_base::Error;
use cairn_fs::ops::buckets::UpdateBucket;

use crate::world::{BUCKET, World, data, root, run};

#[test]
fn an_object_that_was_opened_often_and_then_changed() {
    run(async {
        let world = World::new(1).await;
        for round in 0..20 {
            let content = data(round, 100 + round as usize);
            world.put("a/k", &content).await.unwrap();
            // The second and third find what the first left in memory.
            for _ in 0..3 {
                assert_eq!(world.get("a/k").await.unwrap(), content);
            }
            world.put("a/other", &content).await.unwrap();
            assert_eq!(world.get("a/k").await.unwrap(), content);
        }
        world.delete("a/k").await.unwrap();
        assert!(matches!(world.get("a/k").await, Err(Error::NotFound(_))));
        world.put("a/k", &data(99, 7)).await.unwrap();
        assert_eq!(world.get("a/k").await.unwrap(), data(99, 7));
    });
}

#[test]
fn a_right_that_was_taken_away() {
    run(async {
        let world = World::new(2).await;
        world.put("k", &data(1, 4)).await.unwrap();
        let show = |visibility| UpdateBucket {
            name: BUCKET.into(),
            visibility: Some(visibility),
            ..UpdateBucket::default()
        };
        world.fs.run(&root(), show(Visibility::Public)).await.unwrap();
        for _ in 0..3 {
            world.fs.open(&Caller::anonymous(), BUCKET, "k").await.unwrap();
        }
        world.fs.run(&root(), show(Visibility::Private)).await.unwrap();
        let denied = world.fs.open(&Caller::anonymous(), BUCKET, "k").await;
        assert!(matches!(denied, Err(Error::Denied(_))));
        world.fs.open(&root(), BUCKET, "k").await.unwrap();
    });
}

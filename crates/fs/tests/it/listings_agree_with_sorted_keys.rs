use std::collections::BTreeSet;

use cairn_base::rng::SeededRng;
use cairn_fs::ops::list_objects::ListObjects;

use crate::world::{BUCKET, World, data, root, run};

const PARTS: [&str; 14] =
    ["a", "b", "a-", "a.", "a0", "", ".", "..", "ü", "a b", "%2F", "~", "\u{10FFFF}", "\u{1}"];

fn random_key(rng: &SeededRng) -> String {
    let depth = 1 + rng.below(4);
    let parts: Vec<&str> =
        (0..depth).map(|_| PARTS[rng.below(PARTS.len() as u64) as usize]).collect();
    let key = parts.join("/");
    if key.is_empty() { "a".into() } else { key }
}

/// The expected listing, worked out from all keys.
fn expected(keys: &BTreeSet<String>, list: &ListObjects) -> (Vec<String>, Vec<String>) {
    let (mut objects, mut prefixes) = (Vec::new(), Vec::new());
    let rolled = |key: &str| {
        let at = key.get(list.prefix.len()..)?.find(&list.delimiter)?;
        let end = list.prefix.len() + at + list.delimiter.len();
        (!list.delimiter.is_empty()).then(|| key[..end].to_owned())
    };
    for key in keys.iter().filter(|key| key.starts_with(&list.prefix)) {
        if objects.len() + prefixes.len() == list.max_keys {
            let known = rolled(key).is_some_and(|prefix| prefixes.last() == Some(&prefix));
            if !known {
                break;
            }
            continue;
        }
        match rolled(key) {
            Some(prefix) => {
                let shown =
                    list.after.starts_with(&prefix) || prefix.as_str() <= list.after.as_str();
                if !shown && prefixes.last() != Some(&prefix) {
                    prefixes.push(prefix);
                }
            }
            None if key.as_str() > list.after.as_str() => objects.push(key.clone()),
            None => {}
        }
    }
    (objects, prefixes)
}

#[test]
fn random_listings_of_hostile_names() {
    run(async {
        for seed in 0..6 * cairn_sim::scale() {
            let rng = SeededRng::new(seed);
            let world = World::new(seed).await;
            let mut keys = BTreeSet::new();
            for _ in 0..120 {
                let key = random_key(&rng);
                world.put(&key, &data(1, 3)).await.unwrap();
                keys.insert(key);
            }
            keys.insert("z".repeat(1024));
            world.put(&"z".repeat(1024), &data(1, 3)).await.unwrap();
            for _ in 0..40 {
                let key = random_key(&rng);
                assert_eq!(world.delete(&key).await.unwrap(), keys.remove(&key), "{key:?}");
            }
            for round in 0..400 {
                check_one(&world, &rng, &keys, &format!("seed {seed}, round {round}")).await;
            }
            for key in &keys {
                world.delete(key).await.unwrap();
            }
            // Implicit directories went with their last child, so the bucket can go.
            let name = BUCKET.to_owned();
            world.fs.run(&root(), cairn_fs::ops::buckets::DeleteBucket { name }).await.unwrap();
        }
    });
}

async fn check_one(world: &World, rng: &SeededRng, keys: &BTreeSet<String>, which: &str) {
    let some_prefix = |key: String| {
        let cut = rng.below(key.len() as u64 + 1) as usize;
        let cut = (0..=cut).rev().find(|cut| key.is_char_boundary(*cut)).unwrap_or(0);
        key[..cut].to_owned()
    };
    let mut list = ListObjects {
        bucket: BUCKET.into(),
        prefix: if rng.below(2) == 0 { String::new() } else { some_prefix(random_key(rng)) },
        delimiter: ["", "/", "/", "a", "//", "ü"][rng.below(6) as usize].into(),
        after: if rng.below(2) == 0 { String::new() } else { some_prefix(random_key(rng)) },
        max_keys: [1, 2, 3, 7, 1000][rng.below(5) as usize],
    };
    // Page after page, to the end.
    for _ in 0..keys.len() + 2 {
        let page = world.fs.read(&root(), list.clone()).await.unwrap();
        let objects: Vec<String> = page.objects.iter().map(|one| one.key.clone()).collect();
        let (wanted, prefixes) = expected(keys, &list);
        assert_eq!(objects, wanted, "{which}: {list:?}");
        assert_eq!(page.prefixes, prefixes, "{which}: {list:?}");
        match page.next {
            Some(next) => list.after = next,
            None => return,
        }
    }
    panic!("{which}: a listing without end: {list:?}");
}

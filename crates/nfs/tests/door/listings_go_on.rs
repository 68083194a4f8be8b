//! Listings in small parts, of a directory that changes, at more than one door.

use std::collections::HashSet;

use crate::world::{World, run};

const TOOSMALL: u32 = 10_005;

#[test]
fn each_name_that_stays_is_listed_once() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        for number in 0..300 {
            one.create(&top, &format!("file {number}")).await.unwrap();
        }
        for plus in [false, true] {
            let (mut seen, mut cookie, mut parts) = (Vec::new(), 0, 0u32);
            loop {
                let client = if parts % 2 == 0 { &mut one } else { &mut other };
                let (names, is_end) = client.list(&top, cookie, 2000, plus).await.unwrap();
                if let Some((_, last)) = names.last() {
                    cookie = *last;
                }
                seen.extend(names.into_iter().map(|(name, _)| name));
                parts += 1;
                // Another one goes, and another one comes.
                let gone = format!("a {}", parts.wrapping_sub(1));
                let _ = one.remove(12, &top, &gone).await;
                one.create(&top, &format!("a {parts}")).await.unwrap();
                if is_end {
                    break;
                }
            }
            let stay = |name: &&String| name.starts_with("file ");
            let stayed: Vec<&String> = seen.iter().filter(stay).collect();
            assert_eq!(stayed.len(), 300);
            assert_eq!(stayed.into_iter().collect::<HashSet<_>>().len(), 300);
            assert_eq!(seen[..2], [".", ".."]);
            assert!(parts > 5);
            for part in 0..=parts {
                let _ = one.remove(12, &top, &format!("a {part}")).await;
            }
        }
        another.stop().await;
    });
}

/// As a client does that removes what it lists: its directory is the same at any door.
#[test]
fn a_listing_goes_on_after_names_that_are_gone() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        for number in 0..60 {
            one.create(&top, &format!("file {number}")).await.unwrap();
        }
        let (mut cookie, mut removed) = (0, 0);
        loop {
            // A door that has given no cookie.
            let another = world.another_door().await;
            let mut other = another.client().await;
            let (names, is_end) = other.list(&top, cookie, 800, true).await.unwrap();
            for (name, last) in names {
                cookie = last;
                if name.starts_with("file") {
                    one.remove(12, &top, &name).await.unwrap();
                    removed += 1;
                }
            }
            another.stop().await;
            if is_end {
                break;
            }
        }
        assert_eq!(removed, 60);
    });
}

#[test]
fn what_does_not_fit_is_said() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        for plus in [false, true] {
            assert_eq!(client.list(&top, 0, 0, plus).await, Err(TOOSMALL));
            assert_eq!(client.list(&top, 0, 130, plus).await, Err(TOOSMALL));
        }
        let (names, is_end) = client.list(&top, 0, u32::MAX, true).await.unwrap();
        assert_eq!((names.len(), is_end), (2, true));
        let (names, is_end) = client.list(&top, names[1].1, 4096, false).await.unwrap();
        assert_eq!((names.len(), is_end), (0, true));
    });
}

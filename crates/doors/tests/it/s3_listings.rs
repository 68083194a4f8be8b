//! Listings against a sorted list, whatever the keys, prefixes, delimiters and page sizes.

use std::collections::BTreeSet;

use cairn_base::rng::SeededRng;

use crate::s3_harness::{Client, Connection, Server, encode};

/// A page as a client sees it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    keys: Vec<String>,
    prefixes: Vec<String>,
    is_truncated: bool,
}

/// The expected listing, by definition: keys in order, rolled up.
fn expected(
    keys: &BTreeSet<String>,
    prefix: &str,
    delimiter: &str,
    after: &str,
    max: usize,
) -> Page {
    let mut page = Page::default();
    let mut last_prefix = None;
    for key in keys.iter().filter(|key| key.starts_with(prefix)) {
        let rolled = (!delimiter.is_empty())
            .then(|| key[prefix.len()..].find(delimiter))
            .flatten()
            .map(|at| key[..prefix.len() + at + delimiter.len()].to_owned());
        let shown = rolled.as_deref().unwrap_or(key);
        // Keys that begin with a common prefix that was the marker have been shown.
        let passed = shown <= after || (rolled.is_some() && after.starts_with(shown));
        if passed || (rolled.is_some() && rolled == last_prefix) {
            continue;
        }
        if page.keys.len() + page.prefixes.len() == max {
            page.is_truncated = max > 0;
            return page;
        }
        match rolled {
            Some(rolled) => {
                last_prefix = Some(rolled.clone());
                page.prefixes.push(rolled);
            }
            None => page.keys.push(key.clone()),
        }
    }
    page
}

struct Lister {
    client: Client,
    connection: Connection,
}

impl Lister {
    fn page(&mut self, query: &[(&str, &str)]) -> (Page, String) {
        let mut ask = self.client.ask("GET", "/listed");
        for (name, value) in query {
            ask = ask.query(name, value);
        }
        self.connection.send(&ask.wire());
        let reply = self.connection.reply("GET").ok();
        let is_url = query.iter().any(|(name, _)| *name == "encoding-type");
        let text = |text: String| {
            if is_url {
                percent_encoding::percent_decode_str(&text).decode_utf8().unwrap().into_owned()
            } else {
                text
            }
        };
        let prefixes = reply.all("CommonPrefixes");
        let inner = |element: String| {
            let inner = element.strip_prefix("<Prefix>").unwrap();
            inner.strip_suffix("</Prefix>").unwrap().to_owned()
        };
        let page = Page {
            keys: reply.all("Key").into_iter().map(text).collect(),
            prefixes: prefixes.into_iter().map(inner).map(text).collect(),
            is_truncated: reply.one("IsTruncated") == "true",
        };
        let next = match reply.one("NextContinuationToken") {
            token if !token.is_empty() => token,
            _ => text(reply.one("NextMarker")),
        };
        (page, next)
    }
}

const PIECES: [&str; 14] =
    ["a", "b", "a-", "a.", "/", "//", ".", "..", " ", "é", "日", "%2F", "+", "\u{1}"];

fn key(rng: &SeededRng) -> String {
    let count = 1 + rng.below(6);
    (0..count).map(|_| PIECES[rng.below(PIECES.len() as u64) as usize]).collect()
}

fn choose<'a>(rng: &SeededRng, from: &[&'a str]) -> &'a str {
    from[rng.below(from.len() as u64) as usize]
}

fn keys(rng: &SeededRng) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = (0..rng.below(120)).map(|_| key(rng)).collect();
    keys.insert("z".repeat(1024));
    keys
}

/// None, any, or the beginning of one of the keys.
fn prefix(rng: &SeededRng, keys: &BTreeSet<String>) -> String {
    match rng.below(3) {
        0 => String::new(),
        1 => key(rng),
        _ => {
            let key = keys.iter().nth(rng.below(keys.len() as u64) as usize).unwrap();
            let len = rng.below(key.chars().count() as u64 + 1) as usize;
            key.chars().take(len).collect()
        }
    }
}

#[test]
fn random_listings() {
    let server = Server::start();
    let root = server.root();
    let mut listings = 0;
    for seed in 0..12 {
        println!("seed {seed}");
        let rng = SeededRng::new(seed);
        root.put("/listed", b"").ok();
        let keys = keys(&rng);
        let mut connection = Connection::open(server.address);
        for key in &keys {
            let path = format!("/listed/{}", encode(key, false));
            connection.send(&root.ask("PUT", &path).wire());
            connection.reply("PUT").ok();
        }
        let mut lister = Lister { client: root.clone(), connection };
        for _ in 0..170 {
            let prefix = prefix(&rng, &keys);
            let delimiter = choose(&rng, &["", "/", "/", "/", "a", "//", ".", "é"]);
            let after = if rng.below(3) == 0 { key(&rng) } else { String::new() };
            let max = [0, 1, 2, 3, 7, 1000][rng.below(6) as usize];
            let number = max.to_string();
            let want = expected(&keys, &prefix, delimiter, &after, max);
            let mut query =
                vec![("prefix", &*prefix), ("delimiter", delimiter), ("max-keys", &number)];
            if rng.below(2) == 0 {
                query.push(("encoding-type", "url"));
            }
            let version_2 = rng.below(2) == 0;
            if version_2 {
                query.extend([("list-type", "2"), ("start-after", &*after)])
            } else {
                query.push(("marker", &*after))
            }
            let (page, mut next) = lister.page(&query);
            listings += 1;
            assert_eq!(page, want, "{query:?} of {keys:?}");
            // All pages together are one large page.
            let all = expected(&keys, &prefix, delimiter, &after, usize::MAX);
            let (mut seen, mut more) = (page, want.is_truncated);
            while more && max > 1 {
                let mut query = query.clone();
                query.retain(|(name, _)| *name != "marker");
                query.push((if version_2 { "continuation-token" } else { "marker" }, &next));
                let (page, further) = lister.page(&query);
                listings += 1;
                seen.keys.extend(page.keys);
                seen.prefixes.extend(page.prefixes);
                more = page.is_truncated;
                next = further;
            }
            if max > 1 {
                assert_eq!((seen.keys, seen.prefixes), (all.keys, all.prefixes), "{query:?}");
            }
        }
        for key in &keys {
            let path = format!("/listed/{}", encode(key, false));
            lister.connection.send(&root.ask("DELETE", &path).wire());
            assert_eq!(lister.connection.reply("DELETE").status, 204);
        }
        root.delete("/listed").ok();
    }
    println!("{listings} listings");
    assert!(listings >= 2000);
}

#[test]
fn what_a_listing_says_of_a_key() {
    let server = Server::start();
    let root = server.root();
    root.put("/listed", b"").ok();
    root.ask("PUT", "/listed/a%20%26")
        .header("x-amz-checksum-crc32c", "yZRlqg==")
        .body(b"hello world")
        .send()
        .ok();
    let page = root.get("/listed").ok();
    assert_eq!(page.one("Name"), "listed");
    assert_eq!(page.all("Key"), ["a &"]);
    assert_eq!(page.one("Size"), "11");
    assert_eq!(page.one("ETag"), "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"");
    assert_eq!(page.one("LastModified"), "2026-01-01T00:00:00.000Z");
    assert_eq!(page.one("StorageClass"), "STANDARD");
    assert_eq!(page.one("ChecksumAlgorithm"), "CRC32C");
    assert_eq!(page.one("DisplayName"), "root");
    assert!(page.text().contains("xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""));
    let page = root.get("/listed?list-type=2").ok();
    assert_eq!((page.one("KeyCount"), page.all("DisplayName").len()), ("1".into(), 0));
    assert_eq!(root.get("/listed?list-type=2&fetch-owner=true").ok().one("DisplayName"), "root");
    assert_eq!(root.get("/listed?encoding-type=url").ok().one("Key"), "a%20%26");
    for bad in ["max-keys=-1", "max-keys=x", "encoding-type=x", "list-type=3", "list-type=1"] {
        root.get(&format!("/listed?{bad}")).fails(400, "InvalidArgument");
    }
    root.get("/listed?list-type=2&continuation-token=%21").fails(400, "InvalidArgument");
    root.get("/listed?list-type=2&continuation-token=").ok();
    assert_eq!(root.get("/listed?max-keys=5000").ok().one("MaxKeys"), "1000");
    root.get("/nosuch?list-type=2").fails(404, "NoSuchBucket");
}

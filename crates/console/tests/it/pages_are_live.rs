use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::UserId;
use cairn_fs::PutRequest;

use crate::harness::{Browser, Rig};

/// A page that listens.
struct Page(BufReader<TcpStream>);

impl Page {
    fn open(browser: &Browser, target: &str) -> (u16, Page) {
        let mut stream = TcpStream::connect(browser.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let cookie = browser.cookie.as_deref().unwrap_or_default();
        let host = &browser.host;
        let head = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n");
        let request = format!("{head}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut page = Page(BufReader::new(stream));
        let status = page.line().split(' ').nth(1).unwrap().parse().unwrap();
        (status, page)
    }

    /// Empty at the end of the connection.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// The next event: its name and its id. None when the connection is over.
    fn event(&mut self) -> Option<(String, String)> {
        let (mut name, mut id) = (String::new(), String::new());
        loop {
            let line = self.line();
            if line.is_empty() {
                return None;
            }
            match line.trim().split_once(": ") {
                Some(("event", value)) => name = value.to_owned(),
                Some(("id", value)) => id = value.to_owned(),
                None if line.trim().is_empty() && !name.is_empty() => return Some((name, id)),
                _ => {}
            }
        }
    }
}

/// The place where a page hears of changes, with the state that it shows.
fn events_of(page: &str) -> String {
    let part = page.split("<cairn-changes data-events=\"").nth(1).unwrap();
    let (place, rest) = part.split_once('"').unwrap();
    let seen = rest.split("data-seen=\"").nth(1).unwrap().split('"').next().unwrap();
    format!("{}&seen={seen}", place.replace("&amp;", "&"))
}

fn put(rig: &Rig, bucket: &str, key: &str, text: &'static str) {
    let root = Caller::verified(UserId::ROOT);
    rig.runtime.block_on(async {
        let mut writer = rig.fs().begin(&root, bucket).await.unwrap();
        writer.push(text.into()).await.unwrap();
        let written = writer.finish().await.unwrap();
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let request = PutRequest { bucket, key, ..PutRequest::default() };
        rig.fs().put_object(&root, request, written).await.unwrap();
    });
}

#[test]
fn a_page_is_told_of_what_others_change_and_of_nothing_else() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=open");
    put(&rig, "open", "trip/a.txt", "one");
    let target = events_of(&root.get("/b/open?in=trip%2F").body);
    let (status, mut page) = Page::open(&root, &target);
    assert_eq!(status, 200);
    // What is not in the folder is none of its business.
    put(&rig, "open", "other/b.txt", "one");
    put(&rig, "open", "trip/a.txt", "replaced");
    let (name, first) = page.event().unwrap();
    assert_eq!(name, "changed");
    let now = root.get("/b/open?in=trip%2F").body;
    assert!(events_of(&now).ends_with(&first), "the state that the page has now");
    put(&rig, "open", "trip/c.txt", "new");
    assert_ne!(page.event().unwrap().1, first);
    root.post("/b/open/delete", "in=trip%2F&key=trip%2Fa.txt&confirm=yes");
    let last = page.event().unwrap().1;
    assert!(events_of(&root.get("/b/open?in=trip%2F").body).ends_with(&last));
}

/// Looks and listings for pages that listen.
fn reads(rig: &Rig) -> (u64, u64) {
    (rig.metric("cairn_console_looks_total"), rig.metric("cairn_console_listings_total"))
}

#[test]
fn a_change_costs_two_looks_and_one_listing_at_most() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=cheap");
    for key in ["trip/a.txt", "trip/b.txt"] {
        put(&rig, "cheap", key, "one");
    }
    let target = events_of(&root.get("/b/cheap?in=trip%2F").body);
    let (status, mut page) = Page::open(&root, &target);
    assert_eq!((status, rig.metric("cairn_console_listeners")), (200, 1));
    let mut before = reads(&rig);
    assert!(before.0 <= 3 && before.1 == 1, "to begin: {before:?}");
    // A file comes, is replaced and goes, and one is written into where it is.
    let changes: [(&str, &dyn Fn()); 4] = [
        ("new", &|| put(&rig, "cheap", "trip/c.txt", "new")),
        ("replaced", &|| put(&rig, "cheap", "trip/a.txt", "replaced")),
        ("deleted", &|| {
            let mut other = root.clone();
            other.post("/b/cheap/delete", "in=trip%2F&key=trip%2Fc.txt&confirm=yes");
        }),
        ("longer", &|| {
            let caller = Caller::system();
            let append = rig.fs().append(&caller, "cheap", "trip/b.txt", "more".into());
            rig.runtime.block_on(append).unwrap();
        }),
    ];
    for (what, change) in changes {
        change();
        assert_eq!(page.event().unwrap().0, "changed", "{what}");
        let now = reads(&rig);
        let made = (now.0 - before.0, now.1 - before.1);
        assert!(made.0 <= 2 && made.1 == 1, "{what}: {made:?}");
        before = now;
    }
    drop(page);
}

#[test]
fn a_page_that_comes_late_is_told_at_once() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=late");
    let target = events_of(&root.get("/b/late").body);
    put(&rig, "late", "x/deep/a.txt", "one");
    assert_eq!(Page::open(&root, &target).1.event().unwrap().0, "changed");
    let buckets = events_of(&root.get("/").body);
    root.post("/buckets", "name=later");
    let mut page = Page::open(&root, &buckets).1;
    assert_eq!(page.event().unwrap().0, "changed");
    put(&rig, "later", "a.txt", "one");
    assert_eq!(page.event().unwrap().0, "changed", "the counters are shown, too");
}

#[test]
fn a_page_hears_nothing_more_when_its_login_or_its_right_ends() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=team");
    let mut alice = rig.user("alice");
    assert_eq!(Page::open(&alice, "/b/team/changes?in=").0, 403);
    assert_eq!(Page::open(&root, "/b/nothing/changes?in=").0, 404);
    root.post("/grant", "user=alice&bucket=team&right=read");
    let target = events_of(&alice.get("/b/team").body);
    let mut page = Page::open(&alice, &target).1;
    root.post("/grant", "user=alice&bucket=team");
    assert_eq!(page.event().unwrap(), ("changed".to_owned(), "gone".to_owned()));
    assert_eq!(page.event(), None);

    root.post("/grant", "user=alice&bucket=team&right=read");
    let mut page = Page::open(&alice, &target).1;
    root.post("/disable", "user=alice&disabled=yes&confirm=yes");
    let events: Vec<String> = std::iter::from_fn(|| page.event()).map(|event| event.0).collect();
    assert_eq!(events.last().map(String::as_str), Some("end"), "{events:?}");
    assert_eq!(Page::open(&alice, &target).0, 401);
}

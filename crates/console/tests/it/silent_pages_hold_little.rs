use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_console::Insight;
use cairn_doors::limits::Limits;

use crate::harness::Rig;

const TAIL: &str = "/store/tail?bucket=logs-root&key=app.log";
/// Bytes of a line, lines that are added at once, and how often.
const LINE: usize = 16 << 10;
const LINES: usize = 16;
const ROUNDS: usize = 80;
/// More than the kernel keeps of a connection, at both ends, and the server of a reply, bytes.
const PIPE: u64 = 12 << 20;

fn read_until(page: &mut BufReader<TcpStream>, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(page.read_line(&mut line).unwrap() > 0, "it ended before {text:?}");
    }
}

#[test]
fn a_page_that_does_not_read_holds_little_and_delays_no_other() {
    let limits = Limits { idle: Duration::from_secs(4), ..Limits::default() };
    let rig = Rig::limited(Insight::default(), limits);
    let mut root = rig.root();
    root.post("/buckets", "name=logs-root");
    let add = |text: &str| {
        let (caller, lines) = (Caller::system(), text.to_owned().into());
        let append = rig.fs().append(&caller, "logs-root", "app.log", lines);
        rig.runtime.block_on(append).unwrap();
        text.len() as u64
    };
    let mut all = add("first\n");
    let silent = root.open(TAIL);
    let mut other = BufReader::new(root.open(TAIL));
    read_until(&mut other, "first");
    let wait_for = |followers: u64| {
        while rig.metric("cairn_followers") != followers {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(2);
    let lines = format!("{}\n", "x".repeat(LINE - 1)).repeat(LINES);
    for _ in 0..ROUNDS {
        all += add(&lines);
    }
    all += add("last\n");
    read_until(&mut other, "data: last");
    let of_silent = rig.metric("cairn_follow_bytes_total") - all;
    assert!(all > PIPE + (4 << 20) && of_silent < PIPE, "{of_silent} of {all}");
    // Its connection ends, and with it its place; that of the other page does not.
    wait_for(1);
    add("after\n");
    read_until(&mut other, "data: after");
    drop(silent);
}

//! A master, chunkservers and a gateway: clients fetch from the chunkservers.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::cluster::{Cluster, eventually};
use crate::support::{KEY, SECRET, run};

struct Reply {
    status: u16,
    location: String,
    body: Vec<u8>,
}

/// GET of a URL, with the key of root if it is to be sent.
fn get(url: &str, is_root: bool) -> Reply {
    use base64::Engine as _;
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if is_root {
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("{KEY}:{SECRET}"));
        request += &format!("Authorization: Basic {basic}\r\n");
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(reply[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let header = |name: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    };
    let body = reply[end + 4..].to_vec();
    let length = header("content-length").expect("a length").parse::<usize>().unwrap();
    assert_eq!(body.len(), length);
    Reply { status, location: header("location").unwrap_or_default().to_owned(), body }
}

#[test]
fn what_a_link_leads_to_is_the_object() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let gateway = &cluster.gateway;
    eventually(|| {
        let (code, ..) = run(&mut gateway.client(&["bucket", "create", "bucket"]));
        (code == 0).then_some(())
    });
    // More than one chunk of extents.
    let data: Vec<u8> =
        (0..68u32 << 18).flat_map(|word| word.wrapping_mul(7).to_le_bytes()).collect();
    eventually(|| gateway.put("bucket/a", &data).then_some(()));
    let url = format!("{}/storage/bucket/a", gateway.http);
    let sent = eventually(|| {
        let sent = get(&format!("{url}?redirect"), true);
        (sent.status == 307).then_some(sent)
    });
    let (door, path) = sent.location.split_at(sent.location.find("/files/").unwrap());
    assert!(cluster.doors.iter().any(|known| known == door), "{door}");
    // Any gateway fetches blocks that it lacks from others: with two replicas on four nodes, there
    // are two that have nothing of it.
    for door in &cluster.doors {
        let got = get(&format!("{door}{path}"), false);
        assert_eq!(got.status, 200, "{door}");
        assert!(got.body == data, "{door}");
    }
    assert_eq!(get(&format!("{door}{}", &path[..path.len() - 1]), false).status, 403);
    assert_eq!(get(&format!("{door}/storage/bucket/a"), true).status, 404);
    assert_eq!(get(&format!("{url}?redirect"), false).status, 401);
    let info = get(&format!("{url}?download-info"), true);
    let info: serde_json::Value = serde_json::from_slice(&info.body).unwrap();
    let mut whole = Vec::new();
    for part in info["parts"].as_array().unwrap() {
        let text = |name: &str| part[name].as_str().unwrap().to_owned();
        let url = format!("{}://{}{}", text("scheme"), text("host"), text("path"));
        whole.extend(get(&url, false).body);
    }
    assert!(whole == data);

    assert_eq!(get(&url, true).status, 200);
    gateway.ok(&["bucket", "set", "bucket", "--redirect", "on"]);
    assert_eq!(get(&url, true).status, 307);
    assert_eq!(get(&format!("{url}?no-redirect"), true).status, 200);
    assert!(gateway.get("bucket/a").unwrap() == data);
    assert!(gateway.ok(&["bucket", "stat", "bucket"]).contains("redirect       on"));
}

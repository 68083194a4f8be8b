//! Every way to send a body, right and wrong. After any such error, the object stays as it was.

use crate::s3_harness::{Ask, Connection, Mode, Server};

const BEFORE: &[u8] = b"what was there before";
const CRC: (&str, &str) = ("x-amz-checksum-crc32c", "yZRlqg==");
const TEXT: &[u8] = b"hello world";

fn data() -> Vec<u8> {
    (0..200_000u32).map(|at| (at % 251) as u8).collect()
}

#[test]
fn every_mode_stores_the_bytes() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let data = data();
    for mode in Mode::BODIES {
        for chunk in [7919, 64 << 10, 1 << 20] {
            for size in [0, 1, 65_536, 200_000] {
                let mut ask = root.ask("PUT", "/photos/a").mode(mode).body(&data[..size]);
                ask.chunk = chunk;
                ask.send().ok();
                let got = root.get("/photos/a").ok();
                assert!(got.body == data[..size], "{mode:?} {chunk} {size}");
            }
        }
    }
    let ask = root.ask("PUT", "/photos/a").mode(Mode::Presigned(60)).body(&data);
    ask.send().ok();
    assert_eq!(root.get("/photos/a").ok().body, data);
}

#[test]
fn checksums_in_headers_and_trailers() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let sums = [
        ("x-amz-checksum-crc32", "DUoRhQ=="),
        ("x-amz-checksum-crc32c", "yZRlqg=="),
        ("x-amz-checksum-crc64nvme", "jSnVw/bqjr4="),
        ("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
        ("x-amz-checksum-sha256", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
        (
            "x-amz-checksum-sha512",
            concat!(
                "MJ7MSJwS1utMxA9QyQLytNDtd+5RGnx6m808qG1M2G",
                "+YndNbxf9JlnDaNCVbRbDP2DDoH2Bdz33FVC6TrpzXbw==",
            ),
        ),
        ("x-amz-checksum-md5", "XrY7u+Ae7tCTyyK7j1rNww=="),
        ("x-amz-checksum-xxhash64", "RatnNLIeaWg="),
        ("x-amz-checksum-xxhash3", "1Eex6kDmmIs="),
        ("x-amz-checksum-xxhash128", "340J6T+HSQCpm4d1zBW2xw=="),
    ];
    for (name, sum) in sums {
        for mode in Mode::BODIES {
            let ask = || root.ask("PUT", "/photos/a").mode(mode).body(TEXT);
            let with = |ask: Ask, value: &str| {
                if mode.has_trailer() {
                    ask.header("x-amz-trailer", name).trailer(name, value)
                } else {
                    ask.header(name, value)
                }
            };
            let word = name.rsplit('-').next().unwrap().to_uppercase();
            let put = with(ask(), sum).header("x-amz-sdk-checksum-algorithm", &word).send().ok();
            assert_eq!(put.header(name), Some(sum), "{mode:?}");
            let got = root.ask("HEAD", "/photos/a").header("x-amz-checksum-mode", "ENABLED").send();
            assert_eq!(got.header(name), Some(sum), "{mode:?}");
            let mut other = sum.to_owned().into_bytes();
            other[0] = if other[0] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).unwrap();
            with(ask(), &other).send().fails(400, "BadDigest");
            with(ask(), "AAAA").send().fails(400, "InvalidRequest");
            let word = if word == "SHA1" { "SHA256" } else { "SHA1" };
            let mixed = with(ask(), sum).header("x-amz-sdk-checksum-algorithm", word).send();
            mixed.fails(400, "InvalidRequest");
            assert_eq!(root.get("/photos/a").text().as_bytes(), TEXT);
        }
    }
}

/// The error, in which modes, how, and the answer.
type Case = (&'static str, &'static [Mode], fn(Ask) -> Ask, u16, &'static str);

use Mode::{Chunks, ChunksTrailer, Hashed, Unsigned, UnsignedTrailer};

const FRAMED: &[Mode] = &[Chunks, ChunksTrailer, UnsignedTrailer];
const TRAILED: &[Mode] = &[ChunksTrailer, UnsignedTrailer];
const SIGNED: &[Mode] = &[Chunks, ChunksTrailer];

fn flip(mut wire: Vec<u8>) -> Vec<u8> {
    let at = wire.len() - wire.len() / 2;
    wire[at] ^= 1;
    wire
}

fn replace(wire: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    let at = wire.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    [&wire[..at], to.as_bytes(), &wire[at + from.len()..]].concat()
}

fn crc(ask: Ask) -> Ask {
    ask.header("x-amz-trailer", CRC.0)
}

const CASES: &[Case] = &[
    (
        "md5",
        &Mode::BODIES,
        |a| a.header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        400,
        "BadDigest",
    ),
    ("no md5", &Mode::BODIES, |a| a.header("content-md5", "AAAA"), 400, "InvalidDigest"),
    ("flipped", &[Hashed], |a| a.lie(|l| l.wire = Some(flip)), 400, "XAmzContentSHA256Mismatch"),
    ("flipped", SIGNED, |a| a.lie(|l| l.wire = Some(flip)), 403, "SignatureDoesNotMatch"),
    ("too little", &[Unsigned, Hashed], |a| a.lie(|l| l.cut = Some(3)), 0, ""),
    ("too little", FRAMED, |a| a.lie(|l| l.cut = Some(10)), 0, ""),
    (
        "no length",
        &[Unsigned, Hashed],
        |a| {
            a.late_header("transfer-encoding", "chunked").lie(|l| {
                l.no_content_length = true;
                l.wire = Some(|body| [b"b\r\n", &body[..], b"\r\n0\r\n\r\n"].concat());
            })
        },
        411,
        "MissingContentLength",
    ),
    (
        "no decoded length",
        FRAMED,
        |a| a.lie(|l| l.no_decoded_length = true),
        411,
        "MissingContentLength",
    ),
    (
        "decoded length",
        FRAMED,
        |a| a.lie(|l| l.decoded_length = Some("10".into())),
        400,
        "IncompleteBody",
    ),
    (
        "decoded length",
        FRAMED,
        |a| a.lie(|l| l.decoded_length = Some("12".into())),
        400,
        "IncompleteBody",
    ),
    (
        "decoded length",
        FRAMED,
        |a| a.lie(|l| l.decoded_length = Some("x".into())),
        400,
        "InvalidRequest",
    ),
    (
        "decoded length",
        FRAMED,
        |a| a.lie(|l| l.decoded_length = Some("-1".into())),
        400,
        "InvalidRequest",
    ),
    (
        "last chunk missing",
        FRAMED,
        |a| {
            a.lie(|l| {
                l.wire = Some(|wire| {
                    let at = wire.windows(5).position(|window| window == b"world").unwrap();
                    wire[..at + 7].to_vec()
                })
            })
        },
        400,
        "IncompleteBody",
    ),
    (
        "length of a chunk",
        FRAMED,
        |a| {
            a.lie(|l| {
                l.wire = Some(|mut wire| {
                    wire[0] = b'z';
                    wire
                })
            })
        },
        400,
        "IncompleteBody",
    ),
    (
        "length of a chunk too short",
        FRAMED,
        |a| {
            a.lie(|l| {
                l.wire = Some(|mut wire| {
                    wire[0] = b'a';
                    wire
                })
            })
        },
        0,
        "",
    ),
    (
        "length of a chunk too long",
        FRAMED,
        |a| {
            a.lie(|l| {
                l.wire = Some(|mut wire| {
                    wire[0] = b'c';
                    wire
                })
            })
        },
        0,
        "",
    ),
    (
        "length beyond numbers",
        FRAMED,
        |a| a.lie(|l| l.wire = Some(|wire| [b"fffffffffffffffff", &wire[1..]].concat())),
        400,
        "IncompleteBody",
    ),
    (
        "head of a chunk without end",
        FRAMED,
        |a| a.lie(|l| l.wire = Some(|_| vec![b'0'; 100_000])),
        400,
        "IncompleteBody",
    ),
    (
        "chunk without signature",
        SIGNED,
        |a| {
            a.lie(|l| {
                l.wire = Some(|wire| {
                    let at = wire.iter().position(|byte| *byte == b'\r').unwrap();
                    [b"b", &wire[at..]].concat()
                })
            })
        },
        403,
        "SignatureDoesNotMatch",
    ),
    (
        "signature of a chunk",
        SIGNED,
        |a| {
            a.lie(|l| {
                l.wire = Some(|mut wire| {
                    wire[30] = if wire[30] == b'0' { b'1' } else { b'0' };
                    wire
                })
            })
        },
        403,
        "SignatureDoesNotMatch",
    ),
    (
        "signature of the last chunk",
        SIGNED,
        |a| {
            a.lie(|l| {
                l.wire = Some(|wire| {
                    let mut wire = wire;
                    let text = b"\r\n0;chunk-signature=";
                    let at = wire.windows(text.len()).position(|window| window == text).unwrap();
                    let at = at + text.len() + 5;
                    wire[at] = if wire[at] == b'0' { b'1' } else { b'0' };
                    wire
                })
            })
        },
        403,
        "SignatureDoesNotMatch",
    ),
    (
        "bytes after the end",
        &[Chunks],
        |a| a.lie(|l| l.wire = Some(|wire| [&wire[..], b"more:1"].concat())),
        400,
        "IncompleteBody",
    ),
    ("trailer wrong", TRAILED, |a| crc(a).trailer(CRC.0, "yZRlqw=="), 400, "BadDigest"),
    ("trailer missing", TRAILED, crc, 400, "MalformedTrailerError"),
    ("trailer not announced", TRAILED, |a| a.trailer(CRC.0, CRC.1), 400, "MalformedTrailerError"),
    (
        "another trailer",
        TRAILED,
        |a| crc(a).trailer("x-amz-checksum-crc32", "DUoRhQ=="),
        400,
        "MalformedTrailerError",
    ),
    (
        "trailer twice",
        TRAILED,
        |a| crc(a).trailer(CRC.0, CRC.1).trailer(CRC.0, CRC.1),
        400,
        "MalformedTrailerError",
    ),
    (
        "trailer malformed",
        &[UnsignedTrailer],
        |a| {
            crc(a).trailer(CRC.0, CRC.1).lie(|l| {
                l.wire = Some(|wire| replace(wire, "crc32c:", "crc32c "));
            })
        },
        400,
        "MalformedTrailerError",
    ),
    (
        "trailer changed",
        &[ChunksTrailer],
        |a| {
            crc(a).trailer(CRC.0, CRC.1).lie(|l| {
                l.wire = Some(|wire| replace(wire, "yZRlqg", "yZRlqw"));
            })
        },
        403,
        "SignatureDoesNotMatch",
    ),
    (
        "trailer signature missing",
        &[ChunksTrailer],
        |a| {
            crc(a).trailer(CRC.0, CRC.1).lie(|l| {
                l.wire = Some(|wire| {
                    let name = b"x-amz-trailer-signature";
                    let at = wire.windows(name.len()).position(|window| window == name).unwrap();
                    [&wire[..at], b"\r\n"].concat()
                });
            })
        },
        400,
        "MalformedTrailerError",
    ),
    (
        "trailer of another sort",
        TRAILED,
        |a| a.header("x-amz-trailer", "x-amz-meta-a").trailer("x-amz-meta-a", "b"),
        400,
        "InvalidRequest",
    ),
    (
        "trailer announced, mode without",
        &[Unsigned, Hashed, Chunks],
        crc,
        400,
        "MalformedTrailerError",
    ),
    (
        "header and trailer",
        TRAILED,
        |a| crc(a).trailer(CRC.0, CRC.1).header("x-amz-checksum-crc32", "DUoRhQ=="),
        400,
        "InvalidRequest",
    ),
    (
        "two checksums",
        &Mode::BODIES,
        |a| a.header("x-amz-checksum-crc32", "DUoRhQ==").header(CRC.0, CRC.1),
        400,
        "InvalidRequest",
    ),
    (
        "algorithm alone",
        &Mode::BODIES,
        |a| a.header("x-amz-sdk-checksum-algorithm", "CRC32"),
        400,
        "InvalidRequest",
    ),
    (
        "framed without saying so",
        &[Unsigned],
        |a| a.header("content-encoding", "aws-chunked"),
        400,
        "InvalidRequest",
    ),
    (
        "framed without saying so, with the length of the content",
        &[Unsigned, Hashed],
        |a| {
            a.header("content-encoding", "gzip, aws-chunked")
                .header("x-amz-decoded-content-length", "11")
        },
        400,
        "InvalidRequest",
    ),
];

#[test]
fn whatever_is_wrong_changes_nothing() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", BEFORE).ok();
    for (what, modes, change, status, code) in CASES {
        for mode in *modes {
            println!("{what} {mode:?}");
            let reply = change(root.ask("PUT", "/photos/a").mode(*mode).body(TEXT)).send();
            match status {
                0 => assert!(matches!(reply.status, 0 | 400 | 403), "{}", reply.text()),
                _ => {
                    reply.fails(*status, code);
                }
            }
            assert_eq!(root.get("/photos/a").ok().body, BEFORE, "{what} {mode:?}");
        }
    }
}

#[test]
fn a_body_with_its_hash_is_what_it_is_whatever_is_said_of_frames() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    for (said, kept) in [("aws-chunked", None), ("gzip, aws-chunked", Some("gzip"))] {
        root.ask("PUT", "/photos/a").header("content-encoding", said).body(TEXT).send().ok();
        let reply = root.get("/photos/a").ok();
        assert_eq!((&reply.body[..], reply.header("content-encoding")), (TEXT, kept), "{said}");
    }
}

#[test]
fn a_part_is_verified_as_an_object_is() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let upload = root.post("/photos/a?uploads", "").ok().one("UploadId");
    for (what, modes, change, status, code) in CASES {
        for mode in *modes {
            println!("{what} {mode:?}");
            let path = format!("/photos/a?partNumber=1&uploadId={upload}");
            let reply = change(root.ask("PUT", &path).mode(*mode).body(TEXT)).send();
            match status {
                0 => assert!(matches!(reply.status, 0 | 400 | 403), "{}", reply.text()),
                _ => {
                    reply.fails(*status, code);
                }
            }
        }
    }
    let list = root.get(&format!("/photos/a?uploadId={upload}")).ok();
    assert!(list.all("PartNumber").is_empty(), "{}", list.text());
}

#[test]
fn an_anonymous_body_is_never_taken_for_a_signed_one() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.ask("PUT", "/photos?acl").header("x-amz-acl", "public-read").send().ok();
    for mode in Mode::BODIES {
        let reply = server.anonymous().ask("PUT", "/photos/a").mode(mode).body(TEXT).send();
        reply.fails(403, "AccessDenied");
    }
    root.get("/photos/a").fails(404, "NoSuchKey");
}

#[test]
fn a_connection_goes_on_after_a_refused_body() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let mut connection = Connection::open(server.address);
    for _ in 0..3 {
        connection.send(&root.ask("PUT", "/nosuch/a").body(&vec![1; 100_000]).wire());
        connection.reply("PUT").fails(404, "NoSuchBucket");
        connection.send(&root.ask("GET", "/photos").wire());
        connection.reply("GET").ok();
    }
}

#[test]
fn one_chunk_of_many_megabytes_is_not_held_in_memory() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let data = vec![7; 40 << 20];
    for mode in [Mode::UnsignedTrailer, Mode::Chunks] {
        let mut ask = root.ask("PUT", "/photos/a").mode(mode).body(&data);
        ask.chunk = data.len();
        ask.send().ok();
        assert_eq!(root.head("/photos/a").header("content-length"), Some("41943040"));
    }
}

/// Bodies of XML that are announced and do not come take no room, whoever sends them.
#[test]
fn xml_that_does_not_come_keeps_nobody_waiting() {
    let server = Server::start();
    let (slow, alice) = (server.user("slow"), server.user("alice"));
    assert_eq!(alice.put("/alice", b"").status, 200);
    assert_eq!(slow.put("/slow", b"").status, 200);
    let body = vec![b' '; 2 << 20];
    let mut held = Vec::new();
    for (bucket, count) in [("slow", 40), ("alice", 40), ("nosuch", 40)] {
        for _ in 0..count {
            let mut ask = slow.ask("POST", &format!("/{bucket}?delete=")).body(&body);
            ask.lie.cut = Some(1);
            let mut connection = Connection::open(server.address);
            connection.send(&ask.wire());
            held.push(connection);
        }
    }
    // Where the caller may do nothing, no byte of a long body is waited for.
    assert_eq!(held[40].try_reply("POST").unwrap().status, 403);
    assert_eq!(held[80].try_reply("POST").unwrap().status, 404);
    let keys = "<Delete><Object><Key>a</Key></Object></Delete>";
    let long = format!("{}{keys}", " ".repeat(100_000));
    assert_eq!(alice.post("/alice?delete=", &long).status, 200);
    assert_eq!(slow.post("/slow?delete=", &long).status, 200);
}

#[test]
fn what_is_compared_is_limited_and_a_request_names_one_host() {
    let server = Server::start();
    let many: String = (0..65).map(|at| format!("a{at}=&")).collect();
    let ask = |head: String| {
        let mut connection = Connection::open(server.address);
        connection.send(head.as_bytes());
        connection.try_reply("GET").unwrap().status
    };
    assert_eq!(ask(format!("GET /bucket/a?{many} HTTP/1.1\r\nHost: a\r\n\r\n")), 400);
    let signed = vec!["host"; 101].join(";");
    let signature = "0".repeat(64);
    let head = format!(
        "GET /bucket/a HTTP/1.1\r\nHost: a\r\nx-amz-date: 20260101T000000Z\r\n\
         x-amz-content-sha256: UNSIGNED-PAYLOAD\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential=KEY/20260101/eu-test-1/s3/aws4_request, SignedHeaders={signed}, \
         Signature={signature}\r\n\r\n"
    );
    assert_eq!(ask(head), 400);
    assert_eq!(ask("GET /bucket/a HTTP/1.1\r\n\r\n".into()), 400);
    assert_eq!(ask("GET /bucket/a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into()), 400);
    assert_eq!(ask("GET /bucket/a HTTP/1.1\r\nHost: a\r\n\r\n".into()), 404);
}

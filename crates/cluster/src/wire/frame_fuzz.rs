//! Any bytes, cut anywhere.
#![allow(clippy::indexing_slicing)]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const LIMIT: usize = 300;

fn encode(frame: &Frame) -> Vec<u8> {
    let Frame { kind, method, id, ref trace, ref payload } = *frame;
    let length = payload.len() as u32;
    match trace {
        Some(trace) => {
            let (head, trace) = traced(method, id, length, trace);
            [&head[..], &trace, payload].concat()
        }
        None => [&header(kind, method, id, length)[..], payload].concat(),
    }
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let (id, span) = (1..=u128::MAX, 1..=u64::MAX);
    (id, span, any::<bool>()).prop_map(|(id, span, sampled)| Trace { id, span, parent: 0, sampled })
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let numbers = prop_oneof![Just(1u8), Just(2), Just(3), Just(5), Just(6), Just(7)];
    let payload = prop::collection::vec(any::<u8>(), 0..=LIMIT);
    let trace = prop::option::of(any_trace());
    let parts = (numbers, any::<u16>(), any::<u64>(), trace, payload);
    parts.prop_map(|(number, method, id, trace, payload)| {
        let kind = Kind::from_number(number).unwrap();
        let trace = trace.filter(|_| kind == Kind::Request);
        Frame { kind, method, id, trace, payload: payload.into() }
    })
}

/// Frames, then arbitrary bytes, then bytes of a frame with one spoilt: what is parsed before an
/// error must not depend on how it was cut.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop::collection::vec(any_frame(), 0..4);
    let noise = prop::collection::vec(any::<u8>(), 0..80);
    let spoil = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (frames, noise, spoil).prop_map(|(frames, noise, spoil)| {
        let mut bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
        bytes.extend(noise);
        if let (Some((at, value)), false) = (spoil, bytes.is_empty()) {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes
    })
}

/// All frames up to the first error, and that error.
fn parse(pieces: &[&[u8]]) -> (Vec<Frame>, Option<String>) {
    let mut parser = Parser::new(LIMIT);
    let mut frames = Vec::new();
    for piece in pieces {
        parser.room();
        parser.buf.extend_from_slice(piece);
        loop {
            match parser.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
        assert!(parser.buf.len() < HEADER_BYTES + TRACE_BYTES + LIMIT, "whole frames do not stay");
        assert!(parser.buf.capacity() <= 4 * READ_BYTES, "memory is bounded");
    }
    (frames, None)
}

#[test]
fn any_bytes_cut_anywhere_parse_alike() {
    let mut runner = TestRunner::new(Config { cases: 100_000, ..Config::default() });
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    runner
        .run(&(any_bytes(), cuts), |(bytes, cuts)| {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (whole, cut) = (parse(&[&bytes]), parse(&pieces));
            prop_assert_eq!(&whole, &cut);
            let encoded: Vec<u8> = whole.0.iter().flat_map(encode).collect();
            // Reserved bytes may differ, and a trace may be none.
            prop_assert!(encoded.len() <= bytes.len());
            Ok(())
        })
        .unwrap();
}

#[test]
fn frames_read_back_byte_by_byte() {
    let mut runner = TestRunner::new(Config { cases: 2000, ..Config::default() });
    runner
        .run(&prop::collection::vec(any_frame(), 1..4), |frames| {
            let bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
            let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(parse(&pieces), (frames, None));
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_no_peer_sends_is_refused_by_its_header() {
    let check_kind = |kind: Kind, at: usize, value: u8, expect: &str| {
        let mut bytes = header(kind, 1, 2, 3).to_vec();
        bytes[at] = value;
        let (frames, error) = parse(&[&bytes]);
        assert!(frames.is_empty());
        assert!(error.as_ref().is_some_and(|e| e.contains(expect)), "{error:?}, not {expect}");
    };
    let check = |at, value, expect: &str| check_kind(Kind::Request, at, value, expect);
    for kind in [0, 4, 8, 255] {
        check(4, kind, &format!("unknown kind {kind}"));
    }
    check_kind(Kind::Reply, 5, 1, "unknown flags 0x01");
    check(5, 3, "unknown flags 0x03");
    check(5, 0x80, "unknown flags 0x80");
    check(1, 0x02, "at most 300");
    check(3, 0xff, "at most 300");
}

#[test]
fn a_long_frame_takes_memory_only_as_it_comes() {
    let mut parser = Parser::new(8 << 20);
    let head = header(Kind::Request, 1, 2, 8 << 20);
    parser.room().extend_from_slice(&head);
    assert!(parser.next_frame().unwrap().is_none());
    assert!(parser.room().capacity() <= 2 * READ_BYTES, "a header alone takes no memory");
    let piece = vec![7; 10_000];
    let mut come = 0;
    while come < 8 << 20 {
        let piece = &piece[..piece.len().min((8 << 20) - come)];
        parser.room().extend_from_slice(piece);
        come += piece.len();
        assert!(parser.buf.capacity() <= (AHEAD + 1) * come + 2 * READ_BYTES);
        if come < 8 << 20 {
            assert!(parser.next_frame().unwrap().is_none());
        }
    }
    assert_eq!(parser.next_frame().unwrap().unwrap().payload.len(), 8 << 20);
    assert!(parser.room().capacity() <= 2 * READ_BYTES, "and leaves none behind");
}

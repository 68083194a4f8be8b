//! The parsers of log records take any bytes without a panic and without large allocations.

use bytes::Bytes;
use cairn_base::Rng;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::Fence;
use cairn_meta::engine::embedded::record::{
    ALIGN, Draft, HEADER_BYTES, Header, Kind, RawHeader, encode, parse_rows,
};
use proptest::prelude::*;

use crate::support::random_changes;

const LOG: u64 = 77;

fn draft(sequence: u64) -> Draft {
    let fence = Fence { epoch: 3, batch: sequence };
    Draft { kind: Kind::Batch, log_id: LOG, sequence, fence, previous: 9 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), rows in any::<u32>()) {
        let _ = Header::parse(&bytes, LOG);
        let header = RawHeader {
            version: 1,
            kind: 1,
            log_id: LOG,
            sequence: 1,
            numbers: [0; 2],
            count: rows,
            body_bytes: bytes.len() as u32,
            body_crc: 0,
            previous: 0,
            crc: 0,
        };
        let body = Bytes::from(bytes);
        header.matches(&body);
        if let Ok(rows) = parse_rows(&header, &body) {
            prop_assert!(rows.len() * 6 <= body.len());
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let rng = SeededRng::new(1);
    let mut out = Vec::new();
    for sequence in 0..2_000 {
        let changes = random_changes(&rng, 50);
        let written = encode(&draft(sequence), &changes, &mut out).unwrap();
        assert_eq!(out.len() % ALIGN, 0);
        let header = Header::parse(&out, LOG).unwrap().unwrap();
        assert_eq!((header.raw, header.kind), (written, Kind::Batch));
        assert_eq!(header.fence, Fence { epoch: 3, batch: sequence });
        assert_eq!((header.raw.sequence, header.raw.previous), (sequence, 9));
        let header = header.raw;
        assert_eq!(header.record_bytes(), out.len() as u64);
        let end = HEADER_BYTES + header.body_bytes as usize;
        let body = Bytes::copy_from_slice(&out[HEADER_BYTES..end]);
        assert!(header.matches(&body));
        assert_eq!(parse_rows(&header, &body).unwrap(), changes);
        assert!(Header::parse(&out, LOG + 1).unwrap().is_none());
    }
}

/// Sound records with a few bytes changed: none passes as another record.
#[test]
fn damaged_records_are_not_records() {
    let rng = SeededRng::new(2);
    let mut out = Vec::new();
    for sequence in 0..100_000 {
        let changes = if sequence % 50 == 0 { random_changes(&rng, 50) } else { vec![] };
        encode(&draft(sequence), &changes, &mut out).unwrap();
        let end = HEADER_BYTES + changes.iter().map(|(k, _)| k.len()).sum::<usize>();
        for _ in 0..=rng.below(3) {
            let place = rng.below(end as u64) as usize;
            out[place] ^= 1 << rng.below(8);
        }
        let Ok(Some(Header { raw: header, .. })) = Header::parse(&out, LOG) else { continue };
        let body = out.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes as usize);
        if let Some(body) = body.filter(|body| header.matches(body)) {
            // The same bit flipped twice.
            assert!(parse_rows(&header, &Bytes::copy_from_slice(body)).is_ok());
            assert_eq!(header.sequence, sequence);
        }
    }
    let mut noise = vec![0; 1 << 20];
    rng.fill(&mut noise);
    assert!(noise.chunks(64).all(|chunk| Header::parse(chunk, LOG).unwrap().is_none()));
}

//! Messages and stored values stay as they are: files here hold them as text.
//!
//! `verbs/` has a file for each number that a verb ever had, `sessions/` one for each method,
//! `rows/` one for each kind of row. A test that finds another text says what to do. Where there
//! is something new to be written down: `CAIRN_GOLDEN=write cargo test -p cairn-meta --test wire`.
#![allow(clippy::unwrap_used)]

mod rows;
mod sessions;
mod stored;
mod verbs;

use std::path::PathBuf;

use cairn_base::Error;
use cairn_meta::wire;
use cairn_sim::golden::Codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn folder(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/wire", name].iter().collect()
}

fn codec<T: Serialize + DeserializeOwned>() -> Codec<T> {
    Codec {
        encode: |value| wire::encode(value).unwrap().to_vec(),
        decode: |bytes| wire::decode(bytes).unwrap(),
    }
}

/// The bytes of what is sent in a form of its own.
fn forms(name: &str, turn: usize) -> Option<Vec<u8>> {
    if name == "Error" {
        return Some(Error::NotFound(format!("text {turn}")).to_bytes().to_vec());
    }
    if name == "Extent" {
        let extents = rows::extents().extents;
        // A message has its length before it.
        return Some(wire::encode(&extents[turn % extents.len()]).unwrap()[1..].to_vec());
    }
    let rows = rows::samples();
    let all: Vec<_> = rows.iter().filter(|row| row.name == name).collect();
    (!all.is_empty()).then(|| all[turn % all.len()].bytes.to_vec())
}

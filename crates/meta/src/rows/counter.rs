//! Numbers that have rows of their own.

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::codec::{Fields, Writer};

use super::{FORMAT, Row};

/// A number: the rows `r <body>`, `k n <name>`, and most of `c <name>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counter {
    pub value: u64,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Counter {
    pub fn new(value: u64) -> Counter {
        Counter { value, unknown: Vec::new() }
    }
}

impl Row for Counter {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, self.value).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Counter> {
        let mut counter = Counter::new(0);
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => counter.value = field.number()?,
                _ => field.keep(&mut counter.unknown),
            }
        }
        Ok(counter)
    }
}

/// Encodes a number as the row of a fresh counter.
pub fn encode_number(value: u64) -> Bytes {
    Counter::new(value).encode()
}

/// Decodes the number of a counter's row.
pub fn decode_number(row: &Bytes) -> Result<u64> {
    Counter::decode(row).map(|counter| counter.value)
}

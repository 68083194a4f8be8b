//! Calls of clients that were executed or refused, for the case that they are sent again.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Result, Timestamp};

use super::{FORMAT, Row, array, unexpected};

/// Bytes of an executed call in a row; a refused call has its status after these.
const DONE_BYTES: usize = 16 + 8 + 1 + 8;
const REFUSED_BYTES: usize = DONE_BYTES + 4;

/// A call that was executed or refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoneCall {
    pub checksum: [u8; 16],
    pub time: Timestamp,
    /// Last of its steps that was executed.
    pub step: u8,
    /// Value from which a reply is made: the number of the inode that the call made or changed; for
    /// an append, the offset.
    pub result: u64,
    /// Status with which it was refused, after `step` or before all steps; 0 if it was not.
    pub status: u32,
}

/// Some calls of a client, by their checksums: the row `a <address> <set>`. So the memory of a
/// client is bounded, however many calls it makes, and a call is found by one row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    /// Calls, the oldest first.
    pub done: Vec<DoneCall>,
    pub unknown: Vec<u8>,
}

impl Calls {
    /// Most rows of a client.
    pub const SETS: u16 = 4096;
    /// Most calls in a row of a client of NFS.
    pub const WAYS: usize = 8;
    /// Most calls in a row of a user.
    pub const USER_WAYS: usize = 64;

    /// Checksum that stands for all calls of a damaged row, which are unknown.
    pub const DAMAGED: [u8; 16] = [0xff; 16];

    /// Row that replaces a damaged one.
    pub fn damaged(time: Timestamp) -> Calls {
        let (checksum, status) = (Calls::DAMAGED, u32::MAX);
        let unknown = DoneCall { checksum, time, step: 0, result: 0, status };
        Calls { done: vec![unknown], unknown: Vec::new() }
    }

    /// Adds a call, or its next step. Removes calls from before `since`, and the oldest ones if
    /// there are more than `most`.
    pub fn add(&mut self, done: DoneCall, since: i64, most: usize) {
        self.done.retain(|other| other.checksum != done.checksum && other.time.0 >= since);
        self.done.push(done);
        self.done.drain(..self.done.len().saturating_sub(most));
    }
}

impl Row for Calls {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        for done in &self.done {
            let mut bytes = Vec::with_capacity(REFUSED_BYTES);
            bytes.extend(done.checksum);
            bytes.extend(done.time.0.to_be_bytes());
            bytes.push(done.step);
            bytes.extend(done.result.to_be_bytes());
            if done.status == 0 {
                writer.bytes(1, &bytes);
            } else {
                bytes.extend(done.status.to_be_bytes());
                writer.bytes(2, &bytes);
            }
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Calls> {
        let mut calls = Calls::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => calls.done.push(decode_done(&array("call", &field.value)?)?),
                2 => calls.done.push(decode_refused(&array("refused call", &field.value)?)?),
                _ => field.keep(&mut calls.unknown),
            }
        }
        Ok(calls)
    }
}

fn decode_done(bytes: &[u8; DONE_BYTES]) -> Result<DoneCall> {
    let parts = || {
        let (checksum, rest) = bytes.split_first_chunk()?;
        let (time, rest) = rest.split_first_chunk()?;
        let (step, result) = rest.split_first()?;
        let time = Timestamp(i64::from_be_bytes(*time));
        let result = u64::from_be_bytes(result.try_into().ok()?);
        Some(DoneCall { checksum: *checksum, time, step: *step, result, status: 0 })
    };
    parts().ok_or_else(|| unexpected("call", "too few bytes"))
}

fn decode_refused(bytes: &[u8; REFUSED_BYTES]) -> Result<DoneCall> {
    let parts = || {
        let (done, status) = bytes.split_first_chunk()?;
        let status = u32::from_be_bytes(status.try_into().ok()?);
        Some(decode_done(done).map(|done| DoneCall { status, ..done }))
    };
    parts().ok_or_else(|| unexpected("refused call", "too few bytes"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u8, time: i64) -> DoneCall {
        DoneCall { checksum: [number; 16], time: Timestamp(time), step: 1, result: 9, status: 0 }
    }

    #[test]
    fn a_row_is_what_was_written() {
        let mut calls = Calls::default();
        calls.add(call(1, -5), i64::MIN, Calls::WAYS);
        let last = DoneCall { step: 255, result: u64::MAX, ..call(2, i64::MAX) };
        calls.add(last, i64::MIN, Calls::WAYS);
        calls.add(DoneCall { status: 17, ..call(3, 7) }, i64::MIN, Calls::WAYS);
        calls.add(call(4, 8), i64::MIN, Calls::WAYS);
        assert_eq!(Calls::decode(&calls.encode()).unwrap(), calls);
        let mut writer = Writer::new(FORMAT);
        writer.bytes(1, &[0; DONE_BYTES - 1]);
        assert_eq!(Calls::decode(&writer.finish()).unwrap_err().kind(), "corrupt");
        let mut writer = Writer::new(FORMAT);
        writer.bytes(2, &[0; DONE_BYTES]);
        assert_eq!(Calls::decode(&writer.finish()).unwrap_err().kind(), "corrupt");
    }

    #[test]
    fn old_calls_go_and_a_row_is_bounded() {
        let mut calls = Calls::default();
        for number in 0..20 {
            calls.add(call(number, number.into()), 0, Calls::WAYS);
        }
        let kept: Vec<u8> = calls.done.iter().map(|done| done.checksum[0]).collect();
        assert_eq!(kept, [12, 13, 14, 15, 16, 17, 18, 19]);
        calls.add(DoneCall { step: 2, ..call(17, 21) }, 15, Calls::WAYS);
        let kept: Vec<(u8, u8)> =
            calls.done.iter().map(|done| (done.checksum[0], done.step)).collect();
        assert_eq!(kept, [(15, 1), (16, 1), (18, 1), (19, 1), (17, 2)]);
    }
}

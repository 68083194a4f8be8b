//! A frame: a header of 32 bytes and a payload. `docs/protocol.md` has every byte.
//!
//! The parser knows no socket: it is given bytes as they come and gives frames. Nothing here
//! panics on any bytes, and memory is taken as bytes come.

#![deny(clippy::indexing_slicing)]

use bytes::{Buf, Bytes, BytesMut};
use cairn_base::trace::{TRACE_BYTES, Trace};
use cairn_base::{Error, Result};

use crate::limits::{COPY_BYTES, READ_BYTES};

pub const HEADER_BYTES: usize = 32;
/// The flag of a request with a trace, which is between its header and its payload.
const TRACED: u8 = 1;

/// Greatest ratio of the memory for a frame to its received bytes. Received bytes are moved
/// whenever the memory grows, so the fewer have arrived, the better.
const AHEAD: usize = 15;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Request,
    /// The payload is the reply to the request with this id.
    Reply,
    /// The payload is an error, in answer to the request with this id.
    Error,
    /// Asks for a `Pong` with the same id.
    Ping,
    Pong,
    /// Send no further request here; the payload is an error that says why.
    GoAway,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Request => 1,
            Kind::Reply => 2,
            Kind::Error => 3,
            // Number 4 is reserved: a request without an answer would have no limit.
            Kind::Ping => 5,
            Kind::Pong => 6,
            Kind::GoAway => 7,
        }
    }

    fn from_number(number: u8) -> Option<Kind> {
        use Kind::{Error, GoAway, Ping, Pong, Reply, Request};
        let all = [Request, Reply, Error, Ping, Pong, GoAway];
        all.into_iter().find(|kind| kind.number() == number)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub kind: Kind,
    /// The method of a request; 0 in other frames.
    pub method: u16,
    pub id: u64,
    /// The trace that a request belongs to, if its sender said so.
    pub trace: Option<Trace>,
    pub payload: Bytes,
}

/// Makes the header of a frame whose payload has `length` bytes.
pub fn header(kind: Kind, method: u16, id: u64, length: u32) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    // 0..4 length, 4 kind, 5 flags, 6..8 method, 8..16 id, 16..32 reserved
    let word = u64::from(length) | u64::from(kind.number()) << 32 | u64::from(method) << 48;
    let [low, high, ..] = out.as_chunks_mut::<8>().0 else { return out };
    *low = word.to_le_bytes();
    *high = id.to_le_bytes();
    out
}

/// Makes the header of a request that belongs to `trace`, and the bytes of the trace that follow
/// it.
pub fn traced(
    method: u16,
    id: u64,
    length: u32,
    trace: &Trace,
) -> ([u8; HEADER_BYTES], [u8; TRACE_BYTES]) {
    let mut out = header(Kind::Request, method, id, length);
    let [_, _, _, _, _, flags, ..] = &mut out;
    *flags = TRACED;
    (out, trace.to_bytes())
}

/// Turns bytes as they come into frames.
#[derive(Debug)]
pub struct Parser {
    buf: BytesMut,
    limit: usize,
    /// Bytes that the frame at the front of `buf` still lacks, as far as is known.
    missing: usize,
    /// Set once `buf` grew for a long payload.
    grown: bool,
}

impl Parser {
    /// Makes a parser that refuses payloads above `limit` bytes by their header.
    pub fn new(limit: usize) -> Parser {
        Parser { buf: BytesMut::new(), limit, missing: HEADER_BYTES, grown: false }
    }

    /// Returns the buffer to append received bytes to. It has spare room: at most [`AHEAD`] times
    /// the received bytes, or [`READ_BYTES`].
    pub fn room(&mut self) -> &mut BytesMut {
        if self.grown && self.buf.is_empty() {
            self.buf = BytesMut::new();
            self.grown = false;
        }
        let want = self.missing.min(AHEAD * self.buf.len()).max(READ_BYTES);
        if self.buf.capacity() - self.buf.len() < READ_BYTES / 4 {
            self.buf.reserve(want);
        }
        self.grown |= want > READ_BYTES;
        &mut self.buf
    }

    /// Takes the next frame, or `None` until more bytes have come.
    ///
    /// # Errors
    /// `Invalid` for what no peer of this version sends; the connection cannot go on then.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        let Some(head) = self.buf.first_chunk::<HEADER_BYTES>() else {
            self.missing = HEADER_BYTES - self.buf.len();
            return Ok(None);
        };
        let (kind, is_traced, method, id, length) = read_header(head)?;
        if length > self.limit {
            return Err(Error::Invalid(format!(
                "a frame of {length} bytes: at most {} are taken",
                self.limit
            )));
        }
        let head = HEADER_BYTES + if is_traced { TRACE_BYTES } else { 0 };
        let total = head + length;
        if self.buf.len() < total {
            self.missing = total - self.buf.len();
            return Ok(None);
        }
        let trace = if is_traced {
            self.buf.get(HEADER_BYTES..head).and_then(<[u8]>::first_chunk)
        } else {
            None
        };
        let trace = trace.and_then(Trace::from_bytes);
        self.buf.advance(head);
        let payload = match self.buf.get(..length) {
            Some(payload) if length <= COPY_BYTES => {
                let payload = Bytes::copy_from_slice(payload);
                self.buf.advance(length);
                payload
            }
            _ => self.buf.split_to(length).freeze(),
        };
        Ok(Some(Frame { kind, method, id, trace, payload }))
    }

    /// Returns true if a frame has begun and not ended.
    pub fn is_within_frame(&self) -> bool {
        !self.buf.is_empty()
    }
}

fn read_header(head: &[u8; HEADER_BYTES]) -> Result<(Kind, bool, u16, u64, usize)> {
    let [low, high, ..] = head.as_chunks::<8>().0 else {
        return Err(Error::Invalid("a frame without a header".to_owned()));
    };
    let word = u64::from_le_bytes(*low);
    let (length, number) = (word as u32, (word >> 32) as u8);
    let (flags, method) = ((word >> 40) as u8, (word >> 48) as u16);
    let kind = Kind::from_number(number)
        .ok_or_else(|| Error::Invalid(format!("a frame of unknown kind {number}")))?;
    let is_traced = kind == Kind::Request && flags == TRACED;
    if flags != 0 && !is_traced {
        return Err(Error::Invalid(format!("a frame with unknown flags {flags:#04x}")));
    }
    Ok((kind, is_traced, method, u64::from_le_bytes(*high), length as usize))
}

#[cfg(test)]
#[path = "frame_fuzz.rs"]
mod fuzz;

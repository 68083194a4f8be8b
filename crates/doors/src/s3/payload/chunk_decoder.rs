//! The framing `aws-chunked`: chunks with their lengths, each signed or none, and trailers.
//!
//! ```text
//!   <hex length>[;chunk-signature=<64 hex>]\r\n <bytes> \r\n   … as often as there is data
//!   0[;chunk-signature=<64 hex>]\r\n
//!   [<name>:<value>\r\n … [x-amz-trailer-signature:<64 hex>\r\n]] \r\n
//! ```
//!
//! Bytes are handed on as they arrive, however long a chunk is. The signature of a chunk is
//! verified at its end, and nothing is published before the end of the last chunk.

use aws_lc_rs::digest::{self, SHA256};
use bytes::{Buf, Bytes};
use s3s::{S3ErrorCode, S3Result};

use crate::s3::error::{refuse, refuse_with};
use crate::s3::sigv4::{SignedAt, SigningKey, hex, hex_sha256, same};

/// Bytes of the line before a chunk.
const LINE_BYTES: usize = 256;
/// Bytes of all trailers together, and their number.
const TRAILER_BYTES: usize = 16 << 10;
const TRAILERS: usize = 16;
const SIGNATURE: &str = "x-amz-trailer-signature";

/// Checks the signature of chunk after chunk, each made with the signature of the one before it.
pub(crate) struct ChunkSigner {
    pub(crate) key: SigningKey,
    pub(crate) at: SignedAt,
    /// Signature of the request, then of the last chunk.
    pub(crate) previous: String,
}

impl ChunkSigner {
    fn check(&mut self, kind: &str, hashes: &[&str], signature: &str) -> S3Result<()> {
        let lines: Vec<&str> = [self.previous.as_str()].iter().chain(hashes).copied().collect();
        let expected = self.key.sign(kind, &self.at, &lines);
        if !same(&expected, signature) {
            let what = "the signature of a chunk does not match";
            return Err(refuse(S3ErrorCode::SignatureDoesNotMatch, what));
        }
        self.previous = expected;
        Ok(())
    }
}

enum ChunkState {
    Line(Vec<u8>),
    Data {
        left: u64,
        signature: String,
        hash: Option<digest::Context>,
    },
    /// The two bytes after a chunk's data, with the number of those that have arrived.
    Break(usize),
    /// All bytes after the last chunk.
    End(Vec<u8>),
}

/// Decodes one body.
pub(crate) struct ChunkDecoder {
    state: ChunkState,
    signer: Option<ChunkSigner>,
    has_trailer: bool,
    trailers: Vec<(String, String)>,
}

fn garbled(what: &'static str) -> s3s::S3Error {
    refuse(S3ErrorCode::IncompleteBody, what)
}

fn bad_trailer(what: &'static str) -> s3s::S3Error {
    refuse_with("MalformedTrailerError", http::StatusCode::BAD_REQUEST, what)
}

impl ChunkDecoder {
    /// Returns a decoder. `signer` is set if chunks are signed; `has_trailer` if trailers may
    /// follow.
    pub(crate) fn new(signer: Option<ChunkSigner>, has_trailer: bool) -> ChunkDecoder {
        let state = ChunkState::Line(Vec::new());
        ChunkDecoder { state, signer, has_trailer, trailers: Vec::new() }
    }

    /// Takes the next data from `input`; `None` when more input is needed.
    pub(crate) fn decode(&mut self, input: &mut Bytes) -> S3Result<Option<Bytes>> {
        while !input.is_empty() {
            match &mut self.state {
                ChunkState::Line(line) => {
                    if take_line(line, input)? {
                        let line = std::mem::take(line);
                        self.begin_chunk(&line)?;
                    }
                }
                ChunkState::Data { left, hash, .. } => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    let data = input.split_to(len);
                    *left -= len as u64;
                    if let Some(hash) = hash {
                        hash.update(&data);
                    }
                    if *left == 0 {
                        self.end_chunk()?;
                    }
                    return Ok(Some(data));
                }
                ChunkState::Break(seen) => {
                    if input[0] != b"\r\n"[*seen] {
                        return Err(garbled("a chunk is longer than its head says"));
                    }
                    input.advance(1);
                    *seen += 1;
                    if *seen == 2 {
                        self.state = ChunkState::Line(Vec::new());
                    }
                }
                ChunkState::End(rest) => {
                    if rest.len() + input.len() > TRAILER_BYTES {
                        return Err(bad_trailer("the trailers are too long"));
                    }
                    rest.extend_from_slice(input);
                    input.clear();
                }
            }
        }
        Ok(None)
    }

    fn begin_chunk(&mut self, line: &[u8]) -> S3Result<()> {
        let text =
            std::str::from_utf8(line).map_err(|_| garbled("the head of a chunk is not text"))?;
        let (length, extension) = text.split_once(';').unwrap_or((text, ""));
        let digits =
            (1..=16).contains(&length.len()) && length.bytes().all(|byte| byte.is_ascii_hexdigit());
        let left = u64::from_str_radix(length, 16).ok().filter(|_| digits);
        let left =
            left.ok_or_else(|| garbled("the length of a chunk is not a hexadecimal number"))?;
        let signature = extension.strip_prefix("chunk-signature=").unwrap_or_default();
        if self.signer.is_some() && signature.len() != 64 {
            let what = "a chunk without a signature";
            return Err(refuse(S3ErrorCode::SignatureDoesNotMatch, what));
        }
        let hash = self.signer.as_ref().map(|_| digest::Context::new(&SHA256));
        self.state = ChunkState::Data { left, signature: signature.to_owned(), hash };
        if left == 0 {
            self.end_chunk()?;
            self.state = ChunkState::End(Vec::new());
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> S3Result<()> {
        let ChunkState::Data { signature, hash, .. } =
            std::mem::replace(&mut self.state, ChunkState::Break(0))
        else {
            return Ok(());
        };
        if let (Some(signer), Some(hash)) = (&mut self.signer, hash) {
            let hash = hex(hash.finish().as_ref());
            signer.check("AWS4-HMAC-SHA256-PAYLOAD", &[&hex_sha256(b""), &hash], &signature)?;
        }
        Ok(())
    }

    /// Checks at the end of the input that all of it has arrived, and reads its trailers.
    pub(crate) fn finish(&mut self) -> S3Result<()> {
        let ChunkState::End(rest) = &self.state else {
            let what = "the body ends before its last chunk";
            return Err(refuse(S3ErrorCode::IncompleteBody, what));
        };
        let text =
            std::str::from_utf8(rest).map_err(|_| bad_trailer("the trailers are not text"))?;
        let mut trailers: Vec<(String, String)> = Vec::new();
        let mut signature = None;
        for line in text.split('\n').map(|line| line.trim_end_matches('\r')) {
            if line.is_empty() {
                continue;
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| bad_trailer("a trailer has no colon"))?;
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
            if trailers.iter().any(|(other, _)| *other == name) || trailers.len() == TRAILERS {
                return Err(bad_trailer("a trailer is given twice"));
            }
            match name == SIGNATURE {
                true if signature.is_some() => {
                    return Err(bad_trailer("the trailers have two signatures"));
                }
                true => signature = Some(value),
                false => trailers.push((name, value)),
            }
        }
        let is_any = signature.is_some() || !trailers.is_empty();
        if is_any && !self.has_trailer {
            return Err(garbled("bytes follow the last chunk"));
        }
        if self.has_trailer
            && let Some(signer) = &mut self.signer
        {
            let signature =
                signature.ok_or_else(|| bad_trailer("the trailers have no signature"))?;
            trailers.sort();
            let canonical: String =
                trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            let hash = hex_sha256(canonical.as_bytes());
            signer.check("AWS4-HMAC-SHA256-TRAILER", &[&hash], &signature)?;
        }
        self.trailers = trailers;
        Ok(())
    }

    /// Returns lower-case names with their values; after [`ChunkDecoder::finish`].
    pub(crate) fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }
}

/// Takes bytes up to the next `\n`. Whether the line is whole; then it is without its break.
fn take_line(line: &mut Vec<u8>, input: &mut Bytes) -> S3Result<bool> {
    let end = input.iter().position(|byte| *byte == b'\n');
    let taken = input.split_to(end.map_or(input.len(), |at| at + 1));
    if line.len() + taken.len() > LINE_BYTES {
        return Err(garbled("the head of a chunk is too long"));
    }
    line.extend_from_slice(&taken);
    if end.is_none() {
        return Ok(false);
    }
    match line.strip_suffix(b"\r\n") {
        Some(whole) => {
            let len = whole.len();
            line.truncate(len);
            Ok(true)
        }
        None => Err(garbled("the head of a chunk does not end in CR LF")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::Rng;
    use cairn_base::rng::SeededRng;

    type DecodedBody = (Vec<u8>, Vec<(String, String)>);

    /// Decodes a body that comes in pieces of these lengths, over and over.
    fn decode(wire: &[u8], lengths: &[usize]) -> S3Result<DecodedBody> {
        let mut chunked = ChunkDecoder::new(None, true);
        let (mut rest, mut out) = (wire, Vec::new());
        for length in lengths.iter().cycle() {
            let mut input = Bytes::copy_from_slice(&rest[..rest.len().min(*length)]);
            rest = &rest[input.len()..];
            while let Some(data) = chunked.decode(&mut input)? {
                out.extend_from_slice(&data);
            }
            if rest.is_empty() {
                break;
            }
        }
        chunked.finish()?;
        Ok((out, chunked.trailers().to_vec()))
    }

    const WIRE: &[u8] = b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nX-A: b \r\nc:d\r\n\r\n";

    #[test]
    fn however_it_is_cut_it_is_the_same() {
        let trailers = [("x-a", "b"), ("c", "d")];
        let trailers = trailers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for first in 1..WIRE.len() {
            for second in 1..8 {
                let (data, found) = decode(WIRE, &[first, second]).unwrap();
                assert_eq!(data, b"hello world");
                assert_eq!(found, trailers);
            }
        }
    }

    #[test]
    fn no_cut_short_body_is_whole() {
        let end = WIRE.len() - b"X-A: b \r\nc:d\r\n\r\n".len();
        for len in 0..end {
            assert!(decode(&WIRE[..len], &[len.max(1)]).is_err(), "{len}");
        }
    }

    #[test]
    fn nonsense_never_panics_nor_gives_more_than_came() {
        let rng = SeededRng::new(1);
        for _ in 0..100_000 {
            let mut wire = WIRE.to_vec();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(wire.len() as u64) as usize;
                match rng.below(3) {
                    0 => wire[at] = rng.next_u64() as u8,
                    1 => wire.truncate(at.max(1)),
                    _ => wire.insert(at, b"0123456789abcdef\r\n;:"[rng.below(20) as usize]),
                }
            }
            let lengths = [1 + rng.below(20) as usize, 1 + rng.below(20) as usize];
            if let Ok((data, _)) = decode(&wire, &lengths) {
                assert!(data.len() <= wire.len());
            }
        }
    }
}

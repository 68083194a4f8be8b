//! Compressed bodies. The unpacked size is bounded before a body is unpacked.

use std::io::{self, Read};

use bytes::Bytes;
use cairn_base::{Error, Result};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::limits::ZSTD_WINDOW_BYTES;

/// The compression of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    Plain,
    Gzip,
    Zstd,
    /// A block of snappy, without framing.
    Snappy,
}

impl Coding {
    /// Returns the coding with the name in a `Content-Encoding`.
    ///
    /// # Errors
    /// `Invalid` for any other name.
    pub fn parse(name: &str) -> Result<Coding> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Coding::Plain),
            "gzip" | "x-gzip" => Ok(Coding::Gzip),
            "zstd" => Ok(Coding::Zstd),
            "snappy" => Ok(Coding::Snappy),
            _ => {
                let what = format!("Content-Encoding {name:?}: use gzip, zstd, snappy or none");
                Err(Error::Invalid(what))
            }
        }
    }

    /// Returns the unpacked length of a body, bytes, at most `most`. It takes the time of unpacking
    /// and no memory, so that room for the result can be waited for.
    ///
    /// # Errors
    /// `TooLarge` for a longer body, `Invalid` for a body that is not packed like this.
    pub fn unpacked_len(self, body: &Bytes, most: usize) -> Result<usize> {
        match self {
            Coding::Plain => check_len(body.len(), most),
            Coding::Gzip => count(flate2::bufread::MultiGzDecoder::new(&body[..]), most),
            Coding::Zstd => {
                let (mut rest, mut len) = (&body[..], 0);
                while !rest.is_empty() {
                    len += count(frame(&mut rest)?, most - len)?;
                }
                Ok(len)
            }
            Coding::Snappy => snappy_len(body, most),
        }
    }

    /// Unpacks a body to at most `most` bytes.
    ///
    /// # Errors
    /// Same errors as [`Coding::unpacked_len`].
    pub fn unpack(self, body: Bytes, most: usize) -> Result<Bytes> {
        match self {
            Coding::Plain if body.len() > most => Err(too_large(most)),
            Coding::Plain => Ok(body),
            Coding::Gzip => {
                let mut out = Vec::new();
                read(flate2::bufread::MultiGzDecoder::new(&body[..]), &mut out, most)?;
                Ok(out.into())
            }
            Coding::Zstd => unzstd(&body, most),
            Coding::Snappy => unsnap(&body, most),
        }
    }
}

fn too_large(most: usize) -> Error {
    Error::TooLarge(format!("the body, unpacked: at most {most} bytes here"))
}

fn bad(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("the body cannot be unpacked: {error}"))
}

fn check_len(len: usize, most: usize) -> Result<usize> {
    if len > most { Err(too_large(most)) } else { Ok(len) }
}

/// Reads to the end and returns the length, at most `most` bytes.
fn count(source: impl Read, most: usize) -> Result<usize> {
    let len = io::copy(&mut source.take(most as u64 + 1), &mut io::sink()).map_err(bad)?;
    check_len(len as usize, most)
}

/// Reads to the end, at most `most` bytes.
fn read(source: impl Read, out: &mut Vec<u8>, most: usize) -> Result<()> {
    let room = (most - out.len()) as u64;
    source.take(room + 1).read_to_end(out).map_err(bad)?;
    check_len(out.len(), most).map(|_| ())
}

/// Returns the next zstd frame: a body may have several.
fn frame<'a, 'b>(
    rest: &'a mut &'b [u8],
) -> Result<StreamingDecoder<&'a mut &'b [u8], FrameDecoder>> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(ZSTD_WINDOW_BYTES);
    StreamingDecoder::new_with_decoder(rest, decoder).map_err(bad)
}

fn unzstd(body: &[u8], most: usize) -> Result<Bytes> {
    let (mut rest, mut out) = (body, Vec::new());
    while !rest.is_empty() {
        read(frame(&mut rest)?, &mut out, most)?;
    }
    Ok(out.into())
}

fn snappy_len(body: &[u8], most: usize) -> Result<usize> {
    let len = check_len(snap::raw::decompress_len(body).map_err(bad)?, most)?;
    // Each byte of snappy becomes about 64 bytes at most, so a false length takes no memory.
    if len / 64 > body.len() {
        return Err(bad(io::Error::other("it says that it is longer than it can be")));
    }
    Ok(len)
}

fn unsnap(body: &[u8], most: usize) -> Result<Bytes> {
    snappy_len(body, most)?;
    let out = snap::raw::Decoder::new().decompress_vec(body).map_err(bad)?;
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use proptest::prelude::*;

    const PACKED: [Coding; 3] = [Coding::Gzip, Coding::Zstd, Coding::Snappy];

    fn pack(coding: Coding, body: &[u8]) -> Bytes {
        match coding {
            Coding::Plain => body.to_vec().into(),
            Coding::Gzip => {
                let mut writer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                writer.write_all(body).unwrap();
                writer.finish().unwrap().into()
            }
            Coding::Zstd => {
                use ruzstd::encoding::{CompressionLevel, compress_to_vec};
                compress_to_vec(body, CompressionLevel::Fastest).into()
            }
            Coding::Snappy => snap::raw::Encoder::new().compress_vec(body).unwrap().into(),
        }
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let body: Vec<u8> = (0..100_000_u32).flat_map(|at| (at / 7).to_le_bytes()).collect();
        for coding in PACKED {
            let packed = pack(coding, &body);
            let len = coding.unpacked_len(&packed, body.len()).unwrap();
            assert_eq!(len, body.len(), "{coding:?}");
            assert_eq!(coding.unpack(packed.clone(), body.len()).unwrap(), body, "{coding:?}");
            let one_less = coding.unpacked_len(&packed, body.len() - 1).unwrap_err();
            assert_eq!(one_less.kind(), "too_large", "{coding:?}");
            let one_less = coding.unpack(packed, body.len() - 1).unwrap_err();
            assert_eq!(one_less.kind(), "too_large", "{coding:?}");
        }
        for coding in [Coding::Gzip, Coding::Zstd] {
            let twice = [pack(coding, b"one "), pack(coding, b"two")].concat();
            assert_eq!(coding.unpack(twice.into(), 100).unwrap(), &b"one two"[..], "{coding:?}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let zeros = vec![0; 64 << 20];
        for coding in PACKED {
            let bomb = pack(coding, &zeros);
            assert_eq!(coding.unpack(bomb, 1 << 20).unwrap_err().kind(), "too_large", "{coding:?}");
        }
        // A false length, and a window of a gigabyte.
        let lies = Bytes::from_static(&[0x80, 0x80, 0x80, 0x04, 0, 1]);
        assert_eq!(Coding::Snappy.unpack(lies, 1 << 30).unwrap_err().kind(), "invalid");
        let window = Bytes::from_static(&[0x28, 0xb5, 0x2f, 0xfd, 0, 0xa0, 1, 0, 0]);
        assert_eq!(Coding::Zstd.unpack(window, 1 << 20).unwrap_err().kind(), "invalid");
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0_usize..200,
        ) {
            for coding in PACKED {
                let _ = coding.unpack(bytes.clone().into(), 10_000);
                let mut packed = pack(coding, &bytes).to_vec();
                if let Some(byte) = packed.get_mut(at) {
                    *byte ^= 1;
                }
                let _ = coding.unpack(packed.into(), 10_000);
            }
        }
    }
}

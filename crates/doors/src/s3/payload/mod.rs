//! The body of a request, read only in the way that its signature promised.
//!
//! A [`Payload`] is made only of the verdict on a request. So there is no way to read a body that
//! was to be verified without verifying it. It returns the bytes as they arrive; only its end
//! confirms that all of them were right.

mod chunk_decoder;

use std::sync::Arc;

use aws_lc_rs::digest::{self, SHA256};
use bytes::{Bytes, BytesMut};
use cairn_base::{Party, Shares};
use http_body_util::BodyExt;
use s3s::{S3ErrorCode, S3Result};

pub(super) use chunk_decoder::{ChunkDecoder, ChunkSigner};

use super::error::{bad_request, refuse, refuse_with};
use super::sigv4::{hex, same};
use crate::room::Room;
use crate::upload::{Upload, UploadError};

/// The way in which the bytes on the wire are read.
pub(super) enum Mode {
    /// Takes the bytes as they are.
    Plain,
    /// Takes the bytes as they are, if they have this SHA-256 in hex.
    Hashed(String),
    /// Reads frames of `aws-chunked`.
    Chunked(Box<ChunkDecoder>),
}

/// A body that is being read.
pub(super) struct Payload {
    upload: Upload,
    mode: Mode,
    hash: Option<digest::Context>,
    input: Bytes,
    /// Number of bytes of content announced; checked at the end.
    announced: Option<u64>,
    seen: u64,
    is_done: bool,
}

impl Payload {
    /// Returns a body. `decoded` is the length of the content within `aws-chunked`, as the client
    /// announced it.
    pub(super) fn new(upload: Upload, mode: Mode, decoded: Option<u64>) -> Payload {
        let announced = match mode {
            Mode::Chunked(_) => decoded,
            _ => upload.announced(),
        };
        let hash = matches!(mode, Mode::Hashed(_)).then(|| digest::Context::new(&SHA256));
        let input = Bytes::new();
        Payload { upload, mode, hash, input, announced, seen: 0, is_done: false }
    }

    /// Sets the room of which it takes a part.
    pub(super) fn shares(&mut self, room: &Arc<Shares>, party: Party) {
        self.upload.shares(room, party);
    }

    pub(super) fn is_chunked(&self) -> bool {
        matches!(self.mode, Mode::Chunked(_))
    }

    /// Returns whether the client has signed a hash of the whole body.
    pub(super) fn is_hashed(&self) -> bool {
        matches!(self.mode, Mode::Hashed(_))
    }

    /// Returns the number of bytes of content that the client announced.
    pub(super) fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Returns the next bytes of content, or `None` when all of it has arrived and matches the
    /// signature.
    pub(super) async fn next(&mut self) -> S3Result<Option<Bytes>> {
        loop {
            if let Some(data) = self.decode()? {
                self.seen += data.len() as u64;
                if self.announced.is_some_and(|announced| self.seen > announced) {
                    return Err(incomplete("more bytes came than were announced"));
                }
                if let Some(hash) = &mut self.hash {
                    hash.update(&data);
                }
                return Ok(Some(data));
            }
            match self.upload.frame().await {
                Some(Ok(frame)) => self.input = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(broken(&error)),
                None => return self.finish().map(|()| None),
            }
        }
    }

    fn decode(&mut self) -> S3Result<Option<Bytes>> {
        match &mut self.mode {
            Mode::Chunked(chunked) => chunked.decode(&mut self.input),
            _ if self.input.is_empty() => Ok(None),
            _ => Ok(Some(std::mem::take(&mut self.input))),
        }
    }

    fn finish(&mut self) -> S3Result<()> {
        self.is_done = true;
        if let Mode::Chunked(chunked) = &mut self.mode {
            chunked.finish()?;
        }
        if self.announced.is_some_and(|announced| self.seen != announced) {
            return Err(incomplete("fewer bytes came than were announced"));
        }
        if let (Mode::Hashed(expected), Some(hash)) = (&self.mode, self.hash.take())
            && !same(&hex(hash.finish().as_ref()), expected)
        {
            return Err(refuse_with(
                "XAmzContentSHA256Mismatch",
                http::StatusCode::BAD_REQUEST,
                "the provided x-amz-content-sha256 header does not match what was computed",
            ));
        }
        Ok(())
    }

    /// Returns the trailers, once [`Payload::next`] has returned `None`.
    pub(super) fn trailers(&self) -> &[(String, String)] {
        match &self.mode {
            Mode::Chunked(chunked) => chunked.trailers(),
            _ => &[],
        }
    }

    /// Returns a whole body that has to be short. Room for it is taken as it arrives.
    pub(super) async fn read_all(
        &mut self,
        limit: usize,
        mut room: Option<&mut Room>,
    ) -> S3Result<Bytes> {
        let too_long = || {
            let what = format!("the body is longer than {limit} bytes");
            refuse(S3ErrorCode::MaxMessageLengthExceeded, what)
        };
        if self.announced.is_some_and(|announced| announced > limit as u64) {
            return Err(too_long());
        }
        if let Some(room) = &room {
            self.shares(room.all(), room.party());
        }
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if whole.len() + piece.len() > limit {
                return Err(too_long());
            }
            if let Some(room) = &mut room {
                room.hold(whole.len() + piece.len()).await;
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Reads the rest of a refused body in the background, so that the connection can be used
    /// again. Returns false if it cannot.
    pub(super) fn linger(self) -> bool {
        self.is_done || self.upload.linger()
    }
}

fn incomplete(what: &'static str) -> s3s::S3Error {
    refuse(S3ErrorCode::IncompleteBody, what)
}

fn broken(error: &UploadError) -> s3s::S3Error {
    match error {
        UploadError::Idle(_) | UploadError::Slow(..) => {
            refuse(S3ErrorCode::RequestTimeout, error.to_string())
        }
        UploadError::Broken(_) => incomplete("the body was cut short"),
    }
}

/// Returns the length in `x-amz-decoded-content-length`.
pub(super) fn decoded_length(headers: &http::HeaderMap) -> S3Result<Option<u64>> {
    let Some(value) = headers.get("x-amz-decoded-content-length") else { return Ok(None) };
    let number = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match number.and_then(|text| text.parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(bad_request("x-amz-decoded-content-length is not a number")),
    }
}

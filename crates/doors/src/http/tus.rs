//! `/tus/<bucket>/<key>`: resumable uploads by the protocol tus 1.0.
//!
//! ```text
//!   POST ──► 201, the address of the upload
//!   PATCH ──► stretches, each durable at once ──► 204, the offset (the last makes the object)
//!   HEAD ──► the offset
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result, Timestamp, UploadId, limits as store_limits};
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::multipart::{CreateUpload, PartTable, TakenPart, UploadName};
use cairn_fs::ops::put_object::MayWrite;
use cairn_fs::ops::resumable::{AbortResumable, BeginResumable, FindResumable, FinishResumable};
use cairn_fs::rows::{ObjectAttributes, Resumable};
use cairn_fs::{BodyWriter, Digester, Fs, party_of};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::{self, Failure};
use super::inner::Inner;
use super::parameters::UPLOAD;
use super::target::{Query, check_new};
use super::{Body, headers, no_content};
use crate::content_type;
use crate::dates;
use crate::limits;
use crate::metrics::VerbStats;
use crate::upload::{Upload, UploadError};
use crate::witness::Witness;

const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const EXTENSIONS: HeaderValue = HeaderValue::from_static("creation,expiration,termination");
const OFFSET_STREAM: &str = "application/offset+octet-stream";
const METHODS: &str = "POST, HEAD, PATCH, DELETE, OPTIONS";
/// All characters that are neither unreserved according to RFC 3986 nor the slash.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A request to this part of the door.
pub struct TusRequest<'a> {
    pub caller: &'a Caller,
    pub parts: &'a Parts,
    pub stats: &'a VerbStats,
    /// Bucket and key; a key that ends in `/` is the directory for the file.
    pub place: (&'a str, &'a str),
    pub query: &'a Query,
}

pub async fn reply(
    door: &Inner,
    asked: &TusRequest<'_>,
    upload: &mut Upload,
) -> Result<Response<Body>, Failure> {
    let method = asked.parts.method.as_str();
    if method == "OPTIONS" {
        return Ok(options());
    }
    let headers = &asked.parts.headers;
    if headers.get(TUS_RESUMABLE) != Some(&VERSION) {
        let text = "this is tus 1.0.0: send Tus-Resumable: 1.0.0";
        return Err(Error::PreconditionFailed(text.into()).into());
    }
    // Pages of other sites, and some proxies, can only send GET and POST.
    let instead = headers.get("x-http-method-override").and_then(|value| value.to_str().ok());
    match (method, instead) {
        ("POST", None | Some("POST")) => begin(door, asked, upload).await,
        ("HEAD", None) => offset(door, asked).await,
        ("PATCH", None) | ("POST", Some("PATCH")) => append(door, asked, upload).await,
        ("DELETE", None) | ("POST", Some("DELETE")) => {
            door.fs().run(asked.caller, AbortResumable { name: name(asked)? }).await?;
            Ok(no_content())
        }
        _ => Err(Failure::Method { allow: METHODS }),
    }
}

/// Sets the headers that the protocol requires in every reply.
pub fn say_version(headers: &mut HeaderMap) {
    headers.insert(TUS_RESUMABLE, VERSION);
    headers.insert(TUS_VERSION, VERSION);
}

/// Answers OPTIONS with the capabilities of this part of the door.
fn options() -> Response<Body> {
    let mut reply = no_content();
    let headers = reply.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    headers.insert(TUS_EXTENSION, EXTENSIONS);
    headers.insert(TUS_MAX_SIZE, HeaderValue::from(store_limits::OBJECT_BYTES));
    reply
}

fn name(asked: &TusRequest<'_>) -> Result<UploadName> {
    let (bucket, key) = asked.place;
    let id = asked.query.get(UPLOAD).and_then(|id| u64::from_str_radix(id, 16).ok());
    let Some(id) = id else {
        let text = "the address of the upload is incomplete: use the Location of its beginning";
        return Err(Error::Invalid(text.into()));
    };
    Ok(UploadName { bucket: bucket.into(), key: key.into(), upload: UploadId(id) })
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64> {
    let value = headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
    value.ok_or_else(|| Error::Invalid(format!("header {name}: send a number")))
}

fn expires(fs: &Fs) -> Timestamp {
    let lifetime = limits::RESUMABLE_LIFETIME.as_nanos() as i64;
    Timestamp(fs.clock().now().0.saturating_add(lifetime))
}

/// Returns the pairs of `Upload-Metadata`, decoded.
fn metadata(headers: &HeaderMap) -> Result<Vec<(String, String)>> {
    let Some(value) = headers.get("upload-metadata") else { return Ok(Vec::new()) };
    let bad = || Error::Invalid("header Upload-Metadata: send names with values in base64".into());
    let value = value.to_str().map_err(|_| bad())?;
    let pairs = value.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once(' ').unwrap_or((pair, ""));
            let value = BASE64.decode(value.trim()).map_err(|_| bad())?;
            let value = String::from_utf8(value).map_err(|_| bad())?;
            Ok((name.to_owned(), value))
        })
        .collect()
}

/// Returns the key of the object: that of the path, or the name of the file below it.
fn key_of(path: &str, metadata: &[(String, String)]) -> Result<String> {
    let key = if path.is_empty() || path.ends_with('/') {
        let named = |wanted: &str| metadata.iter().find(|(name, _)| name == wanted);
        let name = named("filename").or_else(|| named("name")).map(|(_, name)| name.as_str());
        match name {
            Some(name) if !name.is_empty() && !name.contains(['/', '\0']) => {
                format!("{path}{name}")
            }
            _ => {
                let text = "name the file: by the path, or as filename in Upload-Metadata";
                return Err(Error::Invalid(text.into()));
            }
        }
    } else {
        path.to_owned()
    };
    check_new(&key)?;
    Ok(key)
}

fn attributes(key: &str, metadata: &[(String, String)]) -> Result<ObjectAttributes> {
    let kind = metadata.iter().find(|(name, _)| matches!(name.as_str(), "filetype" | "type"));
    let kind = kind.map(|(_, kind)| kind.as_str()).filter(|kind| !kind.is_empty());
    let content_type = match kind {
        Some(kind) if kind.len() > store_limits::HEADER_VALUE_BYTES => {
            return Err(Error::TooLarge("the type of the file is too long".into()));
        }
        Some(kind) if kind.chars().any(char::is_control) => {
            return Err(Error::Invalid("the type of the file is not plain text".into()));
        }
        Some(kind) => kind.to_owned(),
        None => content_type::guess(key, &[]),
    };
    Ok(ObjectAttributes { content_type, ..ObjectAttributes::default() })
}

/// Begins an upload. An empty one is done at once.
async fn begin(
    door: &Inner,
    asked: &TusRequest<'_>,
    upload: &mut Upload,
) -> Result<Response<Body>, Failure> {
    let (fs, caller, headers) = (door.fs(), asked.caller, &asked.parts.headers);
    if asked.query.get(UPLOAD).is_some() {
        return Err(Error::Invalid("POST begins an upload: it takes no id".into()).into());
    }
    headers::refuse_conditions_and_digests(headers, "a resumable upload")?;
    for name in ["upload-defer-length", "upload-concat", "upload-checksum"] {
        if headers.contains_key(name) {
            return Err(Error::NotImplemented(format!("header {name} of tus")).into());
        }
    }
    let length = number(headers, &UPLOAD_LENGTH)?;
    if length > store_limits::OBJECT_BYTES {
        let most = store_limits::OBJECT_BYTES;
        return Err(Error::TooLarge(format!("an object of {length} bytes: at most {most}")).into());
    }
    fs.read(caller, MayWrite { bucket: asked.place.0.to_owned() }).await?;
    if upload.announced() != Some(0) && upload.frame().await.is_some() {
        let text = "the body of this request must be empty: send bytes with PATCH";
        return Err(Error::Invalid(text.into()).into());
    }
    let (metadata, (bucket, path)) = (metadata(headers)?, asked.place);
    let key = key_of(path, &metadata)?;
    let object = attributes(&key, &metadata)?;
    let create = CreateUpload {
        bucket: bucket.to_owned(),
        key: key.clone(),
        object,
        tags: Vec::new(),
        checksum: None,
    };
    let expires = expires(fs);
    let id = fs.run(caller, BeginResumable { create, length, expires }).await?;
    if length == 0 {
        let name = UploadName { bucket: bucket.to_owned(), key: key.clone(), upload: id };
        let writer = fs.begin(caller, bucket).await?;
        let row = Stretch::new(fs, caller, &name, 0, writer).put().await?;
        finish(fs, caller, name, row.length).await?;
    }
    let escape = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
    let location = format!("/tus/{}/{}?{UPLOAD}={:x}", escape(bucket), escape(&key), id.0);
    let location = HeaderValue::try_from(location);
    let location = location.map_err(|_| Error::Invalid("a key that is no address".into()))?;
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::CREATED;
    reply.headers_mut().insert(LOCATION, location);
    reply.headers_mut().insert(UPLOAD_EXPIRES, dates::http_date(expires));
    Ok(reply)
}

/// Answers with the offset that an upload has reached.
async fn offset(door: &Inner, asked: &TusRequest<'_>) -> Result<Response<Body>, Failure> {
    let name = name(asked)?;
    let row = door.fs().read(asked.caller, FindResumable { name: name.clone() }).await?;
    if row.offset == row.length && !row.is_done {
        // The server stopped when all bytes had arrived.
        Witness::of(&asked.parts.extensions).note(|facts| facts.has_changed = true);
        finish(door.fs(), asked.caller, name, row.length).await?;
    }
    let mut reply = said(StatusCode::OK, &row);
    let headers = reply.headers_mut();
    headers.insert(UPLOAD_LENGTH, HeaderValue::from(row.length));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

fn said(status: StatusCode, row: &Resumable) -> Response<Body> {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = status;
    reply.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(row.offset));
    reply.headers_mut().insert(UPLOAD_EXPIRES, dates::http_date(row.expires));
    reply
}

/// Takes the bytes from an offset on.
async fn append(
    door: &Inner,
    asked: &TusRequest<'_>,
    upload: &mut Upload,
) -> Result<Response<Body>, Failure> {
    let (fs, caller, headers) = (door.fs(), asked.caller, &asked.parts.headers);
    if headers.get(CONTENT_TYPE).is_none_or(|kind| kind != OFFSET_STREAM) {
        let failure = Error::Invalid(format!("send Content-Type: {OFFSET_STREAM}"));
        let reason = Some(failure.kind().to_owned());
        Witness::of(&asked.parts.extensions).note(|facts| facts.reason = reason);
        let mut reply = error::reply(failure.into(), false, &door.ids.next());
        *reply.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Ok(reply);
    }
    headers::refuse_conditions_and_digests(headers, "a resumable upload")?;
    if headers.contains_key("upload-checksum") {
        return Err(Error::NotImplemented("header upload-checksum of tus".into()).into());
    }
    let (name, offset) = (name(asked)?, number(headers, &UPLOAD_OFFSET)?);
    let row = fs.read(caller, FindResumable { name: name.clone() }).await?;
    if row.offset != offset {
        let text = format!("the upload has come to {}, not {offset}", row.offset);
        return Err(Error::Conflict(text).into());
    }
    if upload.announced().is_some_and(|length| length > row.length - row.offset) {
        let text = format!("the upload has {} bytes: this request sends more", row.length);
        return Err(Error::TooLarge(text).into());
    }
    if let Some(length) = upload.announced() {
        Box::pin(fs.check_room(&name.bucket, length)).await?;
    }
    let row = receive(fs, caller, &name, row, upload).await?;
    asked.stats.received(row.offset - offset);
    if row.offset == row.length && !row.is_done {
        finish(fs, caller, name, row.length).await?;
    }
    Ok(said(StatusCode::NO_CONTENT, &row))
}

/// Takes a body in stretches that are durable one after another. The bytes before a cut count.
async fn receive(
    fs: &Fs,
    caller: &Caller,
    name: &UploadName,
    mut row: Resumable,
    upload: &mut Upload,
) -> Result<Resumable, Failure> {
    upload.shares(fs.upload_memory(), party_of(caller));
    // Half of the parts are reserved for stretches that were cut.
    let most = limits::RESUMABLE_STRETCH.max(row.length / u64::from(store_limits::PARTS / 2));
    loop {
        let mut writer = fs.begin(caller, &name.bucket).await?;
        let left = row.length - row.offset;
        // The quotas admit no more than this stretch, or than arrives of it.
        let expected = upload.announced().map(|length| length.min(left).min(most));
        Box::pin(writer.expect(expected, None)).await?;
        let mut stretch = Stretch::new(fs, caller, name, row.offset, writer);
        stretch.left = left;
        let end = stretch.fill(upload, most.min(stretch.left.max(1))).await?;
        let (size, is_whole) = (stretch.size(), matches!(end, Some(Ok(()))));
        if size > 0 && size < stretch.left && size < limits::RESUMABLE_LEAST && is_whole {
            let least = limits::RESUMABLE_LEAST;
            stretch.writer = None;
            return Err(Error::Invalid(format!(
                "{size} bytes of an upload: send at least {least} at once, or all that are left"
            ))
            .into());
        }
        if stretch.is_worth_it() {
            row = stretch.put().await?;
        }
        match end {
            None => {}
            Some(Ok(())) => return Ok(row),
            // All bytes arrived, and only the end of the body is missing.
            Some(Err(_)) if row.offset == row.length => return Ok(row),
            Some(Err(error)) => return Err(error.into()),
        }
    }
}

/// Bytes of an upload from an offset on. If the client goes away, the bytes that arrived are kept.
struct Stretch {
    fs: Fs,
    caller: Caller,
    name: UploadName,
    offset: u64,
    /// Number of bytes of the upload from there on.
    left: u64,
    writer: Option<BodyWriter>,
    /// Digest of the first `digested` bytes.
    digester: Digester,
    digested: u64,
    /// Bytes that are being written: if the request is cancelled, the writer may have taken only
    /// some of them.
    going: Bytes,
}

impl Stretch {
    fn new(
        fs: &Fs,
        caller: &Caller,
        name: &UploadName,
        offset: u64,
        writer: BodyWriter,
    ) -> Stretch {
        Stretch {
            fs: fs.clone(),
            caller: caller.clone(),
            name: name.clone(),
            offset,
            left: 0,
            writer: Some(writer),
            digester: Digester::new(true, &[]),
            digested: 0,
            going: Bytes::new(),
        }
    }

    fn size(&self) -> u64 {
        self.writer.as_ref().map_or(0, BodyWriter::size)
    }

    /// Returns whether it is long enough: an upload has a limited number of stretches.
    fn is_worth_it(&self) -> bool {
        let size = self.size();
        size >= limits::RESUMABLE_LEAST || size == self.left && size > 0
    }

    /// Takes up to `most` bytes, or a few more. Returns how the body ended, if it did.
    async fn fill(
        &mut self,
        upload: &mut Upload,
        most: u64,
    ) -> Result<Option<Result<(), UploadError>>, Failure> {
        while self.size() < most {
            let bytes = match upload.frame().await {
                None => return Ok(Some(Ok(()))),
                Some(Err(error)) => return Ok(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    Err(_) => continue,
                },
            };
            if self.size() + bytes.len() as u64 > self.left {
                let text = "the body goes on after the end of the upload";
                return Err(Error::TooLarge(text.into()).into());
            }
            let Some(writer) = &mut self.writer else { continue };
            self.going = bytes.clone();
            let pushed = writer.push(bytes).await;
            if let Err(error) = pushed {
                // Some of the bytes that it took are lost.
                self.writer = None;
                return Err(error.into());
            }
            let size = writer.size();
            self.digest(size);
        }
        Ok(None)
    }

    /// Digests the bytes that the writer took last; it has `size` bytes now.
    fn digest(&mut self, size: u64) {
        let going = std::mem::take(&mut self.going);
        let taken = going.len().min(size.saturating_sub(self.digested) as usize);
        self.digester.update(going.get(..taken).unwrap_or_default());
        self.digested = size;
    }

    /// Makes the stretch durable, also if the caller stops waiting.
    async fn put(mut self) -> Result<Resumable> {
        let Some(writer) = self.writer.take() else {
            return Err(Error::Conflict("the stretch was put before".into()));
        };
        let task = tokio::spawn(self.keep(writer));
        task.await.map_err(|error| Error::Io(std::io::Error::other(error)))?
    }

    /// Does the rest of the work on a stretch when nobody waits for the reply. Makes the object if
    /// it was the last stretch.
    fn keep_alone(&mut self, writer: BodyWriter) -> impl Future<Output = Result<()>> + use<> {
        let (fs, caller, name) = (self.fs.clone(), self.caller.clone(), self.name.clone());
        let kept = self.keep(writer);
        async move {
            let row = kept.await?;
            if row.offset == row.length && !row.is_done {
                finish(&fs, &caller, name, row.length).await
            } else {
                Ok(())
            }
        }
    }

    fn keep(&mut self, writer: BodyWriter) -> impl Future<Output = Result<Resumable>> + use<> {
        self.digest(writer.size());
        let (fs, caller, name) = (self.fs.clone(), self.caller.clone(), self.name.clone());
        let digester = std::mem::replace(&mut self.digester, Digester::new(false, &[]));
        let (offset, expires) = (self.offset, expires(&self.fs));
        async move {
            let etag = digester.finish().md5_hex();
            let written = writer.finish().await?;
            fs.put_resumable(&caller, name, offset, expires, written, etag).await
        }
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        if !self.is_worth_it() {
            return;
        }
        let Some(writer) = self.writer.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.keep_alone(writer));
        }
    }
}

/// Makes the object of an upload whose bytes are all there, also if the caller stops waiting.
async fn finish(fs: &Fs, caller: &Caller, name: UploadName, length: u64) -> Result<()> {
    let (fs, caller) = (fs.clone(), caller.clone());
    let task = tokio::spawn(async move {
        let (mut parts, mut size, mut after) = (Vec::new(), 0, 0);
        loop {
            let limit = store_limits::LIST_KEYS;
            let verb = PartTable { upload: name.upload, after, limit };
            let (page, more) = fs.read(&Caller::system(), verb).await?;
            for (number, part) in page {
                (after, size) = (number, size + part.size);
                parts.push(TakenPart { number, etag: part.etag, checksum: None });
            }
            if !more {
                break;
            }
        }
        if size != length {
            let text = format!("the upload has {size} bytes of {length}: others changed it");
            return Err(Error::Conflict(text));
        }
        fs.complete_upload(&caller, name.clone(), parts, Conditions::default()).await?;
        fs.run(&caller, FinishResumable { name }).await
    });
    task.await.map_err(|error| Error::Io(std::io::Error::other(error)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_the_path_or_below_it() {
        let named = |name: &str| vec![("filename".to_owned(), name.to_owned())];
        assert_eq!(key_of("a/b", &named("x")).unwrap(), "a/b");
        assert_eq!(key_of("a/", &named("x y.txt")).unwrap(), "a/x y.txt");
        assert_eq!(key_of("", &[("name".to_owned(), "x".to_owned())]).unwrap(), "x");
        for bad in ["", "../x", "..", "a/b", "a\0"] {
            assert!(key_of("a/", &named(bad)).is_err(), "{bad:?}");
        }
        assert!(key_of("", &[]).is_err());
    }

    #[test]
    fn metadata_are_pairs() {
        let parse = |value: &'static str| {
            metadata(&HeaderMap::from_iter([(
                HeaderName::from_static("upload-metadata"),
                HeaderValue::from_static(value),
            )]))
        };
        let pairs = parse("filename YS50eHQ=, is_confidential,type dGV4dA==").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected =
            [pair("filename", "a.txt"), pair("is_confidential", ""), pair("type", "text")];
        assert_eq!(pairs, expected);
        for bad in ["a !", "a /w==", "a YQ"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(metadata(&HeaderMap::new()).unwrap(), []);
    }
}

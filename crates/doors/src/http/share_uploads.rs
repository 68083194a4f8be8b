//! Share links for uploads: their holders add files, and learn nothing about existing files.

use bytes::Bytes;
use cairn_auth::{Caller, ShareLinkId};
use cairn_base::{Error, Party, Result, rfc3339};
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::share_links::{ReturnShareLink, UseShareLink};
use cairn_fs::rows::{ObjectAttributes, UploadLimits};
use cairn_fs::{BodyWriter, Fs, PutRequest};
use http::header::{CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use maud::html;
use serde::Serialize;

use super::error::Failure;
use super::inner::Inner;
use super::multipart::{Form, Source};
use super::page::{self, human_bytes};
use super::share_rooms::ShareSender;
use super::share_target::{ShareAccess, ShareRequest, gone, hide};
use super::{Body, headers, json_of};
use crate::content_type;
use crate::limits;
use crate::upload::Upload;

#[derive(Serialize)]
struct ShownRoom {
    /// Files and bytes that may still be added.
    files: u64,
    bytes: u64,
    expires: String,
}

/// Answers a GET: with a page that has a form, or with JSON.
pub fn show(
    door: &Inner,
    asked: &ShareRequest<'_>,
    opened: &ShareAccess,
) -> Result<Response<Body>> {
    if asked.path != Some("") || !asked.query.is_empty() {
        return Err(gone());
    }
    let UploadLimits { files, bytes } = door.share_rooms.left(&opened.id, &opened.link);
    if !page::is_wanted(&asked.parts.headers) {
        let expires = rfc3339(opened.link.expires);
        return Ok(json_of(StatusCode::OK, &ShownRoom { files, bytes, expires }));
    }
    let contents = html! {
        h1 { "Send files" }
        @if files == 0 || bytes == 0 {
            p { "This link takes no more files." }
        } @else {
            p { "Up to " (files) " files, of " (human_bytes(bytes)) " in all." }
            form method="post" enctype="multipart/form-data" action="./" {
                label for="files" { "Files" }
                input id="files" type="file" name="files" multiple required;
                button type="submit" { "Send" }
            }
        }
    };
    Ok(page::reply(StatusCode::OK, "Send files", &contents))
}

/// Refuses headers that ask for something that would not be done.
fn check_headers(asked: &ShareRequest<'_>) -> Result<()> {
    let mut asks = asked.parts.headers.clone();
    if asks.get_all(IF_NONE_MATCH).iter().all(|value| value == "*") {
        // Allowed, as nothing is ever replaced.
        asks.remove(IF_NONE_MATCH);
    }
    headers::refuse_conditions_and_digests(&asks, "an upload by a share link")
}

/// Returns the party for the memory of a link's senders: it is not the maker's, which the maker
/// needs for other requests.
fn party(opened: &ShareAccess) -> Party {
    Party::ShareLink(opened.link.hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}

/// Answers a PUT of one file.
pub async fn put(
    door: &Inner,
    asked: &ShareRequest<'_>,
    opened: &ShareAccess,
    upload: &mut Upload,
) -> Result<Response<Body>, Failure> {
    let name = asked.path.filter(|name| !name.is_empty()).ok_or_else(gone)?;
    check_headers(asked)?;
    let sender = door.share_rooms.enter(&opened.id, &opened.link);
    sender.check(upload.announced().unwrap_or(0))?;
    upload.shares(door.fs().upload_memory(), party(opened));
    let kind = asked.parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let mut file = NewFile::begin(door, opened, name, kind.unwrap_or_default(), sender).await?;
    while let Some(frame) = upload.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        file.push(bytes).await?;
    }
    file.publish(door, opened).await?;
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::CREATED;
    Ok(reply)
}

/// Answers a POST of a form with files.
pub async fn form(
    door: &Inner,
    asked: &ShareRequest<'_>,
    opened: &ShareAccess,
    upload: &mut Upload,
) -> Result<Response<Body>, Failure> {
    if asked.path != Some("") {
        return Err(gone().into());
    }
    check_headers(asked)?;
    upload.shares(door.fs().upload_memory(), party(opened));
    let mut form = Form::new(&asked.parts.headers, Source::Upload(upload))?;
    let mut sender = door.share_rooms.enter(&opened.id, &opened.link);
    let mut count = 0;
    while let Some(part) = form.part().await? {
        let name = part.file_name.filter(|name| !name.is_empty());
        let Some(name) = name else {
            while form.chunk().await?.is_some() {}
            continue;
        };
        let mut file = NewFile::begin(door, opened, &name, &part.content_type, sender).await?;
        while let Some(bytes) = form.chunk().await? {
            file.push(bytes).await?;
        }
        sender = file.publish(door, opened).await?;
        count += 1;
    }
    if count == 0 {
        return Err(Error::Invalid("the form has no file".into()).into());
    }
    Ok(done(&asked.parts.headers, count))
}

fn done(headers: &HeaderMap, count: u64) -> Response<Body> {
    if !page::is_wanted(headers) {
        return json_of(StatusCode::CREATED, &serde_json::json!({ "files": count }));
    }
    let contents = html! {
        h1 { "Thank you" }
        p { (count) " " @if count == 1 { "file was" } @else { "files were" } " received." }
        p { a href="./" { "Send more" } }
    };
    page::reply(StatusCode::CREATED, "Thank you", &contents)
}

/// A file that is being added.
struct NewFile {
    writer: BodyWriter,
    key: String,
    content_type: String,
    sender: ShareSender,
}

impl NewFile {
    async fn begin(
        door: &Inner,
        opened: &ShareAccess,
        name: &str,
        kind: &str,
        mut sender: ShareSender,
    ) -> Result<NewFile, Failure> {
        check_name(name)?;
        sender.file()?;
        let is_plain = kind.len() <= cairn_base::limits::HEADER_VALUE_BYTES
            && !kind.chars().any(char::is_control);
        let content_type = match kind {
            kind if kind.is_empty() || !is_plain => content_type::guess(name, &[]),
            kind => kind.to_owned(),
        };
        let key = free_key(door, opened, name).await?;
        let begun = door.fs().begin_for(&opened.caller, party(opened), &opened.bucket).await;
        let writer = begun.map_err(hide)?;
        Ok(NewFile { writer, key, content_type, sender })
    }

    async fn push(&mut self, bytes: Bytes) -> Result<(), Failure> {
        self.sender.bytes(bytes.len() as u64)?;
        Ok(self.writer.push(bytes).await?)
    }

    /// Counts the file, and then makes it. Both are completed even if the sender hangs up: every
    /// counted file exists.
    async fn publish(self, door: &Inner, opened: &ShareAccess) -> Result<ShareSender, Failure> {
        let (fs, caller) = (door.fs().clone(), opened.caller.clone());
        let (id, bucket) = (opened.id.clone(), opened.bucket.clone());
        let published = tokio::spawn(async move {
            let NewFile { writer, key, content_type, sender } = self;
            let request = PutRequest {
                bucket,
                key,
                object: ObjectAttributes { content_type, ..ObjectAttributes::default() },
                tags: Vec::new(),
                // An existing object is never replaced.
                conditions: Conditions {
                    if_none_match: Some(EtagMatch::Any),
                    ..Conditions::default()
                },
            };
            publish(&fs, &caller, &id, writer, request, sender).await
        });
        let lost = |_| Error::Unavailable("the file was given up: outcome unknown".into());
        Ok(published.await.map_err(lost)??)
    }
}

async fn publish(
    fs: &Fs,
    caller: &Caller,
    id: &ShareLinkId,
    writer: BodyWriter,
    request: PutRequest,
    mut sender: ShareSender,
) -> Result<ShareSender> {
    let uploads = UploadLimits { files: 1, bytes: writer.size() };
    let written = writer.finish().await?;
    let ShareLinkId { user, id } = id.clone();
    let verb = UseShareLink { user, id: id.clone(), downloads: 0, uploads };
    fs.run(&Caller::system(), verb).await?;
    sender.counted();
    let Err(error) = fs.put_object(caller, request, written).await else { return Ok(sender) };
    let is_known = !matches!(error, Error::Unavailable(_) | Error::Io(_) | Error::Corrupt { .. });
    if is_known {
        match fs.run(&Caller::system(), ReturnShareLink { user, id, uploads }).await {
            Ok(()) => sender.returned(uploads),
            Err(error) => tracing::warn!(%error, "a file that was not stored stays counted"),
        }
    }
    Err(match error {
        Error::Denied(_) => gone(),
        error @ Error::ReadOnly(_) => hide(error),
        error @ (Error::Unavailable(_) | Error::Full(_) | Error::Io(_)) => error,
        _ => Error::Conflict("the file could not be stored: send it again".into()),
    })
}

fn check_name(name: &str) -> Result<()> {
    let is_bad = matches!(name, "" | "." | "..")
        || name.len() > limits::SHARED_NAME_BYTES
        || name.chars().any(|c| c == '/' || c.is_control());
    if is_bad {
        Err(Error::Invalid("name the file by up to 200 bytes without a slash".into()))
    } else {
        Ok(())
    }
}

/// Returns the key for a file. If there is a file of this name, the key has some digits in its
/// name, which the sender does not learn.
async fn free_key(door: &Inner, opened: &ShareAccess, name: &str) -> Result<String> {
    let key = format!("{}{name}", opened.link.key);
    match door.fs().open(&Caller::system(), &opened.bucket, &key).await {
        Err(Error::NotFound(_)) => return Ok(key),
        Ok(_) | Err(Error::IsDirectory(_) | Error::NotDirectory(_)) => {}
        Err(error) => return Err(error),
    }
    let digits = door.admit.rng().next_u64();
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
        _ => (name, String::new()),
    };
    Ok(format!("{}{stem}-{digits:016x}{extension}", opened.link.key))
}

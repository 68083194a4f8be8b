//! Copying, moving and renaming files and folders. An object is moved in one step within its
//! bucket, and a folder object by object.

use cairn_base::{Error, Result};
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::copy_object::CopyObject;
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::ops::move_object::MoveObject;
use http::StatusCode;
use maud::{Markup, html};

use super::At;
use super::at::split;
use super::delete::names;
use super::folders::{self, Place};
use super::selection::{Scope, Selection};
use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::forms::Form;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::{limits, words};

/// Keys that are listed at a time.
const LISTED: usize = 256;

/// Transfer that a person requested.
struct TransferRequest {
    is_move: bool,
    bucket: String,
    /// Target folder; empty, or it ends in a slash.
    folder: String,
    /// New name in place of that of the selection.
    name: Option<String>,
    replaces: bool,
}

/// Position at which the next request goes on: the number of a scope, and a key in it.
#[derive(Default)]
struct Cursor {
    scope: usize,
    after: String,
}

/// Keys that begin with a prefix and come after a key.
struct KeysBelow<'a> {
    prefix: &'a str,
    except: Option<&'a str>,
    after: String,
}

#[derive(Default)]
struct TransferResult {
    /// Keys at the target.
    keys: Vec<String>,
    /// Keys of files that stayed, since the target has such a file.
    kept: Vec<String>,
    failed: Vec<(String, Error)>,
    seen: usize,
    /// Position at which to go on, if one request does not transfer everything.
    rest: Option<Cursor>,
    has_hidden: bool,
}

pub async fn transfer(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let chosen = Selection::of(&form)?;
    let Some(wanted) = TransferRequest::of(at, &form, &chosen)? else {
        return Ok(shown(at, &chosen, "Copy or move", &ask(at, &chosen)));
    };
    let from = Cursor {
        scope: form.number("scope", "scope")?.unwrap_or(0).try_into().unwrap_or(usize::MAX),
        after: form.get("after").to_owned(),
    };
    let mut done = TransferResult::default();
    let outcome = wanted.all(at, &chosen, from, &mut done).await;
    let count = done.keys.len();
    let keys = std::mem::take(&mut done.keys);
    at.asked.witness.note(|facts| {
        facts.resource = Some(format!("to {}/{}", wanted.bucket, wanted.folder));
        facts.keys = keys;
    });
    outcome?;
    if done.failed.is_empty() && done.kept.is_empty() && done.rest.is_none() && !done.has_hidden {
        return Ok(reply::see_other(&at.beside(&wanted.bucket).folder(&wanted.folder)));
    }
    let title = if wanted.is_move { "Moved" } else { "Copied" };
    Ok(shown(at, &chosen, title, &told(at, &chosen, &wanted, count, &done)))
}

impl TransferRequest {
    /// Reads the transfer from a form; none if it has only the selection so far.
    fn of(at: &At<'_>, form: &Form, chosen: &Selection) -> Result<Option<TransferRequest>> {
        let is_move = match form.get("do") {
            "copy" => false,
            "move" => true,
            _ => return Ok(None),
        };
        let bucket = form.get("to-bucket").trim();
        let mut folder = form.get("to").trim_start_matches('/').to_owned();
        if !folder.is_empty() && !folder.ends_with('/') {
            folder.push('/');
        }
        let is_step = |name| matches!(name, "." | "..");
        if folder.split('/').any(is_step) {
            return Err(Error::Invalid("no part of a folder's name may be . or ..".into()));
        }
        let name = match (chosen.single(), form.get("name").trim_end_matches('/')) {
            (None, _) | (_, "") => None,
            (Some(_), name) if name.contains('/') || is_step(name) => {
                return Err(Error::Invalid(format!("{name:?} is no name of a file or folder")));
            }
            (Some(_), name) => Some(name.to_owned()),
        };
        let wanted = TransferRequest {
            is_move,
            bucket: if bucket.is_empty() { at.bucket } else { bucket }.to_owned(),
            folder,
            name,
            replaces: form.get("existing") == "replace",
        };
        for scope in chosen.scopes() {
            wanted.check(at, chosen, &scope)?;
        }
        Ok(Some(wanted))
    }

    /// Refuses a transfer of a folder into itself, which would go on forever.
    ///
    /// # Errors
    /// `Invalid` for such a transfer.
    fn check(&self, at: &At<'_>, chosen: &Selection, scope: &Scope) -> Result<()> {
        let Scope::Below { prefix, .. } = scope else { return Ok(()) };
        if self.bucket != at.bucket || !self.target(chosen, scope, prefix).starts_with(prefix) {
            return Ok(());
        }
        let what = if self.is_move { "moved" } else { "copied" };
        Err(Error::Invalid(format!("a folder cannot be {what} into itself")))
    }

    /// Returns the key at the target for a key within a scope.
    fn target(&self, chosen: &Selection, scope: &Scope, key: &str) -> String {
        let folder = &self.folder;
        match scope {
            Scope::File(key) => {
                format!("{folder}{}", self.name.as_deref().unwrap_or(split(key).1))
            }
            Scope::Below { prefix, has_itself: true } => {
                let (_, own) = split(prefix);
                let name = self.name.as_deref().unwrap_or(own.trim_end_matches('/'));
                let rest = key.strip_prefix(&**prefix).unwrap_or_default();
                format!("{folder}{name}/{rest}")
            }
            Scope::Below { has_itself: false, .. } => {
                format!("{folder}{}", key.strip_prefix(&*chosen.prefix).unwrap_or(key))
            }
        }
    }

    async fn all(
        &self,
        at: &At<'_>,
        chosen: &Selection,
        from: Cursor,
        done: &mut TransferResult,
    ) -> Result<()> {
        let place = folders::place(at, &self.bucket).await?;
        let mut after = from.after;
        for (number, scope) in chosen.scopes().iter().enumerate().skip(from.scope) {
            if done.seen >= limits::TRANSFERS {
                done.rest = Some(Cursor { scope: number, after: String::new() });
                return Ok(());
            }
            match scope {
                Scope::File(key) => {
                    self.one(at, &place, key, &self.target(chosen, scope, key), done).await;
                }
                Scope::Below { prefix, has_itself } => {
                    let itself = (!has_itself).then_some(&*chosen.prefix);
                    let target = |key: &str| self.target(chosen, scope, key);
                    let after = std::mem::take(&mut after);
                    let keys = KeysBelow { prefix, except: itself, after };
                    let rest = self.below(at, &place, keys, target, done).await?;
                    if let Some(after) = rest {
                        done.rest = Some(Cursor { scope: number, after });
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Transfers these keys. Returns the key at which to go on, if there are more keys than one
    /// request transfers.
    async fn below(
        &self,
        at: &At<'_>,
        place: &Place,
        KeysBelow { prefix, except, mut after }: KeysBelow<'_>,
        target: impl Fn(&str) -> String,
        done: &mut TransferResult,
    ) -> Result<Option<String>> {
        loop {
            if done.seen >= limits::TRANSFERS {
                return Ok(Some(after));
            }
            let verb = ListObjects {
                bucket: at.bucket.to_owned(),
                prefix: prefix.to_owned(),
                after: after.clone(),
                max_keys: LISTED.min(limits::TRANSFERS - done.seen),
                ..ListObjects::default()
            };
            let page = at.inner.fs().read(&at.login.caller, verb).await?;
            done.has_hidden |= page.hidden > 0;
            for found in page.objects.iter().filter(|found| Some(&*found.key) != except) {
                self.one(at, place, &found.key, &target(&found.key), done).await;
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(None),
            }
        }
    }

    async fn one(
        &self,
        at: &At<'_>,
        place: &Place,
        key: &str,
        target: &str,
        done: &mut TransferResult,
    ) {
        done.seen += 1;
        match self.object(at, place, key, target).await {
            Ok(()) => done.keys.push(target.to_owned()),
            Err(Error::PreconditionFailed(_)) => done.kept.push(key.to_owned()),
            Err(error) => done.failed.push((key.to_owned(), error)),
        }
    }

    async fn object(&self, at: &At<'_>, place: &Place, key: &str, target: &str) -> Result<()> {
        let (fs, caller) = (at.inner.fs(), &at.login.caller);
        let if_none_match = (!self.replaces).then_some(EtagMatch::Any);
        let conditions = Conditions { if_none_match, ..Conditions::default() };
        let delete = |conditions| {
            let (bucket, key) = (at.bucket.to_owned(), key.to_owned());
            DeleteObject { bucket, key, conditions }
        };
        if target.ends_with('/') && place.has_directories() {
            // The object that stands for a folder becomes a directory there.
            folders::ensure(at, place, target).await?;
            if self.is_move {
                fs.run(caller, delete(Conditions::default())).await?;
            }
            return Ok(());
        }
        if self.is_move && self.bucket == at.bucket {
            let (bucket, key) = (at.bucket.to_owned(), key.to_owned());
            let verb = MoveObject { bucket, key, target: target.to_owned(), conditions };
            return fs.run(caller, verb).await.map(drop);
        }
        // Deletes only the object that was copied.
        let etag = fs.open(caller, at.bucket, key).await?.etag();
        let same =
            Conditions { if_match: Some(EtagMatch::OneOf(vec![etag])), ..Conditions::default() };
        let verb = CopyObject {
            source_bucket: at.bucket.to_owned(),
            source_key: key.to_owned(),
            source_conditions: same.clone(),
            bucket: self.bucket.clone(),
            key: target.to_owned(),
            conditions,
            object: None,
            tags: None,
        };
        fs.copy_as_is(caller, verb).await?;
        if self.is_move {
            fs.run(caller, delete(same)).await?;
        }
        Ok(())
    }
}

fn shown(at: &At<'_>, chosen: &Selection, title: &str, body: &Markup) -> Reply {
    let crumbs = at.crumbs(&chosen.prefix, true);
    let page = Page { title, login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    reply::html(StatusCode::OK, page::page(&page, body))
}

fn ask(at: &At<'_>, chosen: &Selection) -> Markup {
    let single = chosen.single().map(|key| split(key).1.trim_end_matches('/'));
    let replaces = [("keep", "Leave both files as they are"), ("replace", "Replace it")];
    html! {
        h1 { "Copy or move " (chosen.words(at)) }
        (names(chosen))
        form method="post" action=(format!("/b/{}/transfer", at.bucket)) class="form" {
            (fields::hidden(&chosen.fields()))
            (fields::text(&Text {
                id: "to-bucket", label: "To the bucket", value: at.bucket, is_required: true,
                ..Text::default()
            }))
            (fields::text(&Text {
                id: "to", label: "Folder", value: &chosen.prefix,
                hint: "Such as photos/2026/; empty for the top of the bucket.", ..Text::default()
            }))
            @if let Some(name) = single {
                (fields::text(&Text {
                    id: "name", label: "Name", value: name, is_required: true, ..Text::default()
                }))
            }
            (fields::choice("existing", "If a file is there already", "keep", &replaces))
            div class="line" {
                button type="submit" name="do" value="copy" class="primary" { "Copy" }
                button type="submit" name="do" value="move" class="primary" { "Move" }
                a class="button" href=(at.folder(&chosen.prefix)) { "Cancel" }
            }
        }
    }
}

fn told(
    at: &At<'_>,
    chosen: &Selection,
    wanted: &TransferRequest,
    count: usize,
    done: &TransferResult,
) -> Markup {
    let what = if wanted.is_move { "moved" } else { "copied" };
    let name = |key: &str| key.strip_prefix(&*chosen.prefix).unwrap_or(key).to_owned();
    let target = at.beside(&wanted.bucket).folder(&wanted.folder);
    html! {
        h1 { "Not all was " (what) }
        p { (words::counted(count as u64, "object")) " " (what) "." }
        @if !done.kept.is_empty() {
            p { "These were not " (what) ", because the other place has such files:" }
            ul class="names" {
                @for key in done.kept.iter().take(SHOWN) { li { code { (name(key)) } } }
            }
        }
        @if !done.failed.is_empty() {
            p { "These were not " (what) ":" }
            ul class="names" {
                @for (key, error) in done.failed.iter().take(SHOWN) {
                    li { code { (name(key)) } ": " (error) }
                }
            }
        }
        @if done.has_hidden {
            p {
                "There are names that are not UTF-8 or longer than 1,024 bytes. They stay as they are, "
                "since only a mount can show them."
            }
        }
        @match &done.rest {
            Some(rest) => {
                p { "There is more than one request does." }
                (go_on(at, chosen, wanted, rest))
            },
            None => p { a class="button" href=(target) { "To the folder" } },
        }
    }
}

/// Names of each sort that are shown, at most.
const SHOWN: usize = 20;

fn go_on(at: &At<'_>, chosen: &Selection, wanted: &TransferRequest, rest: &Cursor) -> Markup {
    let scope = rest.scope.to_string();
    let mut fields = chosen.fields();
    fields.extend([
        ("do", if wanted.is_move { "move" } else { "copy" }),
        ("to-bucket", &wanted.bucket),
        ("to", &wanted.folder),
        ("name", wanted.name.as_deref().unwrap_or_default()),
        ("existing", if wanted.replaces { "replace" } else { "keep" }),
        ("scope", &scope),
        ("after", &rest.after),
    ]);
    fields::confirm(&fields::Confirm {
        action: &format!("/b/{}/transfer", at.bucket),
        fields: &fields,
        text: "Go on",
        class: "",
        back: &at.folder(&chosen.prefix),
    })
}

//! Deletion of files and folders after a confirmation.

use cairn_base::Error;
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::list_objects::ListObjects;
use http::StatusCode;
use maud::{Markup, html};

use super::At;
use super::selection::{Scope, Selection};
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::{limits, words};

/// Names that are shown before a deletion, at most.
const SHOWN: usize = 20;

/// The outcome of a deletion.
#[derive(Default)]
struct DeletionResult {
    keys: Vec<String>,
    failed: Vec<(String, Error)>,
    /// Set if a folder has more than one request deletes.
    is_partial: bool,
    /// Set if names stay that only a mount shows.
    has_hidden: bool,
}

pub async fn delete(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let chosen = Selection::of(&form)?;
    if !form.is_confirmed() {
        return Ok(shown(at, &chosen, &ask(at, &chosen)));
    }
    let mut done = DeletionResult::default();
    let outcome = delete_all(at, &chosen, &mut done).await;
    let removed = std::mem::take(&mut done.keys);
    let count = removed.len();
    at.asked.witness.note(|facts| facts.keys = removed);
    outcome?;
    if done.failed.is_empty() && !done.is_partial && !done.has_hidden {
        return Ok(reply::see_other(&at.folder(&chosen.prefix)));
    }
    Ok(shown(at, &chosen, &partial(at, &chosen, count, &done)))
}

async fn delete_all(
    at: &At<'_>,
    chosen: &Selection,
    done: &mut DeletionResult,
) -> Result<(), Error> {
    let mut files = Vec::new();
    let mut below = Vec::new();
    for scope in chosen.scopes() {
        match scope {
            Scope::File(key) => files.push(key),
            Scope::Below { prefix, has_itself } => below.push((prefix, has_itself)),
        }
    }
    if !files.is_empty() {
        delete_some(at, files, done).await?;
    }
    for (prefix, has_itself) in below {
        let itself = (!has_itself).then_some(&*chosen.prefix);
        delete_below(at, &prefix, itself, done).await?;
        if done.is_partial {
            break;
        }
    }
    Ok(())
}

/// Deletes all keys that begin with a prefix, except the key `but`.
async fn delete_below(
    at: &At<'_>,
    prefix: &str,
    but: Option<&str>,
    done: &mut DeletionResult,
) -> Result<(), Error> {
    let mut after = String::new();
    loop {
        if done.keys.len() >= limits::DELETES {
            done.is_partial = true;
            return Ok(());
        }
        let verb = ListObjects {
            bucket: at.bucket.to_owned(),
            prefix: prefix.to_owned(),
            after: after.clone(),
            max_keys: cairn_base::limits::DELETE_KEYS,
            ..ListObjects::default()
        };
        let page = at.inner.fs().read(&at.login.caller, verb).await?;
        done.has_hidden |= page.hidden > 0;
        let next = page.next.or_else(|| page.objects.last().map(|found| found.key.clone()));
        let failures = done.failed.len();
        // In reverse order, so that the object of a folder is deleted after the objects in the
        // folder.
        let keys = page.objects.into_iter().rev().map(|found| found.key);
        let keys: Vec<String> = keys.filter(|key| Some(&**key) != but).collect();
        let stays = keys.is_empty();
        if !stays {
            delete_some(at, keys, done).await?;
        }
        // Deleted keys are not listed again. A page may have only keys that stay, for instance
        // names that S3 cannot show.
        match next {
            None => return Ok(()),
            Some(next) if stays || done.failed.len() > failures => after = next,
            Some(_) => {}
        }
    }
}

async fn delete_some(
    at: &At<'_>,
    keys: Vec<String>,
    done: &mut DeletionResult,
) -> Result<(), Error> {
    let keys: Vec<_> = keys.into_iter().map(|key| (key, Conditions::default())).collect();
    let tell = |key: &str, reply: Result<bool, Error>| match reply {
        Ok(_) => done.keys.push(key.to_owned()),
        Err(error) => done.failed.push((key.to_owned(), error)),
    };
    at.inner.fs().delete_objects(&at.login.caller, at.bucket, &keys, tell).await
}

fn shown(at: &At<'_>, chosen: &Selection, body: &Markup) -> Reply {
    let crumbs = at.crumbs(&chosen.prefix, true);
    let page = Page { title: "Delete", login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    reply::html(StatusCode::OK, page::page(&page, body))
}

fn again(at: &At<'_>, chosen: &Selection, text: &str) -> Markup {
    let (action, back) = (format!("/b/{}/delete", at.bucket), at.folder(&chosen.prefix));
    let fields = chosen.fields();
    let of = Confirm { action: &action, fields: &fields, text, class: "danger", back: &back };
    fields::confirm(&of)
}

fn ask(at: &At<'_>, chosen: &Selection) -> Markup {
    html! {
        h1 { "Delete " (chosen.words(at)) "?" }
        (names(chosen))
        p { "This cannot be undone." }
        (again(at, chosen, "Delete"))
    }
}

/// Shows the names of the selection, or the first of them.
pub fn names(chosen: &Selection) -> Markup {
    let shown = chosen.names(SHOWN);
    let more = chosen.unnamed(shown.len());
    html! {
        @if !shown.is_empty() {
            ul class="names" {
                @for name in &shown { li { code { (name) } } }
                @if more > 0 { li { "and " (words::count(more as u64)) " more" } }
            }
        }
    }
}

fn partial(at: &At<'_>, chosen: &Selection, count: usize, done: &DeletionResult) -> Markup {
    html! {
        h1 { "Not all was deleted" }
        p { (words::counted(count as u64, "object")) " deleted." }
        @if !done.failed.is_empty() {
            p { "These are still there:" }
            ul class="names" {
                @for (key, error) in done.failed.iter().take(SHOWN) {
                    li { code { (key.strip_prefix(&*chosen.prefix).unwrap_or(key)) } ": " (error) }
                }
            }
        }
        @if done.has_hidden {
            p {
                "There are names that are not UTF-8 or longer than 1,024 bytes. They stay, since only "
                "a mount can show and delete them."
            }
        }
        @if done.is_partial {
            p { "There is more than one request deletes." }
            (again(at, chosen, "Go on"))
        } @else {
            p { a class="button" href=(at.folder(&chosen.prefix)) { "Back to the folder" } }
        }
    }
}

//! Deleting files and folders, once that was confirmed.

use cairn_base::Error;
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::delete_object::DeleteObjects;
use cairn_fs::ops::list_objects::ListObjects;
use http::StatusCode;
use maud::{Markup, html};

use super::At;
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::{limits, words};

/// Names that are shown before a deletion.
const SHOWN: usize = 20;

/// The outcome of a deletion.
#[derive(Default)]
struct Deleted {
    keys: Vec<String>,
    failed: Vec<(String, Error)>,
    /// There is more in a folder than one request deletes.
    is_partial: bool,
}

pub async fn delete(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let keys: Vec<String> = form.all("key").map(str::to_owned).collect();
    let prefix = form.get("in").to_owned();
    if keys.is_empty() {
        return Err(Error::Invalid("nothing was selected".into()).into());
    }
    if keys.len() > cairn_base::limits::DELETE_KEYS {
        let most = cairn_base::limits::DELETE_KEYS;
        return Err(Error::Invalid(format!("select at most {most} at a time")).into());
    }
    if !form.is_confirmed() {
        return Ok(shown(at, &prefix, &ask(at, &prefix, &keys)));
    }
    let mut done = Deleted::default();
    let (folders, files): (Vec<String>, Vec<String>) =
        keys.iter().cloned().partition(|key| key.ends_with('/'));
    let outcome = delete_all(at, &folders, files, &mut done).await;
    let removed = std::mem::take(&mut done.keys);
    let count = removed.len();
    at.asked.witness.note(|facts| facts.keys = removed);
    outcome?;
    if done.failed.is_empty() && !done.is_partial {
        return Ok(reply::see_other(&at.folder(&prefix)));
    }
    Ok(shown(at, &prefix, &partial(at, &prefix, &keys, count, &done)))
}

async fn delete_all(
    at: &At<'_>,
    folders: &[String],
    files: Vec<String>,
    done: &mut Deleted,
) -> Result<(), Error> {
    if !files.is_empty() {
        delete_some(at, files, done).await?;
    }
    for folder in folders {
        let mut after = String::new();
        loop {
            if done.keys.len() >= limits::DELETES {
                done.is_partial = true;
                return Ok(());
            }
            let verb = ListObjects {
                bucket: at.bucket.to_owned(),
                prefix: folder.clone(),
                after: after.clone(),
                max_keys: cairn_base::limits::DELETE_KEYS,
                ..ListObjects::default()
            };
            let page = at.inner.fs().read(&at.login.caller, verb).await?;
            let before = done.keys.len();
            // In reverse order: so the object of a folder goes after the objects in the folder.
            let keys: Vec<String> = page.objects.into_iter().rev().map(|found| found.key).collect();
            if keys.is_empty() {
                // A page may have passed over nothing but names that S3 cannot show.
                let Some(next) = page.next else { break };
                after = next;
                continue;
            }
            delete_some(at, keys, done).await?;
            if done.keys.len() == before {
                break;
            }
        }
    }
    Ok(())
}

async fn delete_some(at: &At<'_>, keys: Vec<String>, done: &mut Deleted) -> Result<(), Error> {
    let wanted = keys.iter().map(|key| (key.clone(), Conditions::default())).collect();
    let verb = DeleteObjects { bucket: at.bucket.to_owned(), keys: wanted };
    let replies = at.inner.fs().run(&at.login.caller, verb).await?;
    for (key, reply) in keys.into_iter().zip(replies) {
        match reply {
            Ok(_) => done.keys.push(key),
            Err(error) => done.failed.push((key, error)),
        }
    }
    Ok(())
}

fn shown(at: &At<'_>, prefix: &str, body: &Markup) -> Reply {
    let crumbs = at.crumbs(prefix, true);
    let page = Page { title: "Delete", login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    reply::html(StatusCode::OK, page::page(&page, body))
}

fn again(at: &At<'_>, prefix: &str, keys: &[String], text: &str) -> Markup {
    let mut fields = vec![("in", prefix)];
    fields.extend(keys.iter().map(|key| ("key", key.as_str())));
    let (action, back) = (format!("/b/{}/delete", at.bucket), at.folder(prefix));
    let of = Confirm { action: &action, fields: &fields, text, class: "danger", back: &back };
    fields::confirm(&of)
}

fn ask(at: &At<'_>, prefix: &str, keys: &[String]) -> Markup {
    let folders = keys.iter().filter(|key| key.ends_with('/')).count();
    let what = match (keys, folders) {
        ([_], 1) => "this folder and all that is in it".to_owned(),
        ([_], _) => "this file".to_owned(),
        (_, 0) => format!("{} files", words::count(keys.len() as u64)),
        (_, all) if all == keys.len() => {
            format!("{} folders and all that is in them", words::count(all as u64))
        }
        (_, some) => format!(
            "{} files, and {} folders with all that is in them",
            words::count((keys.len() - some) as u64),
            words::count(some as u64)
        ),
    };
    html! {
        h1 { "Delete " (what) "?" }
        ul class="names" {
            @for key in keys.iter().take(SHOWN) {
                li { code { (key.strip_prefix(prefix).unwrap_or(key)) } }
            }
            @if keys.len() > SHOWN {
                li { "and " (words::count((keys.len() - SHOWN) as u64)) " more" }
            }
        }
        p { "This cannot be undone." }
        (again(at, prefix, keys, "Delete"))
    }
}

fn partial(at: &At<'_>, prefix: &str, keys: &[String], count: usize, done: &Deleted) -> Markup {
    html! {
        h1 { "Not all was deleted" }
        p { (words::count(count as u64)) " objects were deleted." }
        @if !done.failed.is_empty() {
            p { "These are still there:" }
            ul class="names" {
                @for (key, error) in done.failed.iter().take(SHOWN) {
                    li { code { (key.strip_prefix(prefix).unwrap_or(key)) } ": " (error) }
                }
            }
        }
        @if done.is_partial {
            p { "There is more in the folders than one request deletes." }
            (again(at, prefix, keys, "Go on"))
        } @else {
            p { a class="button" href=(at.folder(prefix)) { "Back to the folder" } }
        }
    }
}

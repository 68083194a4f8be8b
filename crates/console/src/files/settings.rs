//! The settings of a bucket.

use cairn_auth::{Action, Caller, Visibility};
use cairn_base::{Error, Result};
use cairn_fs::ops::buckets::{GetBucket, SetListing, UpdateBucket};
use cairn_fs::ops::credentials::UserName;
use cairn_fs::rows::{Bucket, BucketKind, Usage};
use http::StatusCode;
use maud::{Markup, html};

use super::{At, read_only, rights, unfinished_uploads};
use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::forms::Form;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::words;

/// Settings that the page offers to the user.
struct May {
    open: bool,
    set: bool,
    limit: bool,
    write: bool,
}

impl May {
    fn of(at: &At<'_>, bucket: &Bucket) -> May {
        let may = |action| at.offers(bucket.access(), action);
        May {
            open: may(Action::PutBucketAcl),
            set: may(Action::PutBucketSettings),
            limit: may(Action::PutBucketQuota),
            write: may(Action::ListBucketMultipartUploads),
        }
    }
}

/// Says what the kind of a bucket means.
fn kind(kind: BucketKind) -> &'static str {
    match kind {
        BucketKind::Posix => "files: keys are names of files",
        BucketKind::S3 => "objects: every key of S3; mounts show those that are names of files",
    }
}

pub async fn show(at: &At<'_>) -> Result<Reply, Failure> {
    let fs = at.inner.fs();
    let (opened, usage) =
        fs.read(&at.login.caller, GetBucket { name: at.bucket.to_owned() }).await?;
    let bucket = &opened.bucket;
    let may = May::of(at, bucket);
    let owner = fs.read(&Caller::system(), UserName { user: bucket.owner }).await?;
    let rights = if may.open { rights::section(at, bucket).await? } else { Markup::default() };
    let unfinished =
        if may.write { unfinished_uploads::section(at).await? } else { Markup::default() };
    let body = html! {
        h1 { "Settings of " (at.bucket) }
        dl class="facts" {
            @for (name, value) in [
                ("Owner", owner.unwrap_or_default()),
                ("Kind", kind(bucket.kind).to_owned()),
                ("Made (UTC)", words::time(bucket.created)),
                ("Contents", format!("{}, {}", words::counted(usage.objects, "object"),
                    words::size(usage.bytes))),
            ] { div { dt { (name) } dd { (value) } } }
        }
        @if may.set { (settings(at, bucket)) } @else {
            p class="hint" { "Only a user who administers the bucket can change its settings." }
        }
        @if may.set { (read_only::of_bucket(at.bucket, bucket.read_only)) }
        (rights)
        @if may.limit { (quotas(at, &usage)) }
        (unfinished)
    };
    let crumbs = at.crumbs("", true);
    let page =
        Page { title: "Settings", login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

fn settings(at: &At<'_>, bucket: &Bucket) -> Markup {
    const ON: [(&str, &str); 2] = [("off", "Off"), ("on", "On")];
    const SEEN: [(&str, &str); 2] = [
        ("private", "Private: only users with rights"),
        ("public", "Public: everybody may read and list"),
    ];
    let on = |is_on| if is_on { "on" } else { "off" };
    let replicas = bucket.redundancy.map_or(0, |redundancy| redundancy.number());
    html! {
        section class="group" aria-labelledby="settings" {
            h2 id="settings" { "Settings" }
            form method="post" action=(format!("/b/{}/settings", at.bucket)) class="form" {
                (fields::choice("visibility", "Visibility", bucket.chosen_visibility().as_str(), &SEEN))
                @if bucket.is_public_behind {
                    p class="hint" { "A public access block keeps this bucket private until it ends." }
                }

                (fields::text(&Text {
                    id: "cache-control", label: "Cache-Control", value: &bucket.cache_control,
                    hint: "For objects that have none of their own.", ..Text::default()
                }))
                (fields::choice("html-listing", "Listings as pages for browsers",
                    on(bucket.html_listing), &ON))
                (fields::choice("redirect", "Send readers to chunkservers (cluster)",
                    on(bucket.redirect), &ON))
                (fields::text(&Text {
                    id: "replicas", label: "Replicas of new blocks (cluster)", kind: "number",
                    value: &replicas.to_string(), hint: "0 for the number of the cluster.",
                    ..Text::default()
                }))
                // Unchanged values are not sent again.
                (fields::hidden(&[
                    ("was-visibility", bucket.chosen_visibility().as_str()),
                    ("was-redirect", on(bucket.redirect)),
                    ("was-replicas", &replicas.to_string()),
                    ("was-html-listing", on(bucket.html_listing)),
                    ("was-cache-control", &bucket.cache_control),
                ]))
                button type="submit" class="primary" { "Save settings" }
            }
        }
    }
}

fn quotas(at: &At<'_>, usage: &Usage) -> Markup {
    let number = |limit: u64| if limit == 0 { String::new() } else { limit.to_string() };
    html! {
        section class="group" aria-labelledby="quotas" {
            h2 id="quotas" { "Quota" }
            form method="post" action=(format!("/b/{}/settings", at.bucket)) class="form" {
                (fields::hidden(&[("quota", "yes")]))
                (fields::text(&Text {
                    id: "quota-objects", label: "Objects, at most",
                    value: &number(usage.quota_objects), kind: "number",
                    hint: "Empty for any number.", ..Text::default()
                }))
                (fields::text(&Text {
                    id: "quota-bytes", label: "Size, at most", value: &number(usage.quota_bytes),
                    hint: "In bytes, or such as 500 GiB; empty for any size.", ..Text::default()
                }))
                button type="submit" { "Save quota" }
            }
        }
    }
}

pub async fn change(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let (fs, caller) = (at.inner.fs(), &at.login.caller);
    let name = at.bucket.to_owned();
    match form.get("quota") {
        "yes" => {
            let update = UpdateBucket {
                name,
                quota_objects: Some(form.number("quota-objects", "Objects")?.unwrap_or(0)),
                quota_bytes: Some(words::parse_size(form.get("quota-bytes"))?.unwrap_or(0)),
                ..UpdateBucket::default()
            };
            fs.run(caller, update).await?;
        }
        _ => {
            let (update, listing) = changed(name, &form)?;
            if update.visibility == Some(Visibility::Public) {
                fs.check_is_shown(caller, at.bucket).await?;
            }
            match listing {
                Some(html_listing) => {
                    fs.run(caller, SetListing { update, html_listing }).await?;
                }
                None => drop(fs.run(caller, update).await?),
            }
        }
    }
    Ok(reply::see_other(&format!("/b/{}/settings", at.bucket)))
}

/// Returns the settings that a form changes: those that differ from the values when the form was
/// made.
fn changed(name: String, form: &Form) -> Result<(UpdateBucket, Option<bool>)> {
    let field = |field: &str| {
        let (now, was) = (form.get(field).trim(), form.get(&format!("was-{field}")));
        (now != was).then(|| now.to_owned())
    };
    let switch = |name: &str| match field(name).as_deref() {
        None => Ok(None),
        Some("on") => Ok(Some(true)),
        Some("off") => Ok(Some(false)),
        Some(word) => Err(Error::Invalid(format!("{name} {word:?}: use on or off"))),
    };
    let replicas = field("replicas").map(|text| {
        let wrong = |_| Error::Invalid(format!("replicas {text:?}: use 1 to 5, or 0"));
        text.parse::<u8>().map_err(wrong)
    });
    let update = UpdateBucket {
        name,
        visibility: field("visibility").as_deref().map(Visibility::parse).transpose()?,
        cache_control: field("cache-control"),
        replicas: replicas.transpose()?,
        redirect: switch("redirect")?,
        ..UpdateBucket::default()
    };
    Ok((update, switch("html-listing")?))
}

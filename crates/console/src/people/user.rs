//! A user: access keys, rights, limits, and whether the user is enabled.

use std::collections::HashMap;

use cairn_auth::{Caller, Rights};
use cairn_base::{Error, Result, UserId};
use cairn_doors::admit::ROOT;
use cairn_fs::ops::buckets::{ListBuckets, UpdateBucket};
use cairn_fs::ops::credentials::{
    AddAccessKey, DisableUser, ListCredentials, ListUsers, ListedUser, RemoveCredential, UserName,
};
use cairn_fs::ops::user_limits::{LEAST_BYTES, ListUserLimits, SetUserLimits};
use cairn_fs::rows::UserLimits;
use http::StatusCode;
use maud::{Markup, html};

use super::credentials;
use super::users::PART;
use crate::failure::Failure;
use crate::fields::{self, Confirm, Text};
use crate::inner::For;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::words;

const RIGHTS: [Column; 3] =
    [column("Bucket", "name"), column("Rights", ""), sheet::tools("Change", "number")];

fn shown(of: &For<'_>, title: &str, body: &Markup) -> Reply {
    let crumbs = [("People".to_owned(), PART.to_owned())];
    let page = Page { title, login: Some(of.login), crumbs: &crumbs, part: PART };
    reply::html(StatusCode::OK, page::page(&page, body))
}

fn place(name: &str) -> String {
    format!("/person?name={}", words::in_query(name))
}

async fn find(of: &For<'_>, name: &str) -> Result<ListedUser> {
    let users = of.inner.fs().read(&of.login.caller, ListUsers).await?;
    let found = users.into_iter().find(|user| user.name == name);
    found.ok_or_else(|| Error::NotFound(format!("user {name}")))
}

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    let query = of.asked.query()?;
    let user = find(of, query.get("name")).await?;
    let mut keys = of.inner.fs().read(&of.login.caller, ListCredentials).await?;
    keys.retain(|credential| credential.user == user.name);
    let (held, is_whole) = rights_of(of, &user.name).await?;
    let limits = limits_of(of, &user.name).await?;
    let body = html! {
        div class="title" {
            h1 { (user.name) }
            p class="counters" {
                span { "made " (words::time(user.created)) " (UTC)" }
                @if user.disabled { span class="tag warn" { "disabled" } }
            }
        }
        (state(&user))
        section class="group" aria-labelledby="keys" {
            h2 id="keys" { "Access keys and tokens" }
            @if keys.is_empty() { p class="hint" { "There are none, so the user cannot come in." } }
            @else { (credentials::table(&keys, &of.login.credential, "/end-key")) }
            form method="post" action="/people" {
                (fields::hidden(&[("user", &user.name)]))
                button type="submit" { "Make access key" }
            }
        }
        (rights(&user.name, &held, is_whole))
        @if user.name != ROOT { (limits_form(&user.name, limits)) }
    };
    Ok(shown(of, &user.name, &body))
}

/// Returns the limits of a user: none if the master is of an earlier version, which has no limits.
async fn limits_of(of: &For<'_>, name: &str) -> Result<UserLimits> {
    let listed = match of.inner.fs().read(&of.login.caller, ListUserLimits).await {
        Err(Error::NotImplemented(_)) => Vec::new(),
        listed => listed?,
    };
    let found = listed.into_iter().find(|(known, _)| known == name);
    Ok(found.map(|(_, limits)| limits).unwrap_or_default())
}

fn limits_form(name: &str, limits: UserLimits) -> Markup {
    let number = |limit: u64| if limit == 0 { String::new() } else { limit.to_string() };
    let UserLimits { requests, bytes } = limits;
    let least = format!(
        "In and out together, in bytes, or such as 10 MiB; at least {}. Empty for any rate.",
        words::size(LEAST_BYTES)
    );
    html! {
        section class="group" aria-labelledby="limits" {
            h2 id="limits" { "Limits" }
            p class="hint" {
                @if limits == UserLimits::default() { "There are none." } @else {
                    @if requests > 0 { (words::counted(requests, "request")) " a second. " }
                    @if bytes > 0 { (words::size(bytes)) " a second." }
                }
            }
            form method="post" action="/limits" class="form" {
                (fields::hidden(&[("user", name)]))
                (fields::text(&Text {
                    id: "requests", label: "Requests a second, at most", kind: "number",
                    value: &number(requests), hint: "Empty for any number.", ..Text::default()
                }))
                (fields::text(&Text {
                    id: "bytes", label: "Bytes a second, at most", value: &number(bytes),
                    hint: &least, ..Text::default()
                }))
                p class="hint" {
                    "Each server and gateway counts on its own. Mounts and the console are not "
                    "limited."
                }
                button type="submit" { "Save limits" }
            }
        }
    }
}

fn state(user: &ListedUser) -> Markup {
    let (value, class, text) =
        if user.disabled { ("no", "", "Enable") } else { ("yes", "danger", "Disable…") };
    html! {
        form method="post" action="/disable" {
            (fields::hidden(&[("user", &user.name), ("disabled", value)]))
            button type="submit" class=(class) { (text) }
        }
    }
}

/// A bucket in which a user has rights: all of them as its owner.
struct BucketRights {
    bucket: String,
    rights: Rights,
    is_owner: bool,
}

/// Returns the rights of a user in the first buckets, and whether these are all.
async fn rights_of(of: &For<'_>, name: &str) -> Result<(Vec<BucketRights>, bool)> {
    let limit = cairn_base::limits::LIST_KEYS;
    let verb = ListBuckets { prefix: String::new(), after: String::new(), limit };
    let (found, next) = of.inner.fs().read(&of.login.caller, verb).await?;
    let mut names: HashMap<UserId, bool> = HashMap::new();
    let mut held = Vec::new();
    for (opened, _) in found {
        let bucket = opened.bucket;
        let owner = [(bucket.owner, Rights::ALL)];
        for (at, (user, rights)) in owner.iter().chain(&bucket.grants).enumerate() {
            let is_this = match names.get(user) {
                Some(is_this) => *is_this,
                None => {
                    let verb = UserName { user: *user };
                    let known = of.inner.fs().read(&Caller::system(), verb).await?;
                    *names.entry(*user).or_insert(known.as_deref() == Some(name))
                }
            };
            if is_this {
                let bucket = bucket.name.clone();
                held.push(BucketRights { bucket, rights: *rights, is_owner: at == 0 });
            }
        }
    }
    Ok((held, next.is_none()))
}

fn rights(name: &str, held: &[BucketRights], is_whole: bool) -> Markup {
    let rows = html! {
        @for BucketRights { bucket, rights, is_owner } in held {
            tr {
                td class="name" {
                    a class="bucket" href=(format!("/b/{bucket}/settings")) { (bucket) }
                }
                td { @if *is_owner { "owner" } @else { (rights) } }
                td class="number" {
                    @if !is_owner {
                        form method="post" action="/grant" {
                            (fields::hidden(&[("user", name), ("bucket", bucket)]))
                            button type="submit" class="danger"
                                aria-label=(format!("Take rights in {bucket}")) { "Take away" }
                        }
                    }
                }
            }
        }
    };
    html! {
        section class="group" aria-labelledby="rights" {
            h2 id="rights" { "Rights in buckets" }
            @if held.is_empty() { p class="hint" { "There are none." } }
            @else { (sheet::plain(&RIGHTS, &rows)) }
            @if !is_whole {
                p class="hint" { "Only the first 1,000 buckets are looked at here." }
            }
            form method="post" action="/grant" class="form" {
                (fields::hidden(&[("user", name)]))
                (fields::text(&Text {
                    id: "bucket", label: "Bucket", is_required: true, ..Text::default()
                }))
                (fields::rights(Rights::READ))
                button type="submit" { "Give rights" }
            }
        }
    }
}

/// Makes an access key, and the user if it is new.
pub async fn make_key(of: &For<'_>) -> Result<Reply, Failure> {
    let form = of.asked.form()?;
    let name = form.get("user").trim().to_owned();
    let admit = &of.inner.admit;
    let users = of.inner.fs().read(&of.login.caller, ListUsers).await?;
    let is_known = users.iter().any(|user| user.name == name);
    match (form.get("new") == "yes", is_known) {
        (true, true) => return Err(Error::Exists(format!("user {name}")).into()),
        (false, false) => return Err(Error::NotFound(format!("user {name}")).into()),
        _ => {}
    }
    let new = cairn_auth::generate(&**admit.rng());
    let resource = format!("access key {} of {name}", new.id);
    of.asked.witness.note(|facts| facts.resource = Some(resource));
    let sealed = admit.seal(&new);
    let verb = AddAccessKey { id: new.id.clone(), sealed, user: name.clone(), replace: false };
    of.inner.fs().run(&of.login.caller, verb).await?;
    let body = html! {
        h1 { "An access key of " (name) " is made" }
        (credentials::once(&new))
        p { a class="button" href=(place(&name)) { "To the user" } }
    };
    Ok(shown(of, "New access key", &body))
}

/// Ends an access key or a token after a confirmation.
pub async fn end_key(of: &For<'_>) -> Result<Reply, Failure> {
    let form = of.asked.form()?;
    let (id, name) = (form.get("id"), form.get("user"));
    of.asked.witness.note(|facts| facts.resource = Some(format!("credential {id}")));
    if form.is_confirmed() {
        let verb = RemoveCredential { id: id.to_owned() };
        of.inner.fs().run(&of.login.caller, verb).await?;
        return Ok(reply::see_other(&place(name)));
    }
    let body = html! {
        (credentials::ask(id, id == of.login.credential))
        (fields::confirm(&Confirm {
            action: "/end-key",
            fields: &[("id", id), ("user", name)],
            text: "End it",
            class: "danger",
            back: &place(name),
        }))
    };
    Ok(shown(of, "End key", &body))
}

/// Disables a user after a confirmation, or enables one.
pub async fn disable(of: &For<'_>) -> Result<Reply, Failure> {
    let form = of.asked.form()?;
    let name = form.get("user").to_owned();
    let disabled = form.get("disabled") != "no";
    let what = if disabled { "disabled" } else { "enabled" };
    of.asked.witness.note(|facts| facts.resource = Some(format!("user {name} {what}")));
    if disabled && !form.is_confirmed() {
        let body = html! {
            h1 { "Disable " (name) "?" }
            p {
                "All access keys and tokens of the user are refused at every door, and logins and mounts "
                "end. Keys, buckets and rights stay, so that the user can be enabled again."
            }
            (fields::confirm(&Confirm {
                action: "/disable",
                fields: &[("user", &name), ("disabled", "yes")],
                text: "Disable",
                class: "danger",
                back: &place(&name),
            }))
        };
        return Ok(shown(of, "Disable user", &body));
    }
    let place = place(&name);
    of.inner.fs().run(&of.login.caller, DisableUser { name, disabled }).await?;
    Ok(reply::see_other(&place))
}

/// Sets the limits of a user; empty ones end.
pub async fn limit(of: &For<'_>) -> Result<Reply, Failure> {
    let form = of.asked.form()?;
    let name = form.get("user").to_owned();
    let requests = form.number("requests", "Requests")?.unwrap_or(0);
    let bytes = words::parse_size(form.get("bytes"))?.unwrap_or(0);
    of.asked.witness.note(|facts| {
        facts.resource = Some(format!("{requests} requests and {bytes} bytes a second of {name}"));
    });
    let place = place(&name);
    let verb = SetUserLimits { name, requests: Some(requests), bytes: Some(bytes) };
    of.inner.fs().run(&of.login.caller, verb).await?;
    Ok(reply::see_other(&place))
}

/// Gives a user rights in a bucket, or takes them away.
pub async fn grant(of: &For<'_>) -> Result<Reply, Failure> {
    let form = of.asked.form()?;
    let (user, bucket) = (form.get("user").to_owned(), form.get("bucket").trim().to_owned());
    let rights = fields::rights_of(&form);
    of.asked.witness.note(|facts| {
        facts.bucket = Some(bucket.clone());
        facts.resource = Some(format!("{rights} for {user}"));
    });
    let place = place(&user);
    let verb =
        UpdateBucket { name: bucket, grant: Some((user, rights)), ..UpdateBucket::default() };
    of.inner.fs().run(&of.login.caller, verb).await?;
    Ok(reply::see_other(&place))
}

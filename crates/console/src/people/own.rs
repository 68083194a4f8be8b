//! The access keys and tokens of the user who has logged in.

use cairn_fs::ops::credentials::{AddOwnKey, ListOwnCredentials, RemoveOwnCredential};
use http::StatusCode;
use maud::{Markup, html};

use super::credentials;
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::inner::For;
use crate::page::{self, Page};
use crate::reply::{self, Reply};

const PART: &str = "/keys";

fn shown(of: &For<'_>, title: &str, body: &Markup) -> Reply {
    let page = Page { title, login: Some(of.login), part: PART, ..Page::default() };
    reply::html(StatusCode::OK, page::page(&page, body))
}

/// Shows the addresses of the doors, as far as they follow from the browser's way to the console.
fn addresses(of: &For<'_>) -> Markup {
    let (site, host) = (&of.inner.site, &of.asked.host);
    html! {
        dl class="facts" {
            div { dt { "Address for S3" } dd { code { (site.data(host)) } } }
            div { dt { "Address for HTTP" } dd { code { (site.links(host)) } } }
        }
    }
}

pub async fn list(of: &For<'_>) -> Result<Reply, Failure> {
    let found = of.inner.fs().read(&of.login.caller, ListOwnCredentials).await?;
    let body = html! {
        div class="title" { h1 { "Your keys" } }
        p class="hint" {
            "Programs use an access key and its secret at every door. Give each program one of its own, "
            "so that you can end one without the others."
        }
        (addresses(of))
        (credentials::table(&found, &of.login.credential, "/end-own-key"))
        form method="post" action="/keys" {
            button type="submit" class="primary" { "Make access key" }
        }
    };
    Ok(shown(of, "Your keys", &body))
}

pub async fn make(of: &For<'_>) -> Result<Reply, Failure> {
    let admit = &of.inner.admit;
    let new = cairn_auth::generate(&**admit.rng());
    of.asked.witness.note(|facts| facts.resource = Some(format!("access key {}", new.id)));
    let verb = AddOwnKey { id: new.id.clone(), sealed: admit.seal(&new) };
    of.inner.fs().run(&of.login.caller, verb).await?;
    let body = html! {
        h1 { "The access key is made" }
        (credentials::once(&new))
        (addresses(of))
        p { a class="button" href=(PART) { "Back to your keys" } }
    };
    Ok(shown(of, "New access key", &body))
}

/// Ends a credential after a confirmation.
pub async fn end(of: &For<'_>) -> Result<Reply, Failure> {
    let form = of.asked.form()?;
    let id = form.get("id");
    of.asked.witness.note(|facts| facts.resource = Some(format!("credential {id}")));
    if form.is_confirmed() {
        let verb = RemoveOwnCredential { id: id.to_owned() };
        of.inner.fs().run(&of.login.caller, verb).await?;
        return Ok(reply::see_other(PART));
    }
    let body = html! {
        (credentials::ask(id, id == of.login.credential))
        (fields::confirm(&Confirm {
            action: "/end-own-key", fields: &[("id", id)], text: "End it", class: "danger", back: PART,
        }))
    };
    Ok(shown(of, "End key", &body))
}

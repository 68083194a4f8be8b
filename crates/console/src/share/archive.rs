//! Download of a folder as a zip archive, by a share link for one download, which is not passed on.

use std::time::Duration;

use cairn_base::Secret;
use cairn_doors::http::{NewShareLink, make_share_link};
use http::StatusCode;
use maud::html;

use crate::failure::Failure;
use crate::files::At;
use crate::limits;
use crate::page::{self, Page};
use crate::reply::{self, Reply};

pub async fn make(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let prefix = form.get("in").to_owned();
    at.asked.witness.note(|facts| facts.key = Some(prefix.clone()));
    let new = NewShareLink {
        bucket: at.bucket.to_owned(),
        key: prefix.clone(),
        lifetime: Some(Duration::from_secs(limits::DOWNLOAD_SECS.into())),
        password: None,
        downloads: Some(1),
        uploads: None,
    };
    let made = make_share_link(&at.inner.admit, &at.login.caller, new).await?;
    at.asked.witness.note(|facts| facts.resource = Some(format!("share link {}", made.id)));
    let address =
        Secret::new(format!("{}{}?zip", at.inner.site.links(&at.asked.host), made.path.expose()));
    let body = html! {
        h1 { "Download as zip" }
        p {
            "The archive is made while it is sent. It can have about 30,000 objects. The address below "
            "works once, within the next minutes."
        }
        div class="line" {
            a class="button primary" href=(address.expose()) data-plain data-follows { "Download" }
            a class="button" href=(at.folder(&prefix)) { "Back to the folder" }
        }
    };
    let crumbs = at.crumbs(&prefix, true);
    let page = Page { title: "Zip", login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

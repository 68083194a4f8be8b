//! The rights of other users in a bucket.

use cairn_auth::{Caller, Rights};
use cairn_base::Result;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::credentials::UserName;
use cairn_fs::rows::Bucket;
use maud::{Markup, html};

use super::At;
use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};

const COLUMNS: [Column; 3] =
    [column("User", "name"), column("Rights", ""), sheet::tools("Change", "number")];

pub async fn grant(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let (user, rights) = (form.get("user").trim().to_owned(), fields::rights_of(&form));
    at.asked.witness.note(|facts| facts.resource = Some(format!("{rights} for {user}")));
    let grant = Some((user, rights));
    let verb = UpdateBucket { name: at.bucket.to_owned(), grant, ..UpdateBucket::default() };
    at.inner.fs().run(&at.login.caller, verb).await?;
    Ok(reply::see_other(&format!("/b/{}/settings", at.bucket)))
}

pub async fn section(at: &At<'_>, bucket: &Bucket) -> Result<Markup> {
    let mut grants = Vec::with_capacity(bucket.grants.len());
    for (user, rights) in &bucket.grants {
        let verb = UserName { user: *user };
        let name = at.inner.fs().read(&Caller::system(), verb).await?;
        grants.push((name.unwrap_or_default(), *rights));
    }
    let action = format!("/b/{}/rights", at.bucket);
    let rows = html! {
        @for (user, rights) in &grants {
            tr {
                td class="name" { (user) }
                td { (rights) }
                td class="number" {
                    form method="post" action=(action) {
                        (fields::hidden(&[("user", user)]))
                        button type="submit" class="danger" aria-label=(format!("Take rights of {user}")) {
                            "Take away"
                        }
                    }
                }
            }
        }
    };
    Ok(html! {
        section class="group" aria-labelledby="rights" {
            h2 id="rights" { "Rights of other users" }
            @if grants.is_empty() {
                p class="hint" { "Nobody but the owner and root has rights in this bucket." }
            } @else {
                (sheet::plain(&COLUMNS, &rows))
            }
            form method="post" action=(action) class="form" {
                (fields::text(&Text {
                    id: "user", label: "User", is_required: true, ..Text::default()
                }))
                (fields::rights(Rights::READ))
                button type="submit" { "Give rights" }
            }
        }
    })
}

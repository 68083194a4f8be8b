//! The list of users.

use cairn_fs::ops::credentials::ListUsers;
use http::StatusCode;
use maud::html;

use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::inner::For;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::words;

pub const PART: &str = "/people";

const COLUMNS: [Column; 5] = [
    column("Name", "name"),
    column("Access keys", "number"),
    column("Tokens", "number"),
    column("State", ""),
    column("Made (UTC)", "wide"),
];

pub async fn list(of: &For<'_>) -> Result<Reply, Failure> {
    let users = of.inner.fs().read(&of.login.caller, ListUsers).await?;
    let rows = html! {
        @for user in &users {
            tr {
                td class="name" {
                    a href=(format!("/person?name={}", words::in_query(&user.name))) { (user.name) }
                }
                td class="number" { (words::count(user.access_keys)) }
                td class="number" { (words::count(user.tokens)) }
                td {
                    @if user.disabled { span class="tag warn" { "disabled" } } @else { "active" }
                }
                td class="wide" { (words::time(user.created)) }
            }
        }
    };
    let body = html! {
        div class="title" {
            h1 { "People" }
            p class="counters" { span { (words::counted(users.len() as u64, "user")) } }
        }
        div class="line" { a class="button" href="/audit" { "Audit" } }
        (sheet::plain(&COLUMNS, &rows))
        section class="group" aria-labelledby="make" {
            h2 id="make" { "Make a user" }
            form method="post" action="/people" class="form" {
                (fields::text(&Text {
                    id: "user", label: "Name", is_required: true,
                    hint: "1 to 64 of A-Z a-z 0-9 . _ -", ..Text::default()
                }))
                (fields::hidden(&[("new", "yes")]))
                button type="submit" class="primary" { "Make user and access key" }
            }
        }
    };
    let page = Page { title: "People", login: Some(of.login), part: PART, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

//! The frame of all pages.

use maud::{DOCTYPE, Markup, html};

use crate::inner::LoggedIn;
use crate::{assets, nav};

/// Parts of the frame that differ between pages.
#[derive(Default)]
pub struct Page<'a> {
    pub title: &'a str,
    pub login: Option<&'a LoggedIn>,
    /// Path to the page: the names and places above it.
    pub crumbs: &'a [(String, String)],
    /// Address of the part to which the page belongs; empty for the buckets.
    pub part: &'static str,
}

pub fn page(of: &Page<'_>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (of.title) " · Cairn" }
                link rel="icon" type="image/svg+xml" href=(assets::path("icon.svg"));
                link rel="stylesheet" href=(assets::path("console.css"));
                @if of.login.is_some() {
                    script type="module" src=(assets::path("console.js")) {}
                    script type="module" src=(assets::path("listing.js")) {}
                    script type="module" src=(assets::path("live.js")) {}
                    script type="module" src=(assets::path("uploads.js")) {}
                }
            }
            body {
                @if let Some(login) = of.login {
                    a class="skip" href="#main" { "Skip to the content" }
                    (header(login, of.part))
                }
                main id="main" tabindex="-1" {
                    @if !of.crumbs.is_empty() { (crumbs(of)) }
                    @if of.login.is_some_and(|login| login.is_read_only) { (read_only()) }
                    (body)
                }
                @if of.login.is_some() { cairn-uploads {} }
            }
        }
    }
}

/// Makes a link to a page of the documents, by its name below `docs/`. Whoever uses a browser has
/// no files of Cairn.
pub fn document(name: &str) -> Markup {
    let place = format!("{}/blob/main/docs/{name}", env!("CARGO_PKG_REPOSITORY"));
    html! { a href=(place) rel="noreferrer" { "docs/" (name) } }
}

fn read_only() -> Markup {
    html! {
        p class="banner" {
            "The store is read-only: it can be looked at, and what is in it cannot be changed."
        }
    }
}

fn header(login: &LoggedIn, place: &str) -> Markup {
    let is_at = |part: &str| part == if place.is_empty() { "/" } else { place };
    html! {
        header class="top" {
            a class="brand" href="/" {
                img src=(assets::path("icon.svg")) alt="" width="24" height="24";
                span { "Cairn" }
            }
            nav aria-label="Main" {
                @for part in nav::parts(login) {
                    a href=(part.place) aria-current=[is_at(part.place).then_some("true")] { (part.name) }
                }
            }
            details class="menu" {
                summary { span class="who" { (login.name) } }
                div class="card" {
                    p class="hint" { "Access key " code { (login.credential) } }
                    form method="post" action="/logout" data-plain {
                        button type="submit" { "Log out" }
                    }
                    form method="post" action="/logout-everywhere" data-plain {
                        button type="submit" { "Log out everywhere" }
                    }
                }
            }
        }
    }
}

fn crumbs(of: &Page<'_>) -> Markup {
    html! {
        nav class="crumbs" aria-label="Where this is" {
            ol {
                @for (name, place) in of.crumbs { li { a href=(place) { (name) } } }
                li aria-current="page" { (of.title) }
            }
        }
    }
}

//! Pages of the store: their names, addresses and parts, and the frame that they share.

use http::StatusCode;
use maud::{Markup, html};

use crate::inner::For;
use crate::page::{self, Page};
use crate::reply::{self, Reply};

pub const PART: &str = "/store";

/// A page with parts that change while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Screen {
    Overview,
    Requests,
    Mounts,
    Cluster,
    Scrub,
    Doctor,
    Logs,
}

/// Parts of a page that change, each with its id.
pub type Parts = Vec<(&'static str, Markup)>;

impl Screen {
    const ALL: [Screen; 7] = [
        Screen::Overview,
        Screen::Requests,
        Screen::Mounts,
        Screen::Cluster,
        Screen::Scrub,
        Screen::Doctor,
        Screen::Logs,
    ];

    pub fn place(self) -> &'static str {
        match self {
            Screen::Overview => "/store",
            Screen::Requests => "/store/requests",
            Screen::Mounts => "/store/mounts",
            Screen::Cluster => "/store/cluster",
            Screen::Scrub => "/store/scrub",
            Screen::Doctor => "/store/doctor",
            Screen::Logs => "/store/logs",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Screen::Overview => "Overview",
            Screen::Requests => "Requests",
            Screen::Mounts => "Mounts and locks",
            Screen::Cluster => "Cluster",
            Screen::Scrub => "Scrub",
            Screen::Doctor => "Doctor",
            Screen::Logs => "Logs",
        }
    }

    /// Returns the name of the page in the address of its events.
    pub fn id(self) -> &'static str {
        self.place().rsplit('/').next().unwrap_or_default()
    }

    pub fn of(id: &str) -> Option<Screen> {
        // A tail has separate events.
        let mut all = Screen::ALL.into_iter().filter(|screen| *screen != Screen::Logs);
        all.find(|screen| screen.id() == id)
    }
}

/// Makes the links from each page of the store to the others.
pub fn tabs(current: Screen) -> Markup {
    html! {
        nav class="tabs" aria-label="Store" {
            @for one in Screen::ALL {
                a href=(one.place()) aria-current=[(one == current).then_some("page")] { (one.name()) }
            }
        }
    }
}

/// Makes a page of the store: its parts change, and `below` stays as it is.
pub fn page(of: &For<'_>, screen: Screen, parts: &Parts, below: &Markup) -> Reply {
    let crumbs = [("Store".to_owned(), PART.to_owned())];
    let is_first = screen == Screen::Overview;
    let title = if is_first { "Store" } else { screen.name() };
    let body = html! {
        div class="title" { h1 { (title) } }
        (tabs(screen))
        cairn-live class="live" data-events=(format!("/store/live?screen={}", screen.id())) {
            p class="hint live-state" {
                span data-live-state { "These are the values of when the page was loaded." }
                button type="button" data-live-pause hidden { "Pause" }
            }
            @for (id, part) in parts {
                // Screen readers announce changes of health, and not of numbers.
                div class="part" data-part=(id) role=[(*id == "health").then_some("status")] { (part) }
            }
        }
        (below)
    };
    let crumbs = if is_first { &[][..] } else { &crumbs[..] };
    let page = Page { title, login: Some(of.login), crumbs, part: PART };
    reply::html(StatusCode::OK, page::page(&page, &body))
}

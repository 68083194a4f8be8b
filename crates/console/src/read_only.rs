//! Read-only mode on pages: of the store, and of a bucket.

use maud::{Markup, html};

use crate::fields::{self, Confirm};

/// Makes the form that turns the mode on or off; `action` is its target.
pub fn section(action: &str, is_read_only: bool, what: &str) -> Markup {
    html! {
        section class="group" aria-labelledby="read-only" {
            h2 id="read-only" { "Read-only mode" }
            p class="hint" {
                @if is_read_only {
                    "Changes of what is in " (what) " are refused at every door and mount. Reads go on."
                } @else {
                    "What is in " (what) " can be changed. In read-only mode every door and mount "
                    "refuses changes with an error that says so, and reads go on."
                }
            }
            form method="post" action=(action) {
                (fields::hidden(&[("read_only", if is_read_only { "no" } else { "yes" })]))
                @if is_read_only {
                    button type="submit" class="primary" { "Take changes again" }
                } @else {
                    button type="submit" { "Make read-only…" }
                }
            }
        }
    }
}

/// Asks for a confirmation before something becomes read-only.
pub fn ask(what: &str, action: &str, back: &str) -> Markup {
    html! {
        h1 { "Make " (what) " read-only?" }
        p {
            "Uploads, deletions and all other changes of what is in it are refused from then on, by "
            "mounts too. Settings, users and keys can still be changed, and this can be undone here."
        }
        (fields::confirm(&Confirm {
            action, fields: &[("read_only", "yes")], text: "Make read-only", class: "danger", back,
        }))
    }
}

//! Access keys and tokens, as pages show them.

use cairn_auth::NewCredential;
use cairn_fs::ops::credentials::Credential;
use maud::{Markup, html};

use crate::fields;
use crate::sheet::{self, Column, column};
use crate::words;

const COLUMNS: [Column; 5] = [
    column("Id", "name"),
    column("Kind", ""),
    column("Made (UTC)", "wide"),
    column("Expires (UTC)", "wide"),
    sheet::tools("End", "number"),
];

/// Makes a table of credentials, each with a form to end it.
pub fn table(found: &[Credential], own: &str, action: &str) -> Markup {
    let rows = html! {
        @for credential in found {
            tr {
                td class="name" {
                    code { (credential.id) }
                    @if credential.id == own { " " span class="tag" { "this login" } }
                }
                td { (kind(credential)) }
                td class="wide" { (words::time(credential.created)) }
                td class="wide" {
                    @if credential.expires.0 == 0 { "never" }
                    @else { (words::time(credential.expires)) }
                }
                td class="number" {
                    form method="post" action=(action) {
                        (fields::hidden(&[("id", &credential.id), ("user", &credential.user)]))
                        button type="submit" class="danger"
                            aria-label=(format!("End {}", credential.id)) { "End…" }
                    }
                }
            }
        }
    };
    sheet::plain(&COLUMNS, &rows)
}

fn kind(credential: &Credential) -> &'static str {
    if credential.is_token { "token" } else { "access key" }
}

/// Shows a new access key, once.
pub fn once(new: &NewCredential) -> Markup {
    html! {
        div class="said" {
            p { "Keep the secret key now: it is not shown again." }
            (fields::once("access-key", "Access key", &new.id))
            (fields::once("secret-key", "Secret key", new.secret.expose()))
        }
    }
}

/// Asks for a confirmation before a credential ends.
pub fn ask(id: &str, is_of_login: bool) -> Markup {
    html! {
        h1 { "End " code { (id) } "?" }
        p {
            "Programs that use it are refused from now on, and share links that were made with it end. "
            "This cannot be undone."
        }
        @if is_of_login { p { "You logged in with it: this login ends, too." } }
    }
}

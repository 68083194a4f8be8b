//! A listing as a page: folders, then files, a page at a time.

use std::borrow::Cow;

use cairn_base::rfc3339;
use cairn_fs::ops::list_objects::{ListedObject, Page};
use http::{Response, StatusCode};
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Body;
use super::page::{self, human_bytes};

/// All characters that are not unreserved according to RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A listing of a prefix. Its page has the address of the prefix, so the links in it are relative.
pub struct ListingPage<'a> {
    /// The name of `root`.
    pub root_name: &'a str,
    /// The highest prefix that is shown.
    pub root: &'a str,
    /// The listed prefix, which begins with `root`.
    pub prefix: &'a str,
    /// The parameter `limit` of the request, which further pages have, too.
    pub limit: Option<&'a str>,
    pub is_first: bool,
}

impl ListingPage<'_> {
    pub fn reply(&self, page: &Page) -> Response<Body> {
        let below = self.prefix.strip_prefix(self.root).unwrap_or_default();
        let title = format!("{}/{below}", self.root_name);
        let contents = html! {
            h1 { (self.crumbs(below)) }
            (self.table(page))
            div class="actions" {
                @if !self.is_first { a href="./" { "First page" } }
                @if let Some(next) = &page.next {
                    a href=(self.next(next)) rel="next" { "Next page" }
                }
                @if !(page.objects.is_empty() && page.prefixes.is_empty()) {
                    a href="?zip" { "Download all as zip" }
                }
            }
        };
        page::reply(StatusCode::OK, &title, &contents)
    }

    /// Returns the path of this page: each directory above has a link, unless a browser could not
    /// follow it.
    fn crumbs(&self, below: &str) -> Markup {
        let parts: Vec<&str> = below.split_terminator('/').collect();
        let can_climb = !below.split('/').any(is_resolved);
        let up = |levels: usize| match levels {
            0 => "./".to_owned(),
            levels => "../".repeat(levels),
        };
        html! {
            @if can_climb && !parts.is_empty() {
                a href=(up(parts.len())) { (self.root_name) } " / "
            } @else {
                (self.root_name) " / "
            }
            @for (at, part) in parts.iter().enumerate() {
                @if can_climb && at + 1 < parts.len() {
                    a href=(up(parts.len() - at - 1)) { (visible(part)) } " / "
                } @else {
                    (visible(part)) " / "
                }
            }
        }
    }

    fn table(&self, page: &Page) -> Markup {
        // The object that represents the directory itself is not listed in it.
        let files = || page.objects.iter().filter(|listed| listed.key != self.prefix);
        html! {
            @if page.prefixes.is_empty() && files().next().is_none() {
                p class="faint" { "Nothing is here." }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "Name" }
                            th scope="col" class="number" { "Size" }
                            th scope="col" class="time" { "Changed (UTC)" }
                        }
                    }
                    tbody {
                        @for prefix in &page.prefixes {
                            tr {
                                td { (self.link(prefix)) }
                                td {}
                                td class="time" {}
                            }
                        }
                        @for listed in files() { (self.file(listed)) }
                    }
                }
            }
            @if page.hidden > 0 {
                p class="faint" { (page.hidden) " files have names that cannot be shown." }
            }
        }
    }

    fn file(&self, ListedObject { key, inode, .. }: &ListedObject) -> Markup {
        let (size, changed) = (human_bytes(inode.size), rfc3339(inode.mtime));
        let shown: String = changed.chars().take(16).collect();
        html! {
            tr {
                td { (self.link(key)) }
                td class="number" title={ (inode.size) " bytes" } {
                    @if !inode.is_directory() { (size) }
                }
                td class="time" { time datetime=(changed) { (shown.replace('T', " ")) } }
            }
        }
    }

    /// Returns the name of a key below the prefix, as a link if a browser can follow it.
    fn link(&self, key: &str) -> Markup {
        let name = key.strip_prefix(self.prefix).unwrap_or(key);
        html! {
            @match href(name) {
                Some(href) => { a href=(href) { (visible(name)) } }
                None => { (visible(name)) }
            }
        }
    }

    fn next(&self, after: &str) -> String {
        let after = after.strip_prefix(self.root).unwrap_or(after);
        let after = utf8_percent_encode(after, ESCAPED);
        let limit =
            self.limit.map(|limit| format!("&limit={}", utf8_percent_encode(limit, ESCAPED)));
        format!("?after={after}{}", limit.unwrap_or_default())
    }
}

/// Returns whether browsers and proxies interpret a path component instead of treating it as a
/// name.
fn is_resolved(part: &str) -> bool {
    matches!(part, "." | "..")
}

/// Returns the relative address of a name, which may contain slashes.
fn href(name: &str) -> Option<String> {
    if name.split('/').any(is_resolved) {
        return None;
    }
    let parts: Vec<String> =
        name.split('/').map(|part| utf8_percent_encode(part, ESCAPED).to_string()).collect();
    Some(format!("./{}", parts.join("/")))
}

/// Returns text without characters that are invisible or change how the text next to them is shown.
fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if text.is_empty() {
        return Cow::Borrowed("(no name)");
    }
    if text.contains(is_hidden) {
        Cow::Owned(text.replace(is_hidden, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_names() {
        assert_eq!(href("a b").unwrap(), "./a%20b");
        assert_eq!(href("javascript:x").unwrap(), "./javascript%3Ax");
        assert_eq!(href("dir/").unwrap(), "./dir/");
        assert_eq!(href("/evil.example").unwrap(), ".//evil.example");
        assert_eq!(href("?a#b\"'<").unwrap(), "./%3Fa%23b%22%27%3C");
        for resolved in [".", "..", "../", "a/../b", "./"] {
            assert_eq!(href(resolved), None, "{resolved}");
        }
    }

    #[test]
    fn nothing_in_a_name_is_hidden() {
        assert_eq!(visible("a"), "a");
        assert_eq!(visible(""), "(no name)");
        assert_eq!(visible("a\u{202e}gpj.exe\n"), "a\u{fffd}gpj.exe\u{fffd}");
    }
}

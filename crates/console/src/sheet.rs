//! Tables: a head of titles, and rows that a page makes.

use maud::{Markup, html};

/// A column, and the class of its cells: `name`, `number`, `wide` (not on a phone), or none.
#[derive(Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    pub class: &'static str,
    /// Set if the title is for screen readers only.
    pub is_hidden: bool,
}

pub const fn column(title: &'static str, class: &'static str) -> Column {
    Column { title, class, is_hidden: false }
}

/// Makes a column of boxes or buttons, whose title is only for screen readers.
pub const fn tools(title: &'static str, class: &'static str) -> Column {
    Column { title, class, is_hidden: true }
}

/// Makes a table that fits its screen: columns of the class `wide` are not shown on a phone.
pub fn plain(columns: &[Column], rows: &Markup) -> Markup {
    html! { div class="sheet" { (table(columns, rows)) } }
}

/// Makes a table that may be wider than its screen: it scrolls sideways, also by the keyboard.
pub fn scrolling(label: &str, columns: &[Column], rows: &Markup) -> Markup {
    html! {
        div class="sheet scrolls" role="region" aria-label=(label) tabindex="0" {
            (table(columns, rows))
        }
    }
}

fn table(columns: &[Column], rows: &Markup) -> Markup {
    html! {
        table class="rows" {
            thead {
                tr {
                    @for column in columns {
                        th scope="col" class=[(!column.class.is_empty()).then_some(column.class)] {
                            @if column.is_hidden {
                                span class="hidden" { (column.title) }
                            } @else {
                                (column.title)
                            }
                        }
                    }
                }
            }
            tbody { (rows) }
        }
    }
}

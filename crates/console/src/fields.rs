//! Parts of forms.

use cairn_auth::Rights;
use maud::{Markup, html};

use crate::forms::Form;

/// A form that does something after a confirmation: it has `confirm=yes` and the values of the
/// request.
pub struct Confirm<'a> {
    pub action: &'a str,
    /// Names and values of the request, in order.
    pub fields: &'a [(&'a str, &'a str)],
    /// Text of the button, and its class: `danger` for what cannot be undone.
    pub text: &'a str,
    pub class: &'a str,
    /// Target of the link that cancels.
    pub back: &'a str,
}

pub fn confirm(of: &Confirm<'_>) -> Markup {
    html! {
        form method="post" action=(of.action) class="line" {
            input type="hidden" name="confirm" value="yes";
            (hidden(of.fields))
            button type="submit" class={ "primary " (of.class) } { (of.text) }
            a class="button" href=(of.back) { "Cancel" }
        }
    }
}

pub fn hidden(fields: &[(&str, &str)]) -> Markup {
    html! { @for (name, value) in fields { input type="hidden" name=(name) value=(value); } }
}

/// A field of text with its label above it.
pub struct Text<'a> {
    pub id: &'a str,
    pub label: &'a str,
    pub kind: &'a str,
    pub value: &'a str,
    pub hint: &'a str,
    pub is_required: bool,
}

impl Default for Text<'_> {
    fn default() -> Self {
        Text { id: "", label: "", kind: "text", value: "", hint: "", is_required: false }
    }
}

/// The name of the field is its id.
pub fn text(of: &Text<'_>) -> Markup {
    let fills = if of.kind == "password" { "new-password" } else { "off" };
    let hint = (!of.hint.is_empty()).then(|| format!("{}-hint", of.id));
    html! {
        div class="field" {
            label for=(of.id) { (of.label) }
            input id=(of.id) name=(of.id) type=(of.kind) value=(of.value) autocomplete=(fills)
                autocapitalize="none" spellcheck="false" required[of.is_required]
                aria-describedby=[hint.as_deref()];
            @if let Some(hint) = &hint { p class="hint" id=(hint) { (of.hint) } }
        }
    }
}

/// Makes a choice: values and their texts, one of which is chosen.
pub fn choice(id: &str, label: &str, chosen: &str, options: &[(&str, &str)]) -> Markup {
    html! {
        div class="field" {
            label for=(id) { (label) }
            select id=(id) name=(id) {
                @for (value, text) in options {
                    option value=(value) selected[*value == chosen] { (text) }
                }
            }
        }
    }
}

/// Rights that a user may be given.
const RIGHTS: [(&str, &str, Rights); 3] = [
    ("read", "Read: list the bucket, and read objects", Rights::READ),
    ("write", "Write: add, replace and delete objects", Rights::WRITE),
    ("admin", "Administer: change settings and rights, and delete the bucket", Rights::ADMIN),
];

pub fn rights(chosen: Rights) -> Markup {
    html! {
        fieldset {
            legend { "Rights" }
            @for (value, text, right) in RIGHTS {
                label class="check" {
                    input type="checkbox" name="right" value=(value)
                        checked[chosen.contains(right)];
                    span { (text) }
                }
            }
        }
    }
}

/// Returns the chosen rights; no choice takes all rights away.
pub fn rights_of(form: &Form) -> Rights {
    let chosen = RIGHTS.iter().filter(|(value, ..)| form.all("right").any(|word| word == *value));
    chosen.fold(Rights::NONE, |rights, (.., right)| rights.union(*right))
}

/// Shows a value once, with a button that copies it if scripts run.
pub fn once(id: &str, label: &str, value: &str) -> Markup {
    html! {
        div class="field" {
            label for=(id) { (label) }
            div class="line" {
                input id=(id) class="once" type="text" readonly value=(value) autocomplete="off"
                    spellcheck="false";
                button type="button" data-copies=(id) hidden { "Copy" }
            }
        }
    }
}

//! Objects that are damaged or lack replicas, as the pages of scrubs and fscks list them.

use cairn_base::scrub::{DegradedObjects, Wholeness};
use maud::{Markup, html};

use crate::limits;
use crate::sheet::{self, Column, column};
use crate::words;

const OBJECTS: [Column; 3] =
    [column("Object", "name"), column("Bytes", "number"), column("State", "")];

/// Lists the objects; the command shows more of them.
pub fn list(named: &DegradedObjects, command: &str) -> Markup {
    let rows = html! {
        @for found in named.objects.iter().take(limits::SHOWN) {
            @let class = match found.wholeness {
                Wholeness::Lost => "tag bad",
                Wholeness::Degraded => "tag warn",
                Wholeness::Repaired => "tag good",
            };
            tr {
                td class="name" { (found.object) }
                td class="number" { (words::count(found.start)) " to " (words::count(found.end)) }
                td { span class=(class) { (found.wholeness.word()) } }
            }
        }
    };
    html! {
        @if !named.objects.is_empty() {
            (sheet::scrolling("Damaged and degraded objects", &OBJECTS, &rows))
        } @else if named.blocks.iter().sum::<u64>() > 0 {
            p { "No object needs these blocks any more." }
        } @else if named.silent.is_empty() {
            p { "No object is damaged, and none lacks replicas." }
        }
        @if named.objects.len() > limits::SHOWN || named.is_cut {
            p class="hint" {
                "The first " (words::count(limits::SHOWN.min(named.objects.len()) as u64)) ", the worst of all. "
                code { (command) } " shows more, with the directory of a master or a gateway."
                @if named.unnamed > 0 { " It leaves out " (words::counted(named.unnamed, "object")) "." }
            }
        }
        @if named.blocks[0] > 0 {
            p { "Reads of lost bytes fail. Start the nodes that are down; if their blocks are lost, restore the objects from a backup, or write them again." }
        }
    }
}

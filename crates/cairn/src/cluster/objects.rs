//! Objects that are damaged or lack replicas, as commands show them.

use cairn_base::scrub::{DegradedObjects, Wholeness};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output;

/// Adds the objects, and the numbers of their blocks, to an object of JSON.
pub fn add_json(shown: &mut Value, named: &DegradedObjects) {
    let objects = named.objects.iter().map(|one| {
        let (object, state) = (&one.object, one.wholeness.word());
        json!({"object": object, "start": one.start, "end": one.end, "state": state})
    });
    let silent =
        named.silent.iter().map(|(node, why)| json!({"node": node.to_string(), "why": why}));
    let [lost, degraded, _] = named.blocks;
    shown["objects"] = objects.collect();
    shown["unnamed_objects"] = named.unnamed.into();
    shown["cut"] = named.is_cut.into();
    shown["lost_blocks"] = lost.into();
    shown["degraded_blocks"] = degraded.into();
    shown["silent"] = silent.collect();
}

/// Prints the objects, a line for each range of bytes.
pub fn print(named: &DegradedObjects) -> Result<()> {
    for one in &named.objects {
        let (state, object) = (one.wholeness.word(), output::name(&one.object));
        output::line(format!("{state}: {object}: bytes {} to {}", one.start, one.end))?;
    }
    more(named).map_or(Ok(()), output::line)
}

/// Returns a line if some objects are not listed.
fn more(named: &DegradedObjects) -> Option<String> {
    let (shown, unnamed) = (named.objects.len(), named.unnamed);
    match (unnamed, named.is_cut) {
        (0, false) => None,
        (0, true) => {
            Some(format!("more may be damaged than these {shown} ranges, and is not named"))
        }
        (_, false) => Some(format!("and {unnamed} more objects")),
        (_, true) => Some(format!("and {unnamed} more objects; there may be others")),
    }
}

/// Prints what happens to lost bytes, if there are any.
pub fn print_remedy(named: &DegradedObjects) -> Result<()> {
    if named.blocks[Wholeness::Lost as usize] == 0 {
        return Ok(());
    }
    output::line("reads of lost bytes fail: restore the objects from a backup, or write them again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_said() {
        let of = |unnamed, is_cut| {
            more(&DegradedObjects { unnamed, is_cut, ..DegradedObjects::default() })
        };
        assert_eq!(of(0, false), None);
        assert!(of(0, true).unwrap().contains("more may be damaged"));
        assert_eq!(of(7, false).unwrap(), "and 7 more objects");
        assert_eq!(of(7, true).unwrap(), "and 7 more objects; there may be others");
    }
}

//! Program of a node in its hello: its release, the versions of the protocol that it speaks, the
//! formats on disk that it reads, and its capabilities.
//!
//! It is shown, and compared before an upgrade. A connection depends on the capabilities alone.

#![deny(clippy::indexing_slicing)]

use cairn_base::{Capability, CapabilitySet};

/// Formats in a hello, at most; more are left out.
const FORMATS_MAX: usize = 16;
/// The longest name of a format that is shown, bytes.
const NAME_BYTES: usize = 32;

/// A format on disk: a program reads these versions, and may write the newest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FormatRange {
    pub name: String,
    pub oldest: u16,
    pub newest: u16,
}

/// Program of a node, as the node named it. Empty for earlier releases, which named none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeProgram {
    pub release: String,
    /// Lowest and highest version of the protocol; (0, 0) if unknown.
    pub versions: (u16, u16),
    pub formats: Vec<FormatRange>,
    pub capabilities: CapabilitySet,
}

/// The formats of this program; docs/format.md and its chapters describe them.
const FORMATS: [(&str, u16, u16); 10] = [
    // DIR/format
    ("directory", 1, 1),
    // DIR/cluster.toml
    ("identity", 1, 1),
    // DIR/secret.key
    ("secret", 2, 2),
    // DIR/machine.toml
    ("machine", 1, 2),
    // Segments.
    ("blocks", 1, 2),
    // Records of the log of metadata of a master alone.
    ("log-alone", 1, 1),
    // Records of the log of several masters.
    ("log-members", 2, 2),
    // The mark in the table of rows: 1 for one master, 2 for several.
    ("mark", 1, 2),
    // Messages between masters.
    ("members", 1, 1),
    // Values in the metadata.
    ("rows", 1, 1),
];

/// Returns the formats of this program.
pub(super) fn own_formats() -> Vec<FormatRange> {
    let range = |(name, oldest, newest): &(&str, u16, u16)| FormatRange {
        name: (*name).to_owned(),
        oldest: *oldest,
        newest: *newest,
    };
    FORMATS.iter().map(range).collect()
}

/// Writes formats for a hello: `name oldest newest`, one per line.
pub(super) fn write_formats(formats: &[FormatRange]) -> String {
    let lines = formats.iter().map(|one| format!("{} {} {}", one.name, one.oldest, one.newest));
    lines.collect::<Vec<String>>().join("\n")
}

/// Reads the formats of a hello. Lines of another form are left out: they are of a later version.
pub(super) fn read_formats(text: &[u8]) -> Vec<FormatRange> {
    let text = String::from_utf8_lossy(text);
    text.lines().filter_map(read_format).take(FORMATS_MAX).collect()
}

/// Writes names for a hello, one per line.
pub(super) fn write_capabilities(capabilities: CapabilitySet) -> String {
    capabilities.iter().map(Capability::name).collect::<Vec<&str>>().join("\n")
}

/// Reads the names of a hello. Names of a later version are left out: this program turns none of
/// these on.
pub(super) fn read_capabilities(text: &[u8]) -> CapabilitySet {
    let text = String::from_utf8_lossy(text);
    text.lines().filter_map(|line| line.parse::<Capability>().ok()).collect()
}

fn read_format(line: &str) -> Option<FormatRange> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let (oldest, newest) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let fits = is_plain && name.len() <= NAME_BYTES && oldest <= newest;
    fits.then(|| FormatRange { name: name.to_owned(), oldest, newest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_back_and_strange_ones_are_left_out() {
        let own = own_formats();
        assert_eq!(read_formats(write_formats(&own).as_bytes()), own);
        for strange in ["", "x", "x 1", "x 2 1", "x 1 y", " 1 2", "x 1 70000", "\u{1b}[1m 1 1"] {
            assert_eq!(read_formats(strange.as_bytes()), [], "{strange:?}");
        }
        let many = "x 1 1\n".repeat(1000);
        assert_eq!(read_formats(many.as_bytes()).len(), FORMATS_MAX);
        assert_eq!(read_formats(&[0xff; 40]), []);
        // Additions of a later version to a line are ignored.
        assert_eq!(read_formats(b"x 1 2 later").len(), 1);
    }

    #[test]
    fn capabilities_read_back_and_later_ones_are_left_out() {
        let own = CapabilitySet::own();
        assert_eq!(read_capabilities(write_capabilities(own).as_bytes()), own);
        assert_eq!(read_capabilities(b"of-a-later-release\nrequired-fields\n\xff"), own);
        assert!(read_capabilities(&[0xff; 4000]).is_empty());
    }

    /// The constants for the oldest and the newest version are private to their crates.
    #[test]
    fn formats_are_those_that_are_read_and_written() {
        let sources = [
            ("directory", include_str!("../../../cairn/src/dir/format.rs"), ["VERSION: u32"; 2]),
            ("secret", include_str!("../../../cairn/src/dir/secret.rs"), ["VERSION: &str"; 2]),
            ("identity", include_str!("../identity/directory.rs"), ["VERSION: u32"; 2]),
            (
                "machine",
                include_str!("../../../cairn/src/node/machine.rs"),
                ["VERSION_ONE_DISK: u32", "VERSION: u32"],
            ),
            (
                "blocks",
                include_str!("../../../blocks/src/format/segment.rs"),
                ["VERSION: u32", "VERSION_CODECS: u32"],
            ),
            (
                "log-alone",
                include_str!("../../../meta/src/engine/embedded/record.rs"),
                ["VERSION: u16"; 2],
            ),
            (
                "log-members",
                include_str!("../../../meta/src/engine/raft/record.rs"),
                ["VERSION: u16"; 2],
            ),
            (
                "mark",
                include_str!("../../../meta/src/engine/row_store/mark.rs"),
                ["VERSION: u32", "REPLICATED: u32"],
            ),
            (
                "members",
                include_str!("../../../meta/src/engine/raft/message.rs"),
                ["VERSION: u16"; 2],
            ),
            ("rows", include_str!("../../../meta/src/rows/mod.rs"), ["FORMAT: u8"; 2]),
        ];
        for (of, source, constants) in sources {
            let (name, oldest, newest) = FORMATS.iter().find(|(name, ..)| *name == of).unwrap();
            for (constant, version) in constants.iter().zip([oldest, newest]) {
                let line = format!("const {constant} = {version};");
                let of_text = format!("const {constant} = \"{version}\";");
                let is_there = source.contains(&line) || source.contains(&of_text);
                assert!(is_there, "{name}: {line} is not in its source");
            }
        }
    }
}

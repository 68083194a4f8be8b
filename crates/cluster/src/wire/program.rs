//! The program of a node, as the node tells it in its hello: its release, the versions of the
//! protocol that it speaks, and the formats on disk that it reads.
//!
//! It is shown and compared before an upgrade. No connection depends on it.

#![deny(clippy::indexing_slicing)]

/// Formats in a hello; more are left out.
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

/// What a node said of its program. Empty where it said nothing, as releases before did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeProgram {
    pub release: String,
    /// The lowest and the highest version of the protocol; (0, 0) if that is not known.
    pub versions: (u16, u16),
    pub formats: Vec<FormatRange>,
}

/// The formats of this program; docs/format.md and its chapters describe them.
const FORMATS: [(&str, u16, u16); 5] = [
    // DIR/format
    ("directory", 1, 1),
    // DIR/cluster.toml
    ("identity", 1, 1),
    // Segments.
    ("blocks", 1, 2),
    // Records of the log of metadata: 1 of one master alone, 2 of several.
    ("log", 1, 2),
    // Values in the metadata.
    ("rows", 1, 1),
];

/// Those of this program.
pub(super) fn own_formats() -> Vec<FormatRange> {
    let range = |(name, oldest, newest): &(&str, u16, u16)| FormatRange {
        name: (*name).to_owned(),
        oldest: *oldest,
        newest: *newest,
    };
    FORMATS.iter().map(range).collect()
}

/// As a hello has it: `name oldest newest`, one a line.
pub(super) fn write_formats(formats: &[FormatRange]) -> String {
    let lines = formats.iter().map(|one| format!("{} {} {}", one.name, one.oldest, one.newest));
    lines.collect::<Vec<String>>().join("\n")
}

/// Lines that say something else are left out: they are of a later version.
pub(super) fn read_formats(text: &[u8]) -> Vec<FormatRange> {
    let text = String::from_utf8_lossy(text);
    text.lines().filter_map(read_format).take(FORMATS_MAX).collect()
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
        // What a later version adds to a line is passed over.
        assert_eq!(read_formats(b"x 1 2 later").len(), 1);
    }

    /// The constants are private to their crates.
    #[test]
    fn formats_are_those_that_are_written() {
        let sources = [
            ("directory", include_str!("../../../cairn/src/dir/format.rs"), "const VERSION: u32"),
            ("identity", include_str!("../identity/directory.rs"), "const VERSION: u32"),
            (
                "blocks",
                include_str!("../../../blocks/src/format/segment.rs"),
                "const VERSION_CODECS: u32",
            ),
            ("log", include_str!("../../../meta/src/engine/raft/record.rs"), "const VERSION: u16"),
            ("rows", include_str!("../../../meta/src/rows/mod.rs"), "pub const FORMAT: u8"),
        ];
        assert_eq!(sources.len(), FORMATS.len());
        for ((name, _, newest), (of, source, constant)) in FORMATS.iter().zip(sources) {
            assert_eq!(*name, of);
            let line = format!("{constant} = {newest};");
            assert!(source.contains(&line), "{name}: {line} is not in its source");
        }
    }
}

//! Pages of a redb file of format 3, which redb's `docs/design.md` describes, read without redb. A
//! table is a tree, and each page of it has the checksums of those right below. redb verifies them
//! only all at once, and wants the database for itself meanwhile; here they are verified one by
//! one. Nothing here reads a file.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use twox_hash::XxHash3_128;

use super::header::PAGE_BYTES;

/// Version of the file format.
const VERSION: u8 = 3;
const MAGIC: &[u8] = b"redb\x1a\n\xa9\r\n";
/// Offset of the byte whose lowest bit says which of the two commit slots counts.
const CHOICE_AT: usize = 9;
/// Offset of the first commit slot, and bytes of each.
const SLOTS_AT: usize = 64;
const SLOT_BYTES: usize = 128;
/// Bytes of a commit slot before its checksum.
const COVERED_BYTES: usize = SLOT_BYTES - 16;
/// Bits of a page's number that are its index within a region, and as many that are its region.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// Offset of the bits of a page's number that are its order: it has `PAGE_BYTES << order` bytes.
const ORDER_AT: u32 = 59;
/// Highest order of a page: all of a region.
const MAX_ORDER: u64 = 20;
/// First byte of a leaf and of a branch.
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// First byte of the definition of a table that has one value for a key, and bytes that are read.
const PLAIN: u8 = 3;
const DEFINITION_BYTES: usize = 52;

/// A page, as it is referred to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRef {
    number: u64,
    pub checksum: u128,
}

/// The first page of a file: its layout, and its trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roots {
    /// Pages of a region before those that have numbers, and pages that have.
    header_pages: u64,
    data_pages: u64,
    /// Tree of the tables that a user of redb makes; `None` if there is none.
    pub tables: Option<PageRef>,
    /// Tree of redb's own tables.
    pub system: Option<PageRef>,
}

/// Bytes of each key and of each value; `None` if they differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Widths {
    key: Option<usize>,
    value: Option<usize>,
}

/// A table of either kind, or a tree of tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    pub name: Vec<u8>,
    pub root: Option<PageRef>,
    pub widths: Widths,
}

/// The place of a key and of its value in a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    pub key: Range<usize>,
    pub value: Range<usize>,
}

/// A child of a branch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Child {
    pub page: PageRef,
    /// Place of a key in the branch: no key below the child is higher. The last child has none.
    pub last: Option<Range<usize>>,
}

/// A page of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Leaf(Vec<Pair>),
    Branch(Vec<Child>),
}

impl Roots {
    /// Parses the first page; `None` if it is damaged, or of another format.
    pub fn parse(page: &[u8; PAGE_BYTES]) -> Option<Roots> {
        let slot = SLOTS_AT + SLOT_BYTES * usize::from(page.get(CHOICE_AT)? & 1);
        let slot = page.get(slot..slot + SLOT_BYTES)?;
        let is_sound = checksum(slot.get(..COVERED_BYTES)?) == u128_at(slot, COVERED_BYTES)?;
        let is_known = page.starts_with(MAGIC)
            && u32_at(page, 12)? as usize == PAGE_BYTES
            && slot.first() == Some(&VERSION);
        let (header_pages, data_pages) =
            (u64::from(u32_at(page, 16)?), u64::from(u32_at(page, 20)?));
        let is_known = is_known && header_pages.max(data_pages) <= INDEX_MASK + 1;
        let (tables, system) = (root(slot, 1, 8), root(slot, 2, 40));
        (is_sound && is_known).then_some(Roots { header_pages, data_pages, tables, system })
    }

    /// Returns the place of a page in the file of redb; `None` if there can be no such page.
    pub fn place(&self, page: PageRef) -> Option<Range<u64>> {
        let order = page.number >> ORDER_AT;
        if order > MAX_ORDER {
            return None;
        }
        let (region, index) =
            (page.number >> INDEX_BITS & INDEX_MASK, page.number & INDEX_MASK >> order);
        let (small, bytes) = (PAGE_BYTES as u64, (PAGE_BYTES as u64) << order);
        let before = region * (self.header_pages + self.data_pages) + self.header_pages;
        // The first page is in no region.
        let start = small + before * small + index * bytes;
        Some(start..start + bytes)
    }
}

impl Tree {
    /// Returns a tree that has a table for each key.
    pub fn of_tables(root: Option<PageRef>) -> Tree {
        Tree { name: Vec::new(), root, widths: Widths::default() }
    }

    /// Parses the definition of a table; `None` if it makes no sense here.
    pub fn parse(name: &[u8], definition: &[u8]) -> Option<Tree> {
        let definition = definition.get(..DEFINITION_BYTES)?;
        let width = |is_fixed_at: usize| -> Option<Option<usize>> {
            let width = u32_at(definition, is_fixed_at + 1)? as usize;
            Some((*definition.get(is_fixed_at)? != 0).then_some(width))
        };
        let widths = Widths { key: width(42)?, value: width(47)? };
        let tree = Tree { name: name.to_vec(), root: root(definition, 9, 10), widths };
        (definition.first() == Some(&PLAIN)).then_some(tree)
    }
}

impl Node {
    /// Parses a page of a tree; `None` if it makes no sense. Returns the checksum of the page, too,
    /// which is to be that of the reference to it.
    pub fn parse(page: &[u8], widths: Widths) -> Option<(Node, u128)> {
        let (node, end) = match *page.first()? {
            LEAF => leaf(page, widths)?,
            BRANCH => branch(page, widths)?,
            _ => return None,
        };
        Some((node, checksum(page.get(..end)?)))
    }
}

/// Parses a leaf. Returns the number of bytes in use, too.
fn leaf(page: &[u8], widths: Widths) -> Option<(Node, usize)> {
    let count = count(page)?;
    let ends = |width: Option<usize>| if width.is_none() { 4 * count } else { 0 };
    let keys_at = 4 + ends(widths.key);
    let first = keys_at + ends(widths.value);
    let keys = parts(page, count, widths.key, 4, first)?;
    let values = parts(page, count, widths.value, keys_at, keys.last()?.end)?;
    let end = values.last()?.end;
    let pairs = keys.into_iter().zip(values).map(|(key, value)| Pair { key, value });
    Some((Node::Leaf(pairs.collect()), end))
}

/// Parses a branch. Returns the number of bytes in use, too.
fn branch(page: &[u8], widths: Widths) -> Option<(Node, usize)> {
    let count = count(page)?;
    let numbers_at = 8 + 16 * (count + 1);
    let ends_at = numbers_at + 8 * (count + 1);
    let first = ends_at + if widths.key.is_none() { 4 * count } else { 0 };
    let keys = parts(page, count, widths.key, ends_at, first)?;
    let end = keys.last()?.end;
    let children = keys.into_iter().map(Some).chain([None]).enumerate().map(|(nth, last)| {
        let number = u64_at(page, numbers_at + 8 * nth)?;
        let page = PageRef { number, checksum: u128_at(page, 8 + 16 * nth)? };
        Some(Child { page, last })
    });
    Some((Node::Branch(children.collect::<Option<_>>()?), end))
}

/// Returns the count of pairs of a leaf, or of keys of a branch.
fn count(page: &[u8]) -> Option<usize> {
    page.get(2..)?.first_chunk().map(|bytes| usize::from(u16::from_le_bytes(*bytes)))
}

/// Returns the places of `count` keys or values, which follow one another from `first` on. They
/// have one width, or their ends are at `ends_at`. `None` if one is not within the page.
fn parts(
    page: &[u8],
    count: usize,
    width: Option<usize>,
    ends_at: usize,
    first: usize,
) -> Option<Vec<Range<usize>>> {
    let mut start = first;
    let part = |nth: usize| {
        let end = match width {
            Some(width) => start.checked_add(width)?,
            None => u32_at(page, ends_at + 4 * nth)? as usize,
        };
        let part = std::mem::replace(&mut start, end)..end;
        page.get(part.clone()).map(|_| part)
    };
    (0..count).map(part).collect()
}

/// Returns the reference at `at`, if the byte at `flag_at` says that there is one.
fn root(bytes: &[u8], flag_at: usize, at: usize) -> Option<PageRef> {
    bytes.get(flag_at).filter(|flag| **flag != 0)?;
    Some(PageRef { number: u64_at(bytes, at)?, checksum: u128_at(bytes, at + 8)? })
}

fn checksum(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    bytes.get(at..)?.first_chunk().map(|bytes| u128::from_le_bytes(*bytes))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use cairn_base::Rng;
    use cairn_base::rng::SeededRng;

    use super::*;

    const FIXED: Widths = Widths { key: Some(1), value: Some(2) };

    /// A leaf with two pairs, whose last byte is not in use.
    fn a_leaf() -> Vec<u8> {
        let ends = [21_u32, 23, 26, 27].map(u32::to_le_bytes).concat();
        [&[LEAF, 0, 2, 0][..], &ends[..], b"a", b"bc", b"123", b"4", b"?"].concat()
    }

    #[test]
    fn each_bit_of_a_leaf_that_is_in_use_counts() {
        let mut page = a_leaf();
        let pairs = vec![Pair { key: 20..21, value: 23..26 }, Pair { key: 21..23, value: 26..27 }];
        let sound = Some((Node::Leaf(pairs), checksum(&page[..27])));
        assert_eq!(Node::parse(&page, Widths::default()), sound);
        for byte in 0..page.len() {
            page[byte] ^= 4;
            assert_eq!(Node::parse(&page, Widths::default()) == sound, byte >= 27, "{byte}");
            page[byte] ^= 4;
        }
    }

    #[test]
    fn a_branch_names_its_children() {
        let sums = [7_u128, 9].map(u128::to_le_bytes).concat();
        let numbers = [3_u64, 5].map(u64::to_le_bytes).concat();
        let page = [&[BRANCH, 0, 1, 0, 0, 0, 0, 0][..], &sums[..], &numbers[..], b"k"].concat();
        let child = |number, checksum, last| Child { page: PageRef { number, checksum }, last };
        let children = vec![child(3, 7, Some(56..57)), child(5, 9, None)];
        let whole = Some((Node::Branch(children), checksum(&page)));
        assert_eq!(Node::parse(&page, FIXED), whole);
        assert_eq!(Node::parse(&page[..56], FIXED), None);
    }

    #[test]
    fn any_bytes_are_taken() {
        let rng = SeededRng::new(1);
        let roots = Roots { header_pages: 1, data_pages: 1 << 20, tables: None, system: None };
        for _ in 0..5000 {
            let mut page = vec![0; rng.below(200) as usize];
            rng.fill(&mut page);
            let few = rng.below(8) as u8;
            page.iter_mut().zip([1 + few % 3, 0, few, 0]).for_each(|(byte, to)| *byte = to);
            for widths in [Widths::default(), FIXED] {
                assert!(Node::parse(&page, widths).is_none_or(|(_, sum)| sum != 0));
            }
            drop(Tree::parse(b"any", &page));
            let page = PageRef { number: rng.next_u64(), checksum: 0 };
            assert!(roots.place(page).is_none_or(|place| place.start < place.end));
        }
    }
}

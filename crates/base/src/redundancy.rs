//! Redundancy of blocks: how many copies survive the loss of disks.

/// The redundancy of a block: the part of it that each member of a group holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Redundancy {
    /// Each member of the group, of which there are this many, has the whole block.
    Copies(u8),
}

impl Redundancy {
    /// Decodes the number that is stored and sent; `None` for 0, which stands for the default of
    /// the cluster.
    pub fn from_number(number: u8) -> Option<Redundancy> {
        (number > 0).then_some(Redundancy::Copies(number))
    }

    /// Encodes the redundancy as the number that is stored and sent.
    pub fn number(self) -> u8 {
        let Redundancy::Copies(copies) = self;
        copies
    }

    /// Number of members of a complete group.
    pub fn members(self) -> usize {
        let Redundancy::Copies(copies) = self;
        copies.into()
    }

    /// Number of members that must have a block before it is acknowledged, if the map asks for
    /// `minimum`.
    pub fn least(self, minimum: u8) -> usize {
        let Redundancy::Copies(copies) = self;
        copies.min(minimum).max(1).into()
    }
}

impl Default for Redundancy {
    fn default() -> Redundancy {
        Redundancy::Copies(1)
    }
}

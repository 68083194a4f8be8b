//! How often a block is there, so that it outlives disks.

/// The redundancy of a block: what each member of a group holds of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Redundancy {
    /// Each of so many members has the whole block.
    Copies(u8),
}

impl Redundancy {
    /// The redundancy that a stored or sent number stands for; `None` for 0: the default of the
    /// cluster.
    pub fn from_number(number: u8) -> Option<Redundancy> {
        (number > 0).then_some(Redundancy::Copies(number))
    }

    /// As it is stored and sent.
    pub fn number(self) -> u8 {
        let Redundancy::Copies(copies) = self;
        copies
    }

    /// Members of a whole group.
    pub fn members(self) -> usize {
        let Redundancy::Copies(copies) = self;
        copies.into()
    }

    /// Members that must have a block before it is acknowledged, where so many are asked for.
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

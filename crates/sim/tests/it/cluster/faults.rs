//! Faults, and how long they last.

use cairn_base::NodeId;
use cairn_base::rng::SeededRng;

use super::database::DATABASE;
use super::world::Layout;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process dies, and starts again.
    Kill(NodeId),
    /// The machine dies: what was not synced may be lost, and nobody says goodbye.
    PowerCut(NodeId),
    /// Stops the process, and lets it go on later.
    Pause(NodeId),
    /// Lets nothing pass from the first to the second.
    CutOneWay(NodeId, NodeId),
    Cut(NodeId, NodeId),
    /// Lets nothing pass from and to all others.
    Isolate(NodeId),
    /// Parts the nodes whose bits are set from the others.
    Halves(u64),
    /// Delays messages between the two, by this many milliseconds.
    Delay(NodeId, NodeId, u64),
    /// Breaks one in this many open connections.
    Break(u64),
    /// Breaks one in this many connections, again and again.
    Flaky(u64),
    /// Lets nothing pass from a gateway to any master or back.
    Apart(NodeId),
    /// The master that serves and a gateway lose the way to all other masters and gateways.
    Beside(NodeId),
    /// Nothing gets from any master to a gateway: what it asks for is done, and it does not hear of
    /// it until its session is lost.
    Deafen(NodeId),
    /// An operator has a chunkserver drained.
    Drain(NodeId),
    /// Fails this many thousandths of all commits.
    Commits(u64),
    /// Makes wall time jump, by this many seconds.
    Jump(NodeId, i64),
    /// Makes the disk slower by a factor.
    Slow(NodeId, u64),
    /// Fails a call to the disk, after this many; all calls from then on, if the disk is a
    /// chunkserver's and the number is even.
    DiskError(NodeId, u64),
    DiskFull(NodeId),
    /// Changes bits of stored blocks.
    Flip(NodeId),
    /// Replaces the disk by an empty one.
    Wipe(NodeId),
}

impl Fault {
    /// Returns whether a session or a master may be lost by it.
    pub fn disturbs(self) -> bool {
        !matches!(
            self,
            Fault::Jump(..)
                | Fault::Slow(..)
                | Fault::DiskFull(_)
                | Fault::Commits(_)
                | Fault::Drain(_)
        )
    }

    /// Returns whether it is a fault of disks alone.
    pub fn is_of_disk(self) -> bool {
        matches!(self, Fault::Slow(..) | Fault::DiskError(..) | Fault::DiskFull(_))
    }
}

/// The kinds of faults of a database. Masters that have none have others.
const COMMITS: u64 = 12;
const UNREACHED: u64 = 16;
/// The kind of fault that a clock jumps.
const JUMP: u64 = 13;

/// Draws faults for one seed.
pub struct Plan<'a> {
    pub layout: &'a Layout,
    pub rng: &'a SeededRng,
    /// The kinds of faults that may happen, by bits, so that seeds differ.
    kinds: u64,
    /// The one disk that may lose what it has, in one way.
    victim: NodeId,
    wipes: bool,
    wiped: bool,
    /// Clocks do not jump. Gateways are deaf from time to time instead.
    keeps_clocks: bool,
}

impl<'a> Plan<'a> {
    pub fn new(layout: &'a Layout, rng: &'a SeededRng) -> Plan<'a> {
        let kinds = match rng.below(8) {
            0 => 0,
            1..4 => rng.next() & rng.next(),
            _ => rng.next(),
        };
        let victim = layout.chunkservers[rng.below(layout.chunkservers.len() as u64) as usize];
        let (wipes, wiped, keeps_clocks) = (rng.below(2) == 0, false, false);
        Plan { layout, rng, kinds, victim, wipes, wiped, keeps_clocks }
    }

    /// Clocks do not jump: for what is kept for a time.
    pub fn keep_clocks(&mut self) {
        self.keeps_clocks = true;
    }

    /// Nothing goes wrong but [`Fault::Beside`].
    pub fn aim(&mut self) {
        self.kinds = 1 << UNREACHED;
    }

    /// Returns whether nothing goes wrong.
    pub fn is_calm(&self) -> bool {
        self.kinds == 0
    }

    fn one_of(&self, nodes: &[NodeId]) -> NodeId {
        nodes[self.rng.below(nodes.len() as u64) as usize]
    }

    fn any(&self) -> NodeId {
        self.one_of(&self.layout.all())
    }

    fn master(&self) -> NodeId {
        self.one_of(&self.layout.masters)
    }

    fn store(&self) -> NodeId {
        self.one_of(&self.layout.chunkservers)
    }

    /// A master, a gateway and perhaps a chunkserver that lose the way to all others together.
    fn rack(&self) -> u64 {
        let (master, gateway) =
            (self.one_of(&self.layout.masters), self.one_of(&self.layout.gateways));
        let stores = if self.rng.below(2) == 0 { 0 } else { 1 << self.store().0 };
        1 << master.0 | 1 << gateway.0 | stores
    }

    /// Two that may talk with each other.
    fn pair(&self) -> (NodeId, NodeId) {
        loop {
            let (a, mut b) = (self.any(), self.any());
            if self.layout.masters.contains(&a) && self.rng.below(4) == 0 {
                b = if self.layout.together { self.master() } else { DATABASE };
            }
            if a != b {
                return (a, b);
            }
        }
    }

    /// A fault, and how long it lasts, milliseconds.
    pub fn draw(&mut self) -> Option<(Fault, u64)> {
        let rng = self.rng;
        let kind = if self.kinds == 1 << UNREACHED { UNREACHED } else { rng.below(20) };
        if self.kinds >> kind & 1 == 0 {
            return None;
        }
        let short = 200 + rng.below(2_000);
        let long = 500 + rng.below(7_000);
        Some(match kind {
            0 => (Fault::Kill(self.any()), short),
            1 => (Fault::Kill(self.master()), short),
            2 => (Fault::PowerCut(self.store()), long),
            3 => (Fault::PowerCut(self.any()), long),
            4 => (Fault::Pause(self.any()), long),
            5 => (Fault::Pause(self.master()), long),
            6 => {
                let (a, b) = self.pair();
                (Fault::CutOneWay(a, b), long)
            }
            7 => {
                let (a, b) = self.pair();
                (Fault::Cut(a, b), long)
            }
            8 => (Fault::Isolate(self.any()), long),
            9 => match rng.below(2) {
                0 => (Fault::Halves(rng.next()), long),
                _ => (Fault::Halves(self.rack()), long + rng.below(5_000)),
            },
            10 => {
                let (a, b) = self.pair();
                (Fault::Delay(a, b, 20 + rng.below(1_500)), long)
            }
            11 => match rng.below(2) {
                0 => (Fault::Break(1 + rng.below(4)), 1),
                _ => (Fault::Flaky(4 + rng.below(40)), long),
            },
            COMMITS if self.layout.together => match rng.below(2) {
                0 => (Fault::DiskError(self.master(), rng.below(40)), long),
                _ => (Fault::DiskFull(self.master()), long),
            },
            COMMITS => (Fault::Commits(20 + rng.below(200)), short),
            JUMP if self.keeps_clocks => {
                (Fault::Deafen(self.one_of(&self.layout.gateways)), 3_000 + long)
            }
            JUMP => (Fault::Jump(self.any(), rng.below(7_200) as i64 - 3_600), 1),
            14 => (Fault::Slow(self.any(), 2 + rng.below(30)), long),
            15 => match rng.below(2) {
                0 => (Fault::DiskError(self.store(), rng.below(40)), long),
                _ => (Fault::DiskFull(self.store()), long),
            },
            // So long that the next master lets the session of the gateway lapse.
            UNREACHED if self.layout.together => {
                let gateway = self.layout.gateways[1];
                (Fault::Beside(gateway), 8_000 + rng.below(8_000))
            }
            UNREACHED => match rng.below(2) {
                0 => (Fault::Cut(self.master(), DATABASE), long),
                _ => (Fault::CutOneWay(self.master(), DATABASE), long),
            },
            17 => (Fault::Apart(self.one_of(&self.layout.gateways)), long),
            18 => (Fault::Drain(self.store()), long),
            _ if !self.wipes => (Fault::Flip(self.victim), 1),
            _ if self.wiped => return None,
            _ => {
                self.wiped = true;
                (Fault::Wipe(self.victim), short)
            }
        })
    }
}

/// Numbers of all sizes.
trait Numbers {
    fn next(&self) -> u64;
}

impl Numbers for SeededRng {
    fn next(&self) -> u64 {
        cairn_base::Rng::next_u64(self)
    }
}

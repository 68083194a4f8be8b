//! Who is still reading a former state: blocks freed after it must wait.
//!
//! Readers come in generations. A pass of the garbage collector notes the last durable batch and
//! starts a new generation; once the last reader of the old one is gone, nobody reads a state
//! older than that batch. Entering costs a reader one atomic increment.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// One generation of readers; its batch is not known to them.
#[derive(Debug)]
pub(crate) struct Generation;

/// Held by a reader for as long as it may ask for blocks of the state it saw.
pub(crate) type ReadGuard = Arc<Generation>;

#[derive(Debug)]
pub(crate) struct Readers {
    current: ArcSwap<Generation>,
    /// Former generations, oldest first, and the batch each of them may not read before.
    former: Mutex<VecDeque<(u64, ReadGuard)>>,
}

impl Default for Readers {
    fn default() -> Readers {
        Readers { current: ArcSwap::from_pointee(Generation), former: Mutex::new(VecDeque::new()) }
    }
}

impl Readers {
    pub(crate) fn enter(&self) -> ReadGuard {
        self.current.load_full()
    }

    /// Starts a new generation. `durable` is the last durable batch, read before the call: every
    /// later reader sees that state or a newer one.
    pub(crate) fn advance(&self, durable: u64) {
        let old = self.current.swap(Arc::new(Generation));
        self.former.lock().push_back((durable, old));
    }

    /// The newest batch whose freed blocks nobody can be reading any more; 0 for none.
    pub(crate) fn settled(&self) -> u64 {
        let mut former = self.former.lock();
        let mut settled = 0;
        while let Some((durable, generation)) = former.front() {
            if Arc::strong_count(generation) > 1 {
                break;
            }
            settled = *durable;
            former.pop_front();
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_holds_back_its_generation_and_later_ones() {
        let readers = Readers::default();
        let early = readers.enter();
        readers.advance(10);
        let late = readers.enter();
        readers.advance(20);
        readers.advance(30);
        drop(late);
        assert_eq!(readers.settled(), 0);
        drop(early);
        assert_eq!(readers.settled(), 30);
        assert_eq!(readers.settled(), 0);
    }
}

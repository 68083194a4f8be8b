//! Readers of former states: blocks freed after such a state must wait for them.
//!
//! Readers come in generations. A pass of the garbage collector notes the last durable batch and
//! starts a new generation. Once the last reader of the old generation is gone, nobody reads a
//! state older than that batch. Entering costs a reader one atomic increment. A generation can be
//! held for some time, for readers of another process that received the places of blocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// One generation of readers; its batch is not known to them.
#[derive(Debug)]
pub(crate) struct Generation;

/// Held by a reader for as long as it may read blocks of the state that it saw.
pub(crate) type ReadGuard = Arc<Generation>;

#[derive(Debug)]
pub(crate) struct Readers {
    current: ArcSwap<Generation>,
    /// Former generations, oldest first, each with the batch before which its readers do not read
    /// once it is gone.
    former: Mutex<VecDeque<(u64, ReadGuard)>>,
    /// Generations that are held, each with its end on the monotonic clock.
    held: Mutex<Vec<(ReadGuard, Duration)>>,
}

impl Default for Readers {
    fn default() -> Readers {
        Readers {
            current: ArcSwap::from_pointee(Generation),
            former: Mutex::new(VecDeque::new()),
            held: Mutex::new(Vec::new()),
        }
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

    /// Counts a generation as being read until `until`.
    pub(crate) fn hold(&self, guard: &ReadGuard, until: Duration) {
        let mut held = self.held.lock();
        match held.iter_mut().rev().find(|(known, _)| Arc::ptr_eq(known, guard)) {
            Some((_, known)) => *known = until.max(*known),
            None => held.push((Arc::clone(guard), until)),
        }
    }

    /// Releases the generations whose hold has ended.
    pub(crate) fn let_go(&self, now: Duration) {
        self.held.lock().retain(|(_, until)| *until > now);
    }

    /// Returns the newest batch whose freed blocks nobody can be reading any more; 0 for none.
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

    #[test]
    fn a_generation_is_held_for_some_time() {
        let readers = Readers::default();
        let reader = readers.enter();
        readers.hold(&reader, Duration::from_secs(5));
        readers.hold(&reader, Duration::from_secs(3));
        drop(reader);
        readers.advance(10);
        readers.let_go(Duration::from_secs(4));
        assert_eq!(readers.settled(), 0);
        readers.let_go(Duration::from_secs(5));
        assert_eq!(readers.settled(), 10);
    }
}

//! Slots: each carries one operation at a time, so that the master only has to keep the last reply
//! of each.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::keys::SLOTS;

/// The slots of one session.
pub struct SessionSlots {
    free: Mutex<Vec<SessionSlot>>,
    permits: Arc<Semaphore>,
}

#[derive(Clone, Copy)]
struct SessionSlot {
    number: u16,
    sequence: u64,
}

/// A slot that carries an operation.
pub struct SlotGuard {
    slots: Arc<SessionSlots>,
    slot: SessionSlot,
    _permit: OwnedSemaphorePermit,
}

impl SessionSlots {
    pub fn new() -> Arc<SessionSlots> {
        // Last in, first out: as few slots as possible are in use.
        let free = (0..SLOTS).rev().map(|number| SessionSlot { number, sequence: 0 }).collect();
        let permits = Arc::new(Semaphore::new(usize::from(SLOTS)));
        Arc::new(SessionSlots { free: Mutex::new(free), permits })
    }

    /// Takes a slot for a new operation; waits while all are in use.
    pub async fn take(self: &Arc<Self>) -> Option<SlotGuard> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        self.taken(permit)
    }

    /// Takes a slot like [`SessionSlots::take`], but only if one is free.
    pub fn take_now(self: &Arc<Self>) -> Option<SlotGuard> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.taken(permit)
    }

    fn taken(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Option<SlotGuard> {
        let mut slot = self.free.lock().pop()?;
        slot.sequence += 1;
        Some(SlotGuard { slots: Arc::clone(self), slot, _permit: permit })
    }
}

impl SlotGuard {
    pub fn number(&self) -> u16 {
        self.slot.number
    }

    pub fn sequence(&self) -> u64 {
        self.slot.sequence
    }
}

impl Drop for SlotGuard {
    /// An operation that was given up may still run: the next operation of the slot has a higher
    /// sequence, and the master runs none with a lower one after it.
    fn drop(&mut self) {
        self.slots.free.lock().push(self.slot);
    }
}

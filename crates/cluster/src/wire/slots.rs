//! The calls of one side that wait for their answers, each in a slot.
//!
//! A slot stays taken until its answer has come, also when nobody waits for it any more. So an
//! answer always finds its slot, and the other side never holds more requests than it allows.

use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Result};
use tokio::time::Instant;

#[derive(Debug)]
struct OpenCall {
    /// Differs each time the slot is taken: part of the id of the call.
    generation: u32,
    /// Bytes of the request, returned to the window with the answer.
    cost: u32,
    deadline: Instant,
    timeout: Duration,
    waker: Option<Waker>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Free,
    /// Somebody waits for the answer.
    Waiting,
    /// The deadline has passed, and the waiting caller is to get the error.
    Late,
    /// Nobody waits for the answer, which has not come.
    Abandoned,
    /// The answer has come and nobody took it yet.
    Answered(Result<Bytes>),
}

#[derive(Debug, Default)]
pub struct OpenCalls {
    slots: Vec<OpenCall>,
    free: Vec<u32>,
    /// Answers that have not come.
    outstanding: usize,
}

/// The part of the window that an answer gives back.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FreedWindow {
    pub calls: usize,
    pub bytes: usize,
}

impl OpenCalls {
    /// Takes a slot for a call; gives the id.
    pub fn begin(&mut self, cost: u32, deadline: Instant, timeout: Duration) -> u64 {
        let phase = Phase::Waiting;
        self.outstanding += 1;
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            let generation = slot.generation.wrapping_add(1);
            *slot = OpenCall { generation, cost, deadline, timeout, waker: None, phase };
            return id(index, generation);
        }
        let index = u32::try_from(self.slots.len()).expect("the window is smaller");
        self.slots.push(OpenCall { generation: 1, cost, deadline, timeout, waker: None, phase });
        id(index, 1)
    }

    fn slot(&mut self, id: u64) -> Option<(u32, &mut OpenCall)> {
        let index = id as u32;
        let slot = self.slots.get_mut(index as usize)?;
        (slot.generation == (id >> 32) as u32).then_some((index, slot))
    }

    /// The answer to `id` has come. Adds what it gives back to `freed`, and to `wakers` who waits.
    ///
    /// # Errors
    /// `Invalid` if nothing was asked, or it was answered before.
    pub fn answer(
        &mut self,
        id: u64,
        answer: Result<Bytes>,
        freed: &mut FreedWindow,
        wakers: &mut Vec<Waker>,
    ) -> Result<()> {
        let nothing = || Error::Invalid(format!("an answer to call {id:x}, which waits for none"));
        let (index, slot) = self.slot(id).ok_or_else(nothing)?;
        match slot.phase {
            Phase::Free | Phase::Answered(_) => return Err(nothing()),
            Phase::Waiting | Phase::Late => {
                slot.phase = Phase::Answered(answer);
                wakers.extend(slot.waker.take());
            }
            Phase::Abandoned => {
                slot.phase = Phase::Free;
                self.free.push(index);
            }
        }
        freed.calls += 1;
        freed.bytes += self.slot(id).map_or(0, |(_, slot)| slot.cost as usize);
        self.outstanding -= 1;
        Ok(())
    }

    /// The result of the call `id`, for its waiting caller; a slot whose answer was taken is free.
    pub fn poll(&mut self, id: u64, waker: &Waker) -> Poll<Result<Bytes>> {
        let (index, slot) = self.slot(id).expect("a call that waits has a slot");
        match std::mem::replace(&mut slot.phase, Phase::Free) {
            Phase::Answered(answer) => {
                self.free.push(index);
                Poll::Ready(answer)
            }
            Phase::Late => {
                slot.phase = Phase::Abandoned;
                Poll::Ready(Err(Error::Unavailable(format!(
                    "no answer within {} ms; whether the call was carried out is unknown",
                    slot.timeout.as_millis()
                ))))
            }
            phase => {
                assert!(matches!(phase, Phase::Waiting), "a call is polled after its end");
                slot.phase = phase;
                if !slot.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                    slot.waker = Some(waker.clone());
                }
                Poll::Pending
            }
        }
    }

    /// Nobody waits for `id` any more.
    pub fn abandon(&mut self, id: u64) {
        let Some((index, slot)) = self.slot(id) else { return };
        match slot.phase {
            Phase::Free | Phase::Abandoned => {}
            Phase::Waiting | Phase::Late => {
                slot.phase = Phase::Abandoned;
                slot.waker = None;
            }
            Phase::Answered(_) => {
                slot.phase = Phase::Free;
                self.free.push(index);
            }
        }
    }

    /// Marks the calls whose deadline has passed.
    pub fn expire(&mut self, now: Instant, wakers: &mut Vec<Waker>) {
        if self.outstanding == 0 {
            return;
        }
        for slot in &mut self.slots {
            if matches!(slot.phase, Phase::Waiting) && slot.deadline <= now {
                slot.phase = Phase::Late;
                wakers.extend(slot.waker.take());
            }
        }
    }

    /// No further answer will come, because of `reason`.
    pub fn fail(&mut self, reason: &str, wakers: &mut Vec<Waker>) {
        for (index, slot) in (0..).zip(&mut self.slots) {
            match slot.phase {
                Phase::Waiting | Phase::Late => {
                    slot.phase = Phase::Answered(Err(Error::Unavailable(format!(
                        "{reason}; whether the call was carried out is unknown"
                    ))));
                    wakers.extend(slot.waker.take());
                }
                Phase::Abandoned => {
                    slot.phase = Phase::Free;
                    self.free.push(index);
                }
                Phase::Free | Phase::Answered(_) => {}
            }
        }
        self.outstanding = 0;
    }

    /// Calls whose answers have not come.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

fn id(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: u32 = 10;

    fn begin(slots: &mut OpenCalls) -> u64 {
        slots.begin(COST, Instant::now() + Duration::from_secs(1), Duration::from_secs(1))
    }

    /// Answers `id`; whether that was accepted.
    fn answer(slots: &mut OpenCalls, id: u64) -> Option<FreedWindow> {
        let mut freed = FreedWindow::default();
        let answer = Ok(Bytes::from_static(b"yes"));
        let accepted = slots.answer(id, answer, &mut freed, &mut Vec::new());
        accepted.is_ok().then_some(freed)
    }

    fn poll(slots: &mut OpenCalls, id: u64) -> Poll<Result<Bytes>> {
        slots.poll(id, Waker::noop())
    }

    #[test]
    fn an_answer_frees_its_slot_once() {
        let mut slots = OpenCalls::default();
        let (first, second) = (begin(&mut slots), begin(&mut slots));
        assert!(poll(&mut slots, first).is_pending());
        assert_eq!(answer(&mut slots, first), Some(FreedWindow { calls: 1, bytes: 10 }));
        assert_eq!(answer(&mut slots, first), None, "a second answer is refused");
        assert!(matches!(poll(&mut slots, first), Poll::Ready(Ok(_))));
        assert_eq!(answer(&mut slots, first), None);
        let third = begin(&mut slots);
        assert_eq!((third as u32, slots.slots.len()), (first as u32, 2), "the slot is used again");
        assert_ne!(third, first);
        assert_eq!(answer(&mut slots, first), None, "an answer to an earlier call is refused");
        assert_eq!(slots.outstanding(), 2);
        assert!(answer(&mut slots, second).is_some() && answer(&mut slots, third).is_some());
        assert_eq!(answer(&mut slots, u64::MAX), None);
    }

    #[test]
    fn an_abandoned_call_keeps_its_slot_until_the_answer_comes() {
        let mut slots = OpenCalls::default();
        let first = begin(&mut slots);
        slots.abandon(first);
        assert_ne!(begin(&mut slots) as u32, first as u32);
        assert!(answer(&mut slots, first).is_some());
        assert_eq!(begin(&mut slots) as u32, first as u32);
        let answered = begin(&mut slots);
        answer(&mut slots, answered);
        slots.abandon(answered);
        assert_eq!(begin(&mut slots) as u32, answered as u32, "its answer is dropped");
    }

    #[test]
    fn a_late_call_is_told_and_its_answer_still_expected() {
        let mut slots = OpenCalls::default();
        let (late, early) = (begin(&mut slots), begin(&mut slots));
        let now = Instant::now();
        slots.expire(now, &mut Vec::new());
        assert!(poll(&mut slots, late).is_pending());
        slots.expire(now + Duration::from_secs(2), &mut Vec::new());
        assert!(answer(&mut slots, early).is_some());
        assert!(
            matches!(poll(&mut slots, early), Poll::Ready(Ok(_))),
            "it came before the telling"
        );
        let Poll::Ready(Err(Error::Unavailable(text))) = poll(&mut slots, late) else { panic!() };
        assert!(text.contains("1000 ms") && text.contains("unknown"), "{text}");
        assert_eq!(slots.outstanding(), 1);
        assert!(answer(&mut slots, late).is_some());
    }

    #[test]
    fn the_end_fails_all_that_wait() {
        let mut slots = OpenCalls::default();
        let [waiting, answered, abandoned] = std::array::from_fn(|_| begin(&mut slots));
        answer(&mut slots, answered);
        slots.abandon(abandoned);
        slots.fail("gone", &mut Vec::new());
        assert!(matches!(poll(&mut slots, answered), Poll::Ready(Ok(_))));
        let Poll::Ready(Err(Error::Unavailable(text))) = poll(&mut slots, waiting) else {
            panic!()
        };
        assert!(text.starts_with("gone; ") && text.contains("unknown"), "{text}");
        assert_eq!((slots.outstanding(), slots.free.len()), (0, 3));
    }
}

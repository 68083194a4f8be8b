//! The progress of an operation, as agreed between its caller and the task that sends it.

use cairn_base::{Error, Result};

use crate::Watched;

/// Reason for which an operation ends whose caller was answered before.
pub const GIVEN_UP: &str = "its caller waits no more";

/// The progress of an operation.
pub struct Step(Watched<StepStage>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StepStage {
    Waits,
    /// Sent: it may run at any time from here on.
    Sent,
    /// Given up before it was sent: it is never sent.
    GivenUp,
    /// Sent, but its caller no longer waits for the outcome.
    Unknown,
    /// Over: it does not run after this.
    Over,
}

impl Default for Step {
    fn default() -> Step {
        Step(Watched::new(StepStage::Waits))
    }
}

impl Step {
    fn turn(&self, from: StepStage, to: StepStage) -> bool {
        self.0.modify(|stage| {
            let is_so = *stage == from;
            if is_so {
                *stage = to;
            }
            is_so
        })
    }

    /// Marks the operation as sent, perhaps again. Returns whether it may be sent.
    pub fn send(&self) -> bool {
        self.turn(StepStage::Waits, StepStage::Sent) || self.0.get() != StepStage::GivenUp
    }

    pub fn is_sent(&self) -> bool {
        !matches!(self.0.get(), StepStage::Waits | StepStage::GivenUp)
    }

    /// Gives the operation up, as its caller no longer waits. Returns `false` if it was sent
    /// already.
    pub fn give_up(&self) -> bool {
        self.turn(StepStage::Waits, StepStage::GivenUp)
    }

    /// Does `work` that precedes the sending of the operation, or sends it.
    ///
    /// # Errors
    /// `Unavailable` when the operation is given up.
    pub async fn unless_given_up<R>(&self, work: impl Future<Output = R>) -> Result<R> {
        tokio::select! {
            biased;
            () = self.0.wait_for(|stage| (*stage == StepStage::GivenUp).then_some(())) => {
                Err(unanswered(false, GIVEN_UP))
            }
            done = work => Ok(done),
        }
    }

    /// Marks a sent operation as one of unknown outcome, as its caller no longer waits. Returns
    /// `false` if the operation is over.
    pub fn is_unknown_now(&self) -> bool {
        self.turn(StepStage::Sent, StepStage::Unknown)
    }

    /// Marks the operation as over: it does not run after this. Returns whether its caller has
    /// learned its outcome, or will.
    pub fn is_over_now(&self) -> bool {
        self.turn(StepStage::Sent, StepStage::Over) || !self.is_sent()
    }
}

/// Makes the error for a caller that waits no longer for an answer.
pub fn unanswered(is_sent: bool, why: &str) -> Error {
    let what = if is_sent { "outcome unknown" } else { "not done" };
    Error::Unavailable(format!("{what}: {why}"))
}

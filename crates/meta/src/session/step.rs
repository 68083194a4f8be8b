//! How far an operation is, as its caller and whoever sends it agree.

use cairn_base::{Error, Result};

use crate::Watched;

/// Why an operation ends whose caller was answered before.
pub const GIVEN_UP: &str = "its caller waits no more";

/// How far an operation is.
pub struct Step(Watched<StepStage>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StepStage {
    Waits,
    /// It may run at any time from here on.
    Sent,
    /// It is never sent.
    GivenUp,
    /// It was sent, and its caller waits no more.
    Unknown,
    /// It does not run after this.
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

    /// It is about to be sent, perhaps again. Whether it may be.
    pub fn send(&self) -> bool {
        self.turn(StepStage::Waits, StepStage::Sent) || self.0.get() != StepStage::GivenUp
    }

    pub fn is_sent(&self) -> bool {
        !matches!(self.0.get(), StepStage::Waits | StepStage::GivenUp)
    }

    /// Its caller waits no more, and it is not to be sent. Whether it was not.
    pub fn give_up(&self) -> bool {
        self.turn(StepStage::Waits, StepStage::GivenUp)
    }

    /// Something that is done before it is sent, or with it.
    ///
    /// # Errors
    /// `Unavailable` when it was given up.
    pub async fn unless_given_up<R>(&self, work: impl Future<Output = R>) -> Result<R> {
        tokio::select! {
            biased;
            () = self.0.wait_for(|stage| (*stage == StepStage::GivenUp).then_some(())) => {
                Err(unanswered(false, GIVEN_UP))
            }
            done = work => Ok(done),
        }
    }

    /// It was sent, and its caller waits no more. Whether it is not over.
    pub fn is_unknown_now(&self) -> bool {
        self.turn(StepStage::Sent, StepStage::Unknown)
    }

    /// It does not run after this. Whether its caller has heard, or will, what became of it.
    pub fn is_over_now(&self) -> bool {
        self.turn(StepStage::Sent, StepStage::Over) || !self.is_sent()
    }
}

/// The error for a caller that waits no longer for an answer.
pub fn unanswered(is_sent: bool, why: &str) -> Error {
    let what = if is_sent { "outcome unknown" } else { "not done" };
    Error::Unavailable(format!("{what}: {why}"))
}

//! Operations whose callers were told that nobody knows what became of them, while they are still
//! on their way.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::Result;

use super::client::{GIVEN_UP, Operation, unanswered};
use crate::Watched;

/// How far an operation is.
pub struct Step(Watched<Stage>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
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
        Step(Watched::new(Stage::Waits))
    }
}

impl Step {
    fn turn(&self, from: Stage, to: Stage) -> bool {
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
        self.turn(Stage::Waits, Stage::Sent) || self.0.get() != Stage::GivenUp
    }

    pub fn is_sent(&self) -> bool {
        !matches!(self.0.get(), Stage::Waits | Stage::GivenUp)
    }

    /// Its caller waits no more, and it is not to be sent. Whether it was not.
    pub fn give_up(&self) -> bool {
        self.turn(Stage::Waits, Stage::GivenUp)
    }

    /// Something that is done before it is sent, or with it.
    ///
    /// # Errors
    /// `Unavailable` when it was given up.
    pub async fn unless_given_up<R>(&self, work: impl Future<Output = R>) -> Result<R> {
        tokio::select! {
            biased;
            () = self.0.wait_for(|stage| (*stage == Stage::GivenUp).then_some(())) => {
                Err(unanswered(false, GIVEN_UP))
            }
            done = work => Ok(done),
        }
    }
}

/// All of them. What their callers do next to the same rows waits for them: one that is sent again
/// would undo what was acknowledged since.
#[derive(Default)]
pub struct Unknown {
    operations: Watched<Vec<Arc<Operation>>>,
}

/// An operation is over when this is dropped.
#[must_use]
pub struct UntilOver<'a>(&'a Unknown, &'a Arc<Operation>);

impl Unknown {
    /// The caller of an operation that was sent waits no more. Whether it is not over.
    pub fn add(&self, operation: &Arc<Operation>) -> bool {
        self.operations.modify(|all| {
            let is_unknown = operation.step().turn(Stage::Sent, Stage::Unknown);
            all.extend(is_unknown.then(|| Arc::clone(operation)));
            is_unknown
        })
    }

    pub fn until_over<'a>(&'a self, operation: &'a Arc<Operation>) -> UntilOver<'a> {
        UntilOver(self, operation)
    }

    /// Waits until none of them changes any of these rows.
    pub async fn before(&self, changes: &[Bytes]) {
        let is_of_these =
            |one: &Arc<Operation>| one.changes().iter().any(|key| changes.contains(key));
        let are_over = |all: &Vec<_>| (!all.iter().any(is_of_these)).then_some(());
        self.operations.wait_for(are_over).await;
    }
}

impl Drop for UntilOver<'_> {
    fn drop(&mut self) {
        let UntilOver(unknown, operation) = self;
        let step = operation.step();
        let is_known = step.turn(Stage::Sent, Stage::Over) || !step.is_sent();
        if !is_known {
            unknown.operations.modify(|all| {
                all.retain(|one| !Arc::ptr_eq(one, operation));
                true
            });
        }
    }
}

//! Operations whose callers were told that nobody knows what became of them, while they are still
//! on their way.

use std::sync::Arc;

use bytes::Bytes;

use super::operation::Operation;
use crate::Watched;

/// All of them. Later operations of their callers on the same rows wait for them: an operation that
/// is sent again would undo changes that were acknowledged since.
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
            let is_unknown = operation.step().is_unknown_now();
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
        if !operation.step().is_over_now() {
            unknown.operations.modify(|all| {
                all.retain(|one| !Arc::ptr_eq(one, operation));
                true
            });
        }
    }
}

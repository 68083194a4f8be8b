//! Operations that are still on their way while their callers were answered that the outcome is
//! unknown.

use std::sync::Arc;

use bytes::Bytes;

use super::operation::Operation;
use crate::Watched;

/// All operations of unknown outcome. Later operations of their callers on the same rows wait for
/// them: otherwise, an operation that is sent again would undo changes that were acknowledged
/// since.
#[derive(Default)]
pub struct Unknown {
    operations: Watched<Vec<Arc<Operation>>>,
}

/// Marks an operation as over when it is dropped.
#[must_use]
pub struct UntilOver<'a>(&'a Unknown, &'a Arc<Operation>);

impl Unknown {
    /// Adds an operation that was sent and whose caller no longer waits. Returns `false` if it is
    /// over.
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

    /// Waits until none of these operations changes any of the rows `changes`.
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

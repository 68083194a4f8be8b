//! Answers that are either available at once or take a while.

use std::future::{IntoFuture, Ready, ready};
use std::pin::Pin;

use futures_util::future::Either;

/// The work that remains for an answer.
pub type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The answer to a call. A caller that does not mind waiting awaits it.
#[must_use]
pub enum Answer<T> {
    /// The answer itself, which was known here.
    Now(T),
    /// Work that takes little processor time and often need not wait: worth trying on the caller's
    /// thread.
    Soon(Work<T>),
    /// Work that takes more time, or waits.
    Later(Work<T>),
}

impl<T> Answer<T> {
    pub fn soon(work: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        Answer::Soon(Box::pin(work))
    }

    pub fn later(work: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        Answer::Later(Box::pin(work))
    }
}

impl<T> IntoFuture for Answer<T> {
    type Output = T;
    type IntoFuture = Either<Ready<T>, Work<T>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Answer::Now(value) => Either::Left(ready(value)),
            Answer::Soon(work) | Answer::Later(work) => Either::Right(work),
        }
    }
}

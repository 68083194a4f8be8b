//! A future that works on a request. Its time is measured by stages, and while it waits it is among
//! the requests in flight.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::inflight::{self, Request};
use crate::stage::Stages;

/// A future that works on a request; without stages it is not timed.
#[derive(Debug)]
pub struct Scope<F: ?Sized> {
    pub stages: Option<Stages>,
    request: Option<Request>,
    /// Set for the request itself, and not for a part of it.
    is_whole: bool,
    future: Pin<Box<F>>,
}

impl<F: Future + ?Sized> Scope<F> {
    /// Creates a part of the request that is being worked on, if there is one.
    pub fn new(stages: Option<Stages>, future: Pin<Box<F>>) -> Scope<F> {
        Scope { stages, request: inflight::current(), is_whole: false, future }
    }

    /// Creates the scope of a whole request.
    pub fn of(stages: Stages, request: Request, future: Pin<Box<F>>) -> Scope<F> {
        Scope { stages: Some(stages), request: Some(request), is_whole: true, future }
    }
}

impl<F: Future + ?Sized> Future for Scope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Scope { stages, request, is_whole, future } = &mut *self;
        match stages {
            Some(stages) if *is_whole => {
                inflight::poll(stages, request, || future.as_mut().poll(context))
            }
            Some(stages) => inflight::during(request, || {
                crate::stage::during(stages, || future.as_mut().poll(context))
            }),
            None => inflight::during(request, || future.as_mut().poll(context)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests run on this machine")]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::Stage;
    use crate::stage;
    use crate::trace::Trace;

    const WAIT: Duration = Duration::from_millis(2);

    fn stages() -> Stages {
        Stages::start(Trace { id: 1, span: 1, parent: 0, sampled: false })
    }

    fn wait() {
        std::thread::sleep(WAIT);
    }

    #[test]
    fn a_scope_is_of_one_request_and_survives_its_panics() {
        assert!(
            stage::snapshot().is_none() && stage::trace().is_none() && stage::of_task().is_none()
        );
        let inner = async {
            assert!(stage::trace().is_some());
            stage::time(Stage::Meta, async { wait() }).await;
            stage::snapshot().expect("it is being timed")
        };
        let mut scope = Scope::new(Some(stages()), Box::pin(inner));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(seen) = Pin::new(&mut scope).poll(&mut context) else { panic!("waits") };
        assert!(seen.spent(Stage::Meta) >= WAIT);
        assert_eq!(
            scope.stages.map(|timed| timed.spent(Stage::Meta)),
            Some(seen.spent(Stage::Meta))
        );
        let mut panics = stages();
        let unwinding =
            std::panic::AssertUnwindSafe(|| stage::during(&mut panics, || panic!("planted")));
        assert!(std::panic::catch_unwind(unwinding).is_err());
        assert!(stage::snapshot().is_none());
    }
}

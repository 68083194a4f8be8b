//! Threads that wait for one another.

#![expect(clippy::disallowed_methods, reason = "where no simulation gives threads")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use cairn_base::{Error, Result, Threads};
use tokio::sync::oneshot;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `future` to its end on this thread, which sleeps while there is nothing to do.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(made) => return made,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs blocking work where that is allowed.
pub async fn blocking<T: Send + 'static>(
    threads: &Option<Arc<dyn Threads>>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let ended = || Error::Unavailable("the thread of the read ended without a result".into());
    match threads {
        None => tokio::task::spawn_blocking(work).await.map_err(|_| ended()),
        Some(threads) => {
            let (sender, receiver) = oneshot::channel();
            threads.run(Box::new(move || drop(sender.send(work()))));
            receiver.await.map_err(|_| ended())
        }
    }
}

//! Transfers, several at a time.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::failure::{Failure, Result};

/// Known jobs that wait for a thread, at most.
const QUEUE: usize = 1024;

/// Runs what `feed` sends through `work`, on `threads` threads. The first failure stops all;
/// transfers in progress are finished.
pub fn run<T: Send>(
    threads: usize,
    feed: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<()>,
    work: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    let (sender, receiver) = sync_channel(QUEUE);
    let receiver = Mutex::new(receiver);
    let fed = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| labour(&receiver, &failed, &work));
        }
        let fed = feed(&mut |job| send(&sender, &failed, job));
        drop(sender);
        fed
    });
    match failed.into_inner() {
        Ok(Some(failure)) => Err(failure),
        _ => fed,
    }
}

fn send<T>(sender: &SyncSender<T>, failed: &Mutex<Option<Failure>>, job: T) -> Result<()> {
    let stopped = failed.lock().map_or(true, |failed| failed.is_some());
    if stopped || sender.send(job).is_err() {
        return Err(Failure::new("stopped, since an earlier object failed"));
    }
    Ok(())
}

/// Takes jobs until there are no more. After a failure the jobs are taken and not done, so that the
/// feeder does not wait.
fn labour<T>(
    receiver: &Mutex<Receiver<T>>,
    failed: &Mutex<Option<Failure>>,
    work: impl Fn(T) -> Result<()>,
) {
    loop {
        let job = match receiver.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => return,
        };
        let Ok(job) = job else { return };
        if failed.lock().is_ok_and(|failed| failed.is_some()) {
            continue;
        }
        if let Err(failure) = work(job)
            && let Ok(mut failed) = failed.lock()
        {
            failed.get_or_insert(failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn all_jobs_are_done_and_a_failure_stops() {
        let sum = AtomicU64::new(0);
        let feed = |send: &mut dyn FnMut(u64) -> Result<()>| (1..=5000).try_for_each(send);
        let work = |job| {
            sum.fetch_add(job, Ordering::Relaxed);
            Ok(())
        };
        run(4, feed, work).unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 5000 * 5001 / 2);
        let fail = |job| if job == 7 { Err(Failure::new("seven")) } else { Ok(()) };
        assert_eq!(run(4, feed, fail).unwrap_err().to_string(), "seven");
    }
}

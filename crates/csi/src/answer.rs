//! Answers to calls: work on threads, and turns by which one call at a time changes a volume.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::{Response, Status};

pub type Answer<T> = Result<Response<T>, Status>;

/// Runs work that waits for a server or for the kernel on a thread for that.
pub async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Answer<T> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Status::internal(format!("this call ended: {error}")))?;
    if let Err(status) = &done {
        tracing::warn!(code = ?status.code(), error = status.message(), "a call failed");
    }
    done.map(Response::new)
}

/// Volumes on which calls are working.
#[derive(Clone, Default)]
pub struct Busy(Arc<Mutex<BTreeSet<String>>>);

/// The turn of a call to work on a volume, which ends when this is dropped.
pub struct Turn {
    busy: Busy,
    volume: String,
}

impl Busy {
    /// Takes the turn to work on a volume.
    ///
    /// # Errors
    /// `Aborted` while another call works on the volume, as the interface demands: the call is made
    /// again later.
    pub fn turn(&self, volume: &str) -> Result<Turn, Status> {
        if !self.0.lock().insert(volume.to_owned()) {
            let text = format!("volume {volume}: another call is at work on it: call again");
            return Err(Status::aborted(text));
        }
        Ok(Turn { busy: self.clone(), volume: volume.to_owned() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.busy.0.lock().remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_at_a_time_is_at_work_on_a_volume() {
        let busy = Busy::default();
        let turn = busy.turn("one").unwrap();
        assert!(busy.turn("two").is_ok());
        assert_eq!(busy.turn("one").err().unwrap().code(), tonic::Code::Aborted);
        drop(turn);
        assert!(busy.turn("one").is_ok());
    }
}

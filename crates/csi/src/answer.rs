//! Answers to calls: how they are found out, and that one volume is changed by one call at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::{Response, Status};

pub type Answer<T> = Result<Response<T>, Status>;

/// Does what waits for a server or for the kernel, on a thread for that.
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

/// The volumes that calls are at work on.
#[derive(Clone, Default)]
pub struct Busy(Arc<Mutex<BTreeSet<String>>>);

/// A volume that no other call is at work on, until this goes away.
pub struct Turn {
    busy: Busy,
    volume: String,
}

impl Busy {
    /// # Errors
    /// `Aborted` while another call is at work on the volume, as the interface wants it: the call
    /// is made again later.
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

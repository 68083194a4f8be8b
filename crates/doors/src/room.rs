//! Room for a body that is read whole: taken as its bytes arrive, and not as they are announced.

use std::sync::Arc;

use cairn_base::{Party, Share, Shares};

use crate::limits::{BODY_STEP_MAX, BODY_STEP_MIN};

/// The part of the shared room that a body takes, until this is dropped.
pub(crate) struct Room {
    all: Arc<Shares>,
    party: Party,
    share: Option<Share>,
}

impl Room {
    pub(crate) fn of(all: &Arc<Shares>, party: Party) -> Room {
        Room { all: Arc::clone(all), party, share: None }
    }

    pub(crate) fn all(&self) -> &Arc<Shares> {
        &self.all
    }

    pub(crate) fn party(&self) -> Party {
        self.party
    }

    /// Waits for room for a body that has grown to `bytes`.
    pub(crate) async fn hold(&mut self, bytes: usize) {
        let held = self.share.as_ref().map_or(0, |share| share.amount() as usize);
        if bytes <= held {
            return;
        }
        let more = (bytes - held).max(held.clamp(BODY_STEP_MIN, BODY_STEP_MAX)) as u64;
        match &mut self.share {
            Some(share) => share.grow(more).await,
            None => self.share = Some(self.all.take(self.party, more).await),
        }
    }
}

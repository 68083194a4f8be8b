//! The parts of this door that all its verbs need.

use std::sync::Arc;

use cairn_base::Shares;
use cairn_fs::Fs;
use cairn_logs::Intake;
use cairn_logs::follow::Tails;

use super::error::RequestIds;
use super::followers::Followers;
use super::kind::Kind;
use super::mount::Mounts;
use super::passwords::Passwords;
use super::redirect::Redirects;
use super::share_rooms::ShareRooms;
use crate::admit::Admit;
use crate::metrics::{Metrics, VerbStats};

/// The state that the verbs share.
pub struct Inner {
    pub admit: Arc<Admit>,
    pub metrics: Arc<Metrics>,
    pub stats: [Arc<VerbStats>; Kind::NAMES.len()],
    pub ids: RequestIds,
    /// Memory for bodies that are read whole: records to append, and JSON.
    pub append_memory: Arc<Shares>,
    /// Takes records of logs, and memory for them.
    pub intake: Intake,
    pub log_memory: Arc<Shares>,
    /// Memory for the directories of archives in progress.
    pub zip_memory: Arc<Shares>,
    /// Followed files, and their followers.
    pub tails: Arc<Tails>,
    pub followers: Followers,
    /// Links to chunkservers; `None` if all data is here.
    pub redirects: Option<Redirects>,
    /// Checks the passwords of share links.
    pub passwords: Passwords,
    /// Uploads by share links.
    pub share_rooms: Arc<ShareRooms>,
    /// Takes mounts; `None` if they cannot be served.
    pub mounts: Option<Mounts>,
}

impl Inner {
    pub fn fs(&self) -> &Fs {
        self.admit.fs()
    }
}

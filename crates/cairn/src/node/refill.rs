//! A master whose metadata are damaged or gone fills itself again from the others. It does so as a
//! new node with a new number and the same key: what it has confirmed or voted for under the former
//! one, and may have lost, does not count any more.
//!
//! ```text
//!   this master                              the master that serves
//!   ── my member has lost something (47) ──► the others can do without it: a new number in the
//!                                            map, the former one leaves the members
//!   ◄── number, certificate ────────────────
//!   notes both (node.next.pem, cluster.toml), ends its member
//!   ── may I enter? (42) ──────────────────► strikes the former number
//!   a new member, which learns all, votes
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, NodeId};
use cairn_cluster::control::messages::ControlMethod;
use cairn_cluster::members::RenumberReply;
use cairn_meta::engine::raft::RaftEngine;
use rustls::pki_types::CertificateDer;
use tokio::time::sleep;

use super::ThisNode;
use crate::failure::{Failure, Result};

/// Interval of the checks whether the metadata are damaged.
const LOOK: Duration = Duration::from_millis(500);
/// Interval of the requests to the master that serves.
const RETRY: Duration = Duration::from_secs(2);

/// Ends a change of this master's number that was begun: what it kept under the former number is no
/// longer used.
pub fn end_renumbering(node: &ThisNode, dir: &Path) -> Result<()> {
    if !node.directory.is_renumbered(node.clock.now())? {
        return Ok(());
    }
    let member = dir.join("member");
    match fs::remove_file(&member) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Failure::file(&member, &error));
        }
        _ => {}
    }
    File::open(dir)?.sync_all()?;
    Ok(node.directory.end_renumbering()?)
}

/// Waits until damage is found in the metadata of `engine`, and then until this master has got a
/// new number. While it leads, it is to hand over first.
pub async fn when_damaged(engine: &Arc<RaftEngine>, node: &ThisNode) -> Result<()> {
    loop {
        sleep(LOOK).await;
        let Some(damage) = engine.member().damage() else { continue };
        if engine.member().lead().await.is_none() {
            match ask(node, &damage.what).await? {
                Answer::Renumbered => return Ok(()),
                Answer::Refused => {}
                // The map may name the new number already: it does not help if the damage heals.
                Answer::Unknown => return until_renumbered(node, &damage.what).await,
            }
        }
        sleep(RETRY).await;
    }
}

/// Asks for a new number until there is one.
pub async fn until_renumbered(node: &ThisNode, damage: &str) -> Result<()> {
    while ask(node, damage).await? != Answer::Renumbered {
        sleep(RETRY).await;
    }
    Ok(())
}

/// The answer to a master that asks for a new number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Renumbered,
    /// Nothing was changed.
    Refused,
    /// The request may have been carried out, in part.
    Unknown,
}

/// Asks once for a new number.
async fn ask(node: &ThisNode, damage: &str) -> Result<Answer> {
    let asked = node.agent.call(ControlMethod::Renumber, &()).await;
    let RenumberReply { node: number, certificate } = match asked {
        Ok(renumbered) => renumbered,
        Err(error @ Error::Denied(_)) => {
            let own = node.loaded.identity.node();
            return Err(Failure::from(error).of(damage).and(&format!(
                "the cluster does not know this master as node {own} any more: let a new directory \
                 join with a new token"
            )));
        }
        Err(Error::NotImplemented(_)) => {
            let own = node.loaded.identity.node();
            tracing::error!(
                damage,
                "the master that serves is of an earlier version: update it, or remove this one \
                 (cairn cluster remove DIR {own}) and let a new directory join with a new token"
            );
            return Ok(Answer::Refused);
        }
        Err(error) => {
            tracing::warn!(%error, damage, "this master does not fill itself again yet");
            let is_refused = matches!(error, Error::Conflict(_));
            return Ok(if is_refused { Answer::Refused } else { Answer::Unknown });
        }
    };
    let certificate = CertificateDer::from(certificate.to_vec());
    node.directory.renumber(NodeId(number), &certificate)?;
    tracing::warn!(damage, "this master fills itself again from the others, as node {number}");
    Ok(Answer::Renumbered)
}

//! The watch of a member: a leader sends heartbeats, and others start an election if no leader
//! does.
//!
//! An election raises the term, which ends the leader of the term before. So a member first asks
//! the others whether they would vote for it, and whether their leader is silent too. This decides
//! only when there is an election, never who wins it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::Result;
use tokio::task::JoinHandle;

use super::member::{Member, View, ended};
use super::message::Message;
use super::network::ask_each;
use super::progress::{self, ProgressWatch, Stall};

/// Interval at which the library and former members are notified again.
const UPKEEP: Duration = Duration::from_secs(1);

/// The state of the watch.
struct Watch {
    member: Arc<Member>,
    /// Silence after which this member asks the others.
    patience: Duration,
    /// Time when it asked last.
    asked: Duration,
    beaten: Duration,
    kept: Duration,
    /// Task that notifies former members.
    telling: Option<JoinHandle<()>>,
    progress: ProgressWatch,
    /// Time of the last attempt to end stalls.
    cured: Duration,
    /// Time until which this leader stays silent, so that another member is elected.
    silent_until: Option<Duration>,
}

/// Runs until the member ends.
pub async fn run(member: Arc<Member>) {
    let now = member.shared.now();
    let patience = draw_patience(&member);
    let progress = ProgressWatch::new(member.shared.timing.stall());
    let mut watch = Watch {
        member,
        patience,
        asked: now,
        beaten: now,
        kept: now,
        telling: None,
        progress,
        cured: now,
        silent_until: None,
    };
    loop {
        let shared = &watch.member.shared;
        if shared.rest(shared.timing.look()).await.is_err() {
            return;
        }
        if let Err(error) = watch.look().await {
            if !watch.member.shared.is_ending() {
                tracing::error!(%error, "this member takes no further part");
            }
            return;
        }
    }
}

fn draw_patience(member: &Member) -> Duration {
    let half = member.shared.timing.lease / 2;
    let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_micros(member.shared.seams.rng.next_u64() % micros)
}

impl Watch {
    async fn look(&mut self) -> Result<()> {
        let view = self.member.view().await?;
        let now = self.member.shared.now();
        if view.leads {
            self.lead(&view, now).await?;
        } else if view.is_voter(self.member.id()) {
            self.stand(&view, now).await?;
        }
        let is_due = now.saturating_sub(self.kept) >= UPKEEP;
        self.member.tell_purged(is_due).await?;
        if is_due {
            self.kept = now;
            self.tell_former();
            self.check_progress(&view, now);
        }
        Ok(())
    }

    /// Looks for stalls, logs them, and tries to end them.
    fn check_progress(&mut self, view: &View, now: Duration) {
        let shared = Arc::clone(&self.member.shared);
        let sample = self.member.progress_sample(view, now);
        let stalls = self.progress.observe(now, &sample);
        let (begun, over) = progress::changed(&self.member.stalls.lock(), &stalls);
        for stall in over {
            tracing::info!(member = shared.me, ?stall, "moves again");
        }
        for stall in begun {
            let lasts = stalls.get(&stall).copied().unwrap_or_default();
            tracing::warn!(
                member = shared.me,
                ?stall,
                ?lasts,
                "stands still: `cairn cluster status` says what to do"
            );
        }
        let is_due = now.saturating_sub(self.cured) >= shared.timing.stall();
        if view.leads && is_due && !stalls.is_empty() {
            self.cured = now;
            self.cure(&stalls, now);
        }
        if self.silent_until.take_if(|until| now >= *until).is_some() {
            shared.contact.stand_down(false);
        }
        *self.member.stalls.lock() = stalls;
    }

    /// Tries to end stalls: restarts the transfers to other members. If a majority keeps confirming
    /// nothing, this leader falls silent so that another member is elected, whose transfers are all
    /// new.
    fn cure(&mut self, stalls: &BTreeMap<Stall, Duration>, now: Duration) {
        let shared = &self.member.shared;
        for (stall, lasts) in stalls {
            match stall {
                Stall::Follower(member) => shared.transfers.restart(*member),
                Stall::Commits if *lasts >= shared.timing.stall() * 2 => {
                    tracing::warn!(member = shared.me, "falls silent for an election");
                    shared.contact.stand_down(true);
                    self.silent_until = Some(now + shared.timing.handing_over());
                }
                Stall::Commits | Stall::Applying | Stall::Elections => {}
            }
        }
    }

    async fn lead(&mut self, view: &View, now: Duration) -> Result<()> {
        // Its patience starts when it no longer leads: the next leader may not have been heard yet.
        self.asked = now;
        let shared = &self.member.shared;
        let (contact, timing) = (&shared.contact, &shared.timing);
        let since = self.member.led.lock().map_or(now, |lead| lead.since);
        let heard = contact.majority(shared.me, &view.voters, since, now);
        let deaf = now.saturating_sub(heard) > timing.deaf();
        if contact.set_deaf(deaf) {
            if deaf {
                tracing::warn!(
                    "no majority answers, so this leader falls silent: start the other masters, or \
                     mend the network between them"
                )
            } else {
                tracing::info!("a majority answers this leader again")
            }
        }
        if now.saturating_sub(self.beaten) < timing.heartbeat() {
            return Ok(());
        }
        self.beaten = now;
        if contact.is_deaf() {
            // Answers to these count like any others.
            drop(self.ask_all(view, &Message::Probe).await)
        } else {
            self.member.raft.trigger().heartbeat().await.map_err(ended)?
        }
        Ok(())
    }

    async fn stand(&mut self, view: &View, now: Duration) -> Result<()> {
        let shared = Arc::clone(&self.member.shared);
        let last = shared.contact.heard_leader().max(self.asked);
        // If this member decides alone, there is no leader to disturb.
        let is_alone = view.is_majority(&BTreeSet::from([shared.me]));
        let is_due = if shared.contact.is_invited(now) {
            // The leader is silent for this member, which need not be patient beyond that.

            let silence = now.saturating_sub(shared.contact.heard_leader());
            silence > shared.timing.silence() + shared.timing.look()
        } else {
            now.saturating_sub(last) >= self.patience
        };
        // If its own rows are damaged, others should lead, if they can.
        let is_early = now.saturating_sub(last) < self.patience + shared.timing.handing_over();
        let gives_way = is_early && shared.store.damage().is_some();
        let is_suspect = shared.contact.is_suspect(now);
        if (!is_due || gives_way || is_suspect) && !is_alone {
            return Ok(());
        }
        self.patience = draw_patience(&self.member);
        let ask = Message::Ask { last: shared.store.last() };
        let said_yes = self.ask_all(view, &ask).await;
        self.asked = shared.now();
        let still_silent = is_alone || shared.contact.heard_leader() < last.max(now);
        let is_superseded = shared.superseded().is_some();
        if view.is_majority(&said_yes) && still_silent && !is_superseded {
            tracing::info!(member = shared.me, term = view.vote.term, "an election begins");
            shared.contact.invite(Duration::ZERO);
            // As a leader it sends no overwritten entries.
            self.member.settle_purged().await?;
            self.member.raft.trigger().elect().await.map_err(ended)?;
        }
        Ok(())
    }

    /// Asks all other voters at once; returns those that agreed, and this member. Former members
    /// are asked as well: they may know of a newer generation.
    async fn ask_all(&self, view: &View, message: &Message) -> BTreeSet<u64> {
        let me = self.member.id();
        let mut others: BTreeSet<u64> = view.voters.iter().flatten().copied().collect();
        others.extend(self.member.shared.seams.peers.former());
        others.remove(&me);
        let mut said_yes = ask_each(&self.member.shared, others, message).await;
        said_yes.insert(me);
        said_yes
    }

    /// Notifies former members of this generation, if they are there. Nobody waits for it.
    fn tell_former(&mut self) {
        let shared = &self.member.shared;
        let former = shared.seams.peers.former();
        if former.is_empty() || self.telling.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let shared = Arc::clone(shared);
        let telling = async move { drop(ask_each(&shared, former, &Message::Probe).await) };
        self.telling = Some(tokio::spawn(telling));
    }
}

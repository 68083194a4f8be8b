//! Bugs on purpose, which the simulation must find. Without the feature `planted`, none of them
//! exists, and no call can enable one.

/// A promise that the planted bug breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A block is acknowledged before every member of its group has it.
    AckBeforeAll,
    /// A member that follows an older map takes part in writes.
    StaleEpochAccepted,
    /// Blocks are acknowledged without a sync.
    SkippedFsync,
    /// Bytes that fail verification are returned.
    ChecksumUnchecked,
    /// A member reports that it has caught up before it has compared itself.
    InSyncBeforeCompare,
    /// The former master may still commit.
    ForgottenFence,
    /// A change is acknowledged before all sessions have given up the rows that it changed.
    RecallNotAwaited,
    /// A row is kept that was recalled while it was on its way.
    CacheFillRace,
    /// A new master makes changes while sessions of the former one hold leases.
    InheritedLeasesForgotten,
    /// A new master makes changes while sessions hold rows that former masters have leased to them.
    HeldRowsNotRecalled,
    /// A master whose own lease is over renews sessions, and reports that it serves.
    RenewedWithoutLease,
    /// A lease is counted from the answer to the renewal, and used to its end and beyond.
    LeaseStretched,
    /// An operation that is sent again is run again.
    RepliesForgotten,
    /// Blocks of a session that has ended are published.
    EndedSessionPublishes,
    /// Blocks of a live session are taken for garbage.
    LiveSessionReaped,
    /// Freed blocks are deleted while they may be read.
    GcWithoutGrace,
    /// A publication in progress is abandoned when nobody waits for the answer any more.
    HangUpGivesUp,
    /// Operations that were executed and are not durable are not sent again to the next master.
    ReplaysForgotten,
    /// A change is shown to some callers before all sessions have given up the rows that it
    /// changed.
    UnsettledShown,
    /// A session that acknowledges nothing is waited for as long as it renews.
    RecallWithoutDeadline,
    /// Other sessions look into a directory that a session fills on its own.
    DelegationIgnored,
    /// The record that a call was executed is not written together with the call's changes.
    CallsForgotten,
    /// A client of NFS is asked to retry a call that may have been executed.
    UnknownAnswered,
    /// The refusal of a call is not recorded.
    RefusalsForgotten,
    /// Bytes that were received long ago overwrite newer bytes of other clients.
    BaseIgnored,
    /// A member forgets its vote when it restarts.
    VoteForgotten,
    /// Any answer of a voter counts as its vote.
    SeenVoteGranted,
    /// A new master serves while the former one may still serve.
    FormerLeaseIgnored,
    /// A lease is counted from the answer to a batch, or a round.
    LeaseFromAnswer,
    /// A leader takes silence for the answer of a member that has entries on its disk.
    CommitBeforeMajority,
    /// A new master serves before the first entry of its own term is applied.
    ReadBeforeTerm,
    /// Entries after a snapshot are lost when it is installed.
    NewerEntriesDropped,
    /// A master answers from memory after its lease.
    LostLeaseServes,
    /// A new master counts its wait for the former lease from when it last heard the former master.
    WaitFromLastHeard,
    /// A lease is counted by the wall clock.
    LeaseByWallClock,
    /// Members of an older generation are refused without learning that they were given up.
    FormerNotTold,
    /// A leader whose log has overwritten entries that a member needs sends nothing, again and
    /// again.
    OverwrittenIsEmpty,
    /// A file of the log is overwritten while its entries count as readable.
    OldFileCountedOn,
    /// A leader sends entries without those before them.
    GapSent,
    /// A session goes on reading although the master whose lease bounds it is gone.
    BoundLeaseIgnored,
    /// A new master does not wait for sessions that were bound to any master before.
    BoundToAnyMaster,
    /// A member with damaged rows fills another member with its other rows.
    DamagedFills,
    /// A member with damaged rows offers itself as leader.
    DamagedLeads,
    /// A member applies other rows than the others: well-formed, and wrong.
    RowMisapplied,
    /// A member whose log may have lost its end votes at once.
    SuspectVotes,
}

impl Bug {
    pub const ALL: [Bug; 45] = [
        Bug::AckBeforeAll,
        Bug::StaleEpochAccepted,
        Bug::SkippedFsync,
        Bug::ChecksumUnchecked,
        Bug::InSyncBeforeCompare,
        Bug::ForgottenFence,
        Bug::RecallNotAwaited,
        Bug::CacheFillRace,
        Bug::InheritedLeasesForgotten,
        Bug::HeldRowsNotRecalled,
        Bug::RenewedWithoutLease,
        Bug::LeaseStretched,
        Bug::RepliesForgotten,
        Bug::EndedSessionPublishes,
        Bug::LiveSessionReaped,
        Bug::GcWithoutGrace,
        Bug::HangUpGivesUp,
        Bug::ReplaysForgotten,
        Bug::UnsettledShown,
        Bug::RecallWithoutDeadline,
        Bug::DelegationIgnored,
        Bug::CallsForgotten,
        Bug::UnknownAnswered,
        Bug::RefusalsForgotten,
        Bug::BaseIgnored,
        Bug::VoteForgotten,
        Bug::SeenVoteGranted,
        Bug::FormerLeaseIgnored,
        Bug::LeaseFromAnswer,
        Bug::CommitBeforeMajority,
        Bug::ReadBeforeTerm,
        Bug::NewerEntriesDropped,
        Bug::LostLeaseServes,
        Bug::WaitFromLastHeard,
        Bug::LeaseByWallClock,
        Bug::FormerNotTold,
        Bug::OverwrittenIsEmpty,
        Bug::OldFileCountedOn,
        Bug::GapSent,
        Bug::BoundLeaseIgnored,
        Bug::BoundToAnyMaster,
        Bug::DamagedFills,
        Bug::DamagedLeads,
        Bug::RowMisapplied,
        Bug::SuspectVotes,
    ];
}

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug, or none, in all code that runs on this thread.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use chosen::{is_planted, plant};

/// Returns whether the bug is planted: never, without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_: Bug) -> bool {
    false
}

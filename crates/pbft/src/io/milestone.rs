//! Events inside a replica, as data: milestones, and the reasons for rejecting messages. Traces, checkers, metrics
//! and tests read only these.

use quorate_wire::Digest;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::SuspectReason;

/// Events inside a replica, for traces, checkers, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// A proposal was accepted, or made.
    PrePrepared {
        /// The number.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
    },
    /// The predicate prepared holds [OSDI99 §4.2].
    Prepared {
        /// The number.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
    },
    /// The predicate committed-local holds [OSDI99 §4.2].
    Committed {
        /// The number.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
    },
    /// A batch was executed.
    Executed {
        /// The number.
        seq: SeqNum,
        /// Into an overlay.
        tentative: bool,
    },
    /// The overlay of a tentative batch was dropped (TE-4).
    RolledBack {
        /// The batch.
        seq: SeqNum,
    },
    /// A checkpoint was taken.
    CheckpointTaken {
        /// The number.
        seq: SeqNum,
        /// The root.
        root: Digest,
    },
    /// A checkpoint is stable: the low water mark.
    Stable {
        /// The number.
        seq: SeqNum,
        /// The root.
        root: Digest,
    },
    /// This replica wishes to leave the view.
    Suspected {
        /// The view.
        view: ViewNum,
        /// Why.
        reason: SuspectReason,
    },
    /// This replica has left for `view`.
    ViewChangeStarted {
        /// The view to enter.
        view: ViewNum,
    },
    /// As the new primary it has decided.
    NewViewMade {
        /// The view.
        view: ViewNum,
    },
    /// Normal operation in `view`.
    ViewEntered {
        /// The view.
        view: ViewNum,
        /// The last number that the view took over from those before it.
        last: SeqNum,
    },
    /// State transfer has begun.
    TransferStarted {
        /// The target.
        seq: SeqNum,
    },
    /// State transfer is complete.
    TransferFinished {
        /// The checkpoint.
        seq: SeqNum,
    },
    /// It has started again from its disk.
    Restarted {
        /// How often it has started.
        incarnation: u64,
    },
    /// It has lost its memory and begins to rejoin (spec §14.4); or has found, while it did, that the others
    /// knew of later starts. Its driver keeps this count of starts, and that there is no memory.
    RejoinStarted {
        /// How often it has started, at least.
        incarnation: u64,
    },
    /// It has rejoined: it votes again (RC-9).
    Rejoined {
        /// The stable checkpoint that ended the recovery.
        seq: SeqNum,
    },
    /// Its state differs from the one that a quorum certified (CK-6).
    Diverged {
        /// The checkpoint.
        seq: SeqNum,
    },
    /// No digest can gather a quorum any more: the service is not deterministic, or more than `f`
    /// replicas are faulty (CK-6).
    Unrepairable {
        /// The checkpoint.
        seq: SeqNum,
    },
    /// A read-only request was executed on the read-only path.
    ReadServed {
        /// The client.
        client: ClientId,
    },
    /// A read-only request waits for a commit or for the barrier (RO-2, RO-4).
    ReadQueued {
        /// The client.
        client: ClientId,
    },
    /// The service would not answer a read-only request without ordering it.
    ReadRefused {
        /// The client.
        client: ClientId,
    },
    /// A client has lost its standing: it has to sign (AU-5).
    OnProbation {
        /// The client.
        client: ClientId,
    },
    /// A batch that was asked for has come, or one was taken over from another replica.
    BatchFetched {
        /// The batch.
        digest: Digest,
    },
    /// Two authentic statements that exclude one another (for example two digests for one number).
    Equivocation {
        /// The replica that made them.
        by: ReplicaId,
    },
    /// Another replica has other settings than this one, of those that all must have alike: what looks like a lie of
    /// its may come from that.
    SettingsDiffer {
        /// Whose.
        of: ReplicaId,
    },
    /// The primary proposed a null batch (PR-6).
    NullProposed {
        /// The number.
        seq: SeqNum,
    },
    /// A message was rejected.
    Rejected(Reject),
}

/// Declares [`Reject`] with its names.
macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a message was rejected by the protocol. Never a reason to panic.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reject { $($(#[$doc])* $name,)* }

        impl Reject {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name used in traces, metrics and scenarios.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

rejects! {
    /// It is of a view that this replica is not in (PP-1, PC-1).
    OtherView = "other-view",
    /// Only the view's primary may send it (PP-1).
    NotFromPrimary = "not-from-primary",
    /// The primary may not send it: its pre-prepare counts as its prepare (PC-1).
    FromPrimary = "from-primary",
    /// The sender may not send this kind (a client, or this replica itself, CR-4).
    WrongSender = "wrong-sender",
    /// The number is outside of the water marks [OSDI99 §4.2].
    OutsideWatermarks = "outside-watermarks",
    /// The number was fixed by the NEW-VIEW (PP-2).
    FixedByNewView = "fixed-by-new-view",
    /// A different digest was accepted for the same view and number (PP-3).
    Conflicts = "conflicts",
    /// The same statement again.
    Duplicate = "duplicate",
    /// The batch names a request twice (PP-4).
    DuplicateRequest = "duplicate-request",
    /// The batch orders a request that its client sent as a read (RO-1).
    OrderedRead = "ordered-read",
    /// A request in the batch is not authentic here (PP-5).
    UnprovenRequest = "unproven-request",
    /// The primary's choice is out of bounds (PP-6, ND-2).
    BadChoice = "bad-choice",
    /// A null batch where none may be (PR-6).
    NullBatch = "null-batch",
    /// In a view change, only what concerns it is handled (spec §11.3).
    NotNormal = "not-normal",
    /// The client's timestamp is older than its last one (EX-2).
    OldTimestamp = "old-timestamp",
    /// The client already has another request under this timestamp (CL-4, SR-5).
    SameTimestamp = "same-timestamp",
    /// The client must sign and did not (AU-5).
    OnProbation = "on-probation",
    /// The client's signature is wrong (AU-1).
    BadSignature = "bad-signature",
    /// The client was proven faulty here (AU-1).
    Blacklisted = "blacklisted",
    /// More is asked or offered than there is room for.
    OverQuota = "over-quota",
    /// A read-only request that is being transferred, or waits behind the barrier with no room left (RO-3).
    ReadNotServed = "read-not-served",
    /// A status older than one seen: a replay.
    OldStatus = "old-status",
    /// Asked again too soon (SM-2).
    TooSoon = "too-soon",
    /// A body that was not requested or needed.
    Unwanted = "unwanted",
    /// A VIEW-CHANGE breaks a rule of its form (VC-5).
    BadViewChange = "bad-view-change",
    /// A LeaveCert is missing or proves nothing (LV-2).
    BadLeaveCert = "bad-leave-cert",
    /// A NEW-VIEW breaks a rule (VV-1, VV-4).
    BadNewView = "bad-new-view",
    /// A second, different VIEW-CHANGE or NEW-VIEW of one sender for one view (VC-6).
    SecondVersion = "second-version",
    /// A checkpoint whose number is not one (CK-1).
    NotACheckpoint = "not-a-checkpoint",
    /// An answer to another question (RC-4).
    WrongNonce = "wrong-nonce",
    /// Out of the bounds of a recovering replica (RC-5, §14.4).
    Recovering = "recovering",
    /// An incarnation older than one seen: an old disk was put back (§14.3).
    OldIncarnation = "old-incarnation",
    /// A VIEW-CHANGE of a life of its sender's that has ended (RC-11).
    EndedLife = "ended-life",
    /// A VIEW-CHANGE of a life that the state executed here does not know yet (RC-11).
    LaterLife = "later-life",
}

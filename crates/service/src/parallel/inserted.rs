//! What a driver of parallel runs keeps of each unsettled request, and of each unsettled batch.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::batch::Ordered;
use quorate_wire::{ClientId, Digest, SeqNum, Timestamp};

use crate::executor::Ran;
use crate::parallel::parallelizer::Position;
use crate::service::Effort;
use crate::state::cell::{Cell, Seen};

/// A request that was inserted and has not settled.
#[derive(Debug)]
pub(super) struct Inserted {
    pub(super) position: Position,
    pub(super) client: ClientId,
    pub(super) timestamp: Timestamp,
    pub(super) digest: Digest,
    pub(super) replier: Option<u16>,
    pub(super) time_ns: u64,
    pub(super) operation: Arc<[u8]>,
    pub(super) effort: Effort,
    /// Its lane was in the client table when the request was inserted.
    pub(super) has_lane: bool,
    /// The request can run on pages only.
    pub(super) barrier: bool,
    /// Nothing but a wrong rule can give another result at settling: the time is known, and there is room.
    pub(super) is_certain: bool,
    pub(super) cost: u64,
    pub(super) status: Status,
}

impl Inserted {
    /// Returns the request as its batch has it.
    pub(super) fn ordered(&self) -> Ordered<'_> {
        let &Self { client, timestamp, digest, replier, ref operation, .. } = self;
        Ordered { client, timestamp, digest, replier, operation }
    }
}

/// How far a request has come.
#[derive(Debug)]
pub(super) enum Status {
    Waiting,
    Running,
    /// It waits for its turn, to run on pages.
    OnPages,
    Ran {
        ran: Ran,
        reads: Vec<(Cell, Seen)>,
        has_replied: bool,
    },
}

/// A batch that was inserted and has not settled.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) seq: SeqNum,
    /// The value that the primary has proposed with it (ND-1).
    pub(super) choice: Vec<u8>,
    pub(super) requests: u32,
    pub(super) settled: u32,
    pub(super) time_ns: Option<u64>,
}

/// Returns what tells an unsettled request from all others.
pub(super) fn low_half(ordinal: u64) -> u32 {
    u32::try_from(ordinal & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Returns the place of a request that is this far behind the oldest.
pub(super) fn at(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}

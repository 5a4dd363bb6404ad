//! The one request of a lane.

use quorate_wire::{Digest, Timestamp};

use super::step::{Members, Path};

/// The request that waits for its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub(super) timestamp: Timestamp,
    /// Of client, timestamp and operation.
    pub(super) digest: Digest,
    pub(super) path: Path,
    /// Retransmissions under this timestamp.
    pub(super) resent: u32,
    /// Retransmissions of the operation, under whatever timestamp.
    pub(super) retransmissions: u32,
    /// Those among them since somebody was answered: each doubles the wait.
    pub(super) waits: u32,
    /// Who has been asked; nobody while it is held.
    pub(super) asked: Members,
    /// Not all were asked at first, and the others had to be.
    pub(super) asked_rest: bool,
    /// When it was sent last, in nanoseconds of the monotonic clock.
    pub(super) sent_ns: u64,
    /// When it was sent first, or could have been if keys had been there.
    pub(super) asked_ns: u64,
    /// It carries a signature, and so do its retransmissions.
    pub(super) signed: bool,
    /// It does because it found no answer without.
    pub(super) had_to_sign: bool,
}

impl Outstanding {
    /// Returns whether it has not left yet, because too few replicas could check it (CL-11).
    pub(super) fn is_held(&self) -> bool {
        self.asked == Members::default()
    }
}

//! What a process counts.

use alloc::collections::BTreeMap;

use quorate_service::parallel::Counters as Runs;

/// Counters of messages. Bounded: one entry for each reason.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames sealed or forwarded, each counted once for all receivers.
    pub sent: u64,
    /// Frames that were too long to be sent.
    pub too_long: u64,
    /// Frames for a principal without a known place.
    pub nowhere: u64,
    /// Frames rejected by the authenticator, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Views left.
    pub view_changes: u64,
    /// Requests executed, including undone ones.
    pub requests: u64,
    /// Messages rejected by the protocol, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// What workers did.
    pub runs: Runs,
}

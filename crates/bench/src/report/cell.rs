//! The figures of one cell of a register without a leader.

use serde::{Deserialize, Serialize};

/// What a cell measured (§12 of `docs/quorum/cells.md`). Latencies are in the unit of the row's samples, shares in percent of the
/// measured operations; messages, bytes and signatures are those of all processes for each operation of all clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The register.
    pub protocol: String,
    /// The variant of its protocol, or how replication reads.
    pub variant: String,
    /// Faulty servers.
    pub b: u16,
    /// What they do.
    pub profile: String,
    /// The network and the processors.
    pub model: String,
    /// `own`: each process has a machine; 5: all share five.
    #[serde(default)]
    pub machines: String,
    /// On emulated machines, how late jobs ended, in microseconds: the mean and the 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_us: Option<(f64, f64)>,
    /// Readers beside the measured client.
    pub readers: u16,
    /// Mean latency.
    pub mean: f64,
    /// Its standard deviation.
    pub deviation: f64,
    /// Half of the 95 % interval of the mean.
    pub interval95: f64,
    /// Operations without an extra phase; of replication, reads that were not ordered.
    pub fast: f64,
    /// Reads that wrote back.
    pub write_back: f64,
    /// Reads for which a forwarded store arrived.
    pub listener_any: f64,
    /// Reads that a forwarded store decided.
    pub listener_needed: f64,
    /// Writes in two phases.
    pub two_phase: f64,
    /// Messages beyond those of an undisturbed operation: VALs received above n for each read of MINIMAL, and messages of
    /// write-backs (§12).
    #[serde(default)]
    pub extra_msgs: f64,
    /// Messages.
    pub messages: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Signatures made.
    pub signatures: f64,
    /// Signatures verified.
    pub verifications: f64,
    /// Operations of all clients.
    pub operations: usize,
    /// The checkers found the history atomic.
    pub atomic: bool,
}

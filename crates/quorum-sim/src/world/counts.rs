//! What a run counted, and how it ended.

/// What a run counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Messages that were delivered.
    pub messages: u64,
    /// Messages that were lost.
    pub lost: u64,
    /// Messages dropped by their counter.
    pub replays: u64,
    /// Messages that a process rejected.
    pub rejects: u64,
    /// Operations that ended well.
    pub done: u64,
    /// Reads that wrote back.
    pub write_backs: u64,
    /// Reads that a forwarded store decided.
    pub listeners: u64,
    /// Writes in two phases.
    pub two_phases: u64,
    /// Crashes with a restart.
    pub restarts: u64,
    /// Disks lost.
    pub wipes: u64,
    /// Clients stopped.
    pub stops: u64,
    /// Writes of good clients that servers refused.
    pub refused: u64,
    /// Accusations of faulty processes (§15).
    pub accusations: u64,
    /// Those that clients found.
    pub found_by_clients: u64,
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every good operation ended.
    Complete,
    /// Some good operations never end.
    Hung(Vec<String>),
    /// Something is wrong that no history shows.
    Wrong(String),
}

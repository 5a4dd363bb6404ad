//! The kinds of faults of the swarm.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A host crashes and starts again a while later (H1).
    Crash,
    /// `f + 1` hosts crash, or all of them at once (H9, H10).
    CrashMany,
    /// A process is stopped for a while (H2).
    Pause,
    /// The nodes fall apart into groups (N7).
    Partition,
    /// Some links are cut in one direction, on and off (N6).
    OneWay,
    /// A replica is cut off.
    Isolate,
    /// Everyone sees one replica only.
    Star,
    /// Frames are lost, doubled, held back and damaged more than usual (N1-N4).
    Storm,
    /// Links hold everything back, then deliver it at once.
    Clog,
    /// Links are slow in one direction (N8).
    Slow,
    /// A disk is slow, or full for a while, or fails a sync (H5, H11).
    BadDisk,
    /// A disk is lost (H6).
    Wipe,
    /// Something on a disk is damaged (H4, H5).
    Damage,
    /// An old disk is put back (H7).
    OldDisk,
    /// A clock jumps or drifts (H8).
    Clock,
    /// A page of the state is damaged in memory (B21).
    DamageState,
    /// The keys of a replica are renewed.
    NewKeys,
    /// A few frames of one kind are held back, for long.
    Hold,
    /// The frames of one kind, or about some numbers, come late.
    Late,
    /// A replica leaves its view alone, what it says of that is held back, and it loses its disk.
    LeftAlone,
    /// A correct replica lies from now on.
    Turn,
    /// A liar is cleaned.
    Cleanse,
}

impl FaultKind {
    /// How many of [`Self::ALL`] the plain swarm draws from: those that were there first.
    pub const PLAIN: usize = 17;
    /// Every kind.
    pub const ALL: [Self; 22] = [
        Self::Crash,
        Self::CrashMany,
        Self::Pause,
        Self::Partition,
        Self::OneWay,
        Self::Isolate,
        Self::Star,
        Self::Storm,
        Self::Clog,
        Self::Slow,
        Self::BadDisk,
        Self::Wipe,
        Self::Damage,
        Self::OldDisk,
        Self::Clock,
        Self::DamageState,
        Self::NewKeys,
        Self::Hold,
        Self::Late,
        Self::LeftAlone,
        Self::Turn,
        Self::Cleanse,
    ];
}

/// What follows from a fault, some time later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The network of this host is whole again, but for what is held; then it loses its disk.
    WipeAfterCut,
    /// It loses its disk.
    Wipe,
}

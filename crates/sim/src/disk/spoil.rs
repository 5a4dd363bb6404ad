//! The kinds of damage to a disk, and what they change.

/// Damage to a disk after everything was durable (H4, H5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit of a commit flips.
    BitRot,
    /// A commit reads as zeros.
    Zeroed,
    /// A commit was written over another one.
    Misdirected,
    /// A segment that was reported to be durable is not there.
    Lost,
    /// A page of the state no longer has its digest.
    ImageRot,
}

impl Damage {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::BitRot, Self::Zeroed, Self::Misdirected, Self::Lost, Self::ImageRot];
}

/// What something other than a crash has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spoiled {
    /// The log, or the count of starts.
    pub log: bool,
    /// The pages.
    pub pages: bool,
}

impl Spoiled {
    /// Everything.
    pub const ALL: Self = Self { log: true, pages: true };
}

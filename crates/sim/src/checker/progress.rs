//! After the faults: does everything finish, and do all correct replicas reach one view (I23, I24)? If not, why.

use quorate_wire::{SeqNum, ViewNum};

use super::facts::Facts;

/// What a run still waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Requests are outstanding.
    Requests {
        /// How many.
        count: usize,
        /// The oldest, in words.
        oldest: String,
    },
    /// A client has accepted a result of `q` tentative replies, and the batch does not commit.
    Tentative,
    /// A correct replica waits for a NEW-VIEW.
    Changing(String),
    /// Correct replicas are in different views.
    Views {
        /// The lowest.
        low: ViewNum,
        /// The highest.
        high: ViewNum,
    },
    /// A correct replica is more than a window behind.
    Behind {
        /// The least executed.
        low: SeqNum,
        /// The most executed.
        high: SeqNum,
    },
    /// A replica that lost its memory has not rejoined.
    Rejoining(String),
    /// A replica's state is known to be wrong, or is being fetched.
    Fetching(String),
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requests { count, oldest } => {
                write!(f, "{count} requests are outstanding, such as {oldest}")
            }
            Self::Tentative => write!(f, "a result was accepted, and its batch does not commit"),
            Self::Changing(who) => write!(f, "{who} waits for a NEW-VIEW"),
            Self::Views { low, high } => {
                write!(f, "correct replicas are in different views, {} to {}", low.0, high.0)
            }
            Self::Behind { low, high } => {
                write!(f, "a correct replica has executed n={}, another n={}", low.0, high.0)
            }
            Self::Rejoining(who) => write!(f, "{who} lost its memory and has not rejoined"),
            Self::Fetching(who) => write!(f, "{who} still fetches state"),
        }
    }
}

/// Describes what is still open among the replicas of `core`, all correct and connected.
pub fn open<'a>(core: impl Iterator<Item = &'a Facts> + Clone, window: u64) -> Option<Stuck> {
    for facts in core.clone() {
        let who = || facts.id.to_string();
        if !facts.remembers {
            return Some(Stuck::Rejoining(who()));
        }
        if facts.transferring || facts.diverged {
            return Some(Stuck::Fetching(who()));
        }
        if !facts.normal {
            return Some(Stuck::Changing(who()));
        }
    }
    let (low, high) = (core.clone().map(|f| f.view).min()?, core.clone().map(|f| f.view).max()?);
    if low != high {
        return Some(Stuck::Views { low, high });
    }
    let (low, high) = (core.clone().map(|f| f.executed).min()?, core.map(|f| f.executed).max()?);
    (high.0 - low.0 > window).then_some(Stuck::Behind { low, high })
}

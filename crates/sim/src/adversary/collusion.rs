//! Liars that help one another: at n = 7 two are faulty, and what one says makes the other's lie worth more. They
//! need no channel of their own: each does its part whenever it can.

use super::backup::{BadViewChange, LyingViewChange, PartialAuthenticators, VoteTwice};
use super::noise::Complain;
use super::plausible::{EagerProof, PrivateProof, StaleReader, TwoFaced};
use super::primary::{BadNewView, EquivocateToHalves, LyingNewView};
use crate::adversary::maker::LiarMaker;

/// Two liars that help one another.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Its name.
    pub name: &'static str,
    make: fn() -> [LiarMaker; 2],
}

impl Pair {
    /// Returns makers of both. The first is at its worst as a primary.
    pub fn makers(&self) -> [LiarMaker; 2] {
        (self.make)()
    }
}

macro_rules! pairs {
    ($($name:literal: $a:expr, $b:expr;)*) => {
        /// Every pair.
        pub const PAIRS: &[Pair] =
            &[$(Pair { name: $name, make: || [LiarMaker::new(|| $a), LiarMaker::new(|| $b)] },)*];
    };
}

pairs! {
    "equivocate and two-faced": EquivocateToHalves, TwoFaced::default();
    "two-faced both": TwoFaced::default(), TwoFaced::default();
    "false P and private proof": LyingViewChange(BadViewChange::Later), PrivateProof::default();
    "hidden P and private proof": LyingViewChange(BadViewChange::Hidden), PrivateProof::default();
    "partial and complain": PartialAuthenticators { wrong: 1 }, Complain;
    "new view and two-faced": LyingNewView(BadNewView::Two), TwoFaced::default();
    "eager proof both": EagerProof, EagerProof;
    "stale reads both": StaleReader::default(), StaleReader::default();
    "two-faced and votes twice": TwoFaced::default(), VoteTwice;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_a_name_of_its_own() {
        for (i, pair) in PAIRS.iter().enumerate() {
            assert!(PAIRS[..i].iter().all(|other| other.name != pair.name), "{}", pair.name);
            assert!(pair.makers().iter().all(|maker| !format!("{maker:?}").is_empty()));
        }
    }
}

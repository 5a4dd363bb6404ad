//! All Byzantine behaviours by name, for the swarm to draw from and for commands to select.

use super::backup::{
    BadViewChange, LyingCheckpoint, LyingReplies, LyingState, LyingViewChange, Mute, PartialAuthenticators,
    Reflect, Replay, Unhelpful, VoteTwice, VoteUnseen,
};
use super::collector::BadCollector;
use super::mutate::Mutate;
use super::noise::{Complain, OutOfRole, Reborn, StatusFlood, ViewStorm};
use super::plausible::{EagerProof, PrivateProof, StaleReader, TwoFaced};
use super::primary::{
    BadChoice, BadNewView, Censor, DelayProposals, EquivocateToEach, EquivocateToHalves, ExhaustNumbers,
    LeaveHoles, LyingNewView, OrderReads, Oversize, PhantomBodies, ProposeInVain, ProposeToOne, ProposeTwice,
    ReplayBatch, SilentPrimary, StuffBatches, Unfair, WithholdFromSome,
};
use super::sly::{ForgedTree, OldStatus, SwingingChoice};
use crate::adversary::maker::{CLUSTER_ID, LiarMaker};
use quorate_wire::digest::Domains;

/// A liar by name, with the faults that it stands for.
#[derive(Clone, Copy, Debug)]
pub struct RosterEntry {
    /// Its name.
    pub name: &'static str,
    /// The keys of `docs/faults.md`.
    pub keys: &'static [&'static str],
    make: fn() -> LiarMaker,
}

impl RosterEntry {
    /// Returns a maker of this liar.
    pub fn maker(&self) -> LiarMaker {
        (self.make)()
    }
}

/// Returns the liar of this name.
pub fn find(name: &str) -> Option<&'static RosterEntry> {
    ROSTER.iter().find(|entry| entry.name == name)
}

/// Those of the roster that the plain swarm does not know.
const NEW: [&str; 11] = [
    "stale-reader",
    "eager-proof",
    "two-faced",
    "private-proof",
    "propose-in-vain",
    "collect-silent",
    "collect-spoil",
    "swinging-choice",
    "old-status",
    "forged-tree",
    "reborn",
];

/// Returns those that were there first, in their order: what the plain swarm draws from.
pub fn plain() -> Vec<RosterEntry> {
    ROSTER.iter().filter(|entry| !NEW.contains(&entry.name)).copied().collect()
}

macro_rules! roster {
    ($($name:literal, $keys:expr, $make:expr;)*) => {
        /// Every liar.
        pub const ROSTER: &[RosterEntry] = &[$(RosterEntry { name: $name, keys: &$keys, make: || LiarMaker::new(|| $make) },)*];
    };
}

roster! {
    "equivocate", ["P1"], EquivocateToHalves;
    "equivocate-each", ["P2"], EquivocateToEach;
    "propose-twice", ["P3"], ProposeTwice;
    "holes", ["P4"], LeaveHoles;
    "exhaust", ["P5"], ExhaustNumbers;
    "withhold", ["P6"], WithholdFromSome;
    "censor", ["P7"], Censor { upto: 1 };
    "delay", ["P8"], DelayProposals;
    "unfair", ["P9"], Unfair::default();
    "stuff", ["P10"], StuffBatches::default();
    "order-reads", ["P10"], OrderReads::default();
    "replay-batch", ["P11"], ReplayBatch::default();
    "phantom", ["P12"], PhantomBodies::default();
    "bad-choice", ["P13"], BadChoice;
    "new-view-few", ["P14"], LyingNewView(BadNewView::TooFew);
    "new-view-forged", ["P14"], LyingNewView(BadNewView::Forged);
    "new-view-drops", ["P15"], LyingNewView(BadNewView::Drops);
    "new-view-short", ["P15"], LyingNewView(BadNewView::Shortened);
    "new-view-two", ["P16"], LyingNewView(BadNewView::Two);
    "new-view-checkpoint", ["P14"], LyingNewView(BadNewView::WrongCheckpoint);
    "new-view-invented", ["P14"], LyingNewView(BadNewView::Invented);
    "oversize", ["P17"], Oversize;
    "silent-primary", ["P7"], SilentPrimary;
    "propose-to-one", ["P6"], ProposeToOne::default();
    "vote-twice", ["K1"], VoteTwice;
    "vote-unseen", ["K2", "K3", "K4"], VoteUnseen::default();
    "complain", ["K1"], Complain;
    "out-of-role", ["K4"], OutOfRole::default();
    "mute", ["K5"], Mute { answers_below: 0 };
    "half-mute", ["K5"], Mute { answers_below: 2 };
    "vc-forged", ["K6"], LyingViewChange(BadViewChange::Forged);
    "vc-later", ["K6"], LyingViewChange(BadViewChange::Later);
    "vc-hidden", ["K8"], LyingViewChange(BadViewChange::Hidden);
    "vc-stale", ["K6"], LyingViewChange(BadViewChange::Stale);
    "vc-checkpoint", ["K6", "K9"], LyingViewChange(BadViewChange::Checkpoint);
    "vc-to-few", ["K6"], LyingViewChange(BadViewChange::ToFew);
    "vc-two", ["K6"], LyingViewChange(BadViewChange::Two);
    "view-storm", ["K7"], ViewStorm::default();
    "checkpoint", ["K9"], LyingCheckpoint { future: false };
    "checkpoint-future", ["K10"], LyingCheckpoint { future: true };
    "replies", ["K11", "K12"], LyingReplies;
    "state", ["K13"], LyingState::default();
    "status-flood", ["K14"], StatusFlood::default();
    "partial", ["K15"], PartialAuthenticators { wrong: 1 };
    "partial-two", ["K15"], PartialAuthenticators { wrong: 3 };
    "replay", ["K16"], Replay::default();
    "reflect", ["K17"], Reflect::default();
    "unhelpful", ["K5"], Unhelpful;
    "mutate", ["K1", "K4", "K6"], Mutate::new(4);
    "stale-reader", ["K11"], StaleReader::default();
    "eager-proof", ["K9"], EagerProof;
    "two-faced", ["K1", "P1"], TwoFaced::default();
    "private-proof", ["K8"], PrivateProof::default();
    "mutate-much", ["K1", "K4", "K6"], Mutate::new(1);
    "propose-in-vain", ["P7"], ProposeInVain::default();
    "collect-silent", ["K5"], BadCollector::silent();
    "collect-spoil", ["K11"], BadCollector::spoiling();
    "swinging-choice", ["P13"], SwingingChoice;
    "old-status", ["P7"], OldStatus::default();
    "forged-tree", ["K13"], ForgedTree::new(Domains::new(CLUSTER_ID));
    "reborn", ["K14"], Reborn::default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_liar_has_a_name_of_its_own() {
        for (i, entry) in ROSTER.iter().enumerate() {
            assert!(ROSTER[..i].iter().all(|other| other.name != entry.name), "{}", entry.name);
            assert!(!entry.keys.is_empty());
            assert!(!format!("{:?}", entry.maker()).is_empty());
        }
        assert!(find("equivocate").is_some() && find("nobody").is_none());
    }
}

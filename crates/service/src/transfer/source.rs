//! Answers to other replicas' state transfers: the serving side of spec §9.
//!
//! Only complete checkpoints are served (ST-7). A request is answered immediately or not at all: for each peer only
//! the numbers of its last requests are kept.

use alloc::vec::Vec;

use quorate_wire::message::{Data, Fetch, MetaData};
use quorate_wire::{Kind, ReplicaId, SeqNum};

use crate::page::PageStore;
use crate::state::State;
use crate::state::tree::{BRANCHING, Label};
use crate::transfer::step::{Refusal, Steps};

/// Numbers of a peer's questions that are remembered: more than it has in progress.
const SEEN: u64 = 1024;
/// Maximum number of answers to one peer in each [`TURN_NS`]: more than a correct one asks, for it may ask in bursts.
const ANSWERS_MAX: u32 = 256;
/// The time over which a peer's questions are counted, in nanoseconds.
const TURN_NS: u64 = 10_000_000;
/// The numbers of a peer's questions rise by no more than this between two that come.
const JUMP_MAX: u64 = 1 << 32;
/// A number out of that order begins another order, so often at most, in nanoseconds: its sender has started again, or
/// says the truth again. A replay has the same effect, and costs one answer in this time.
const ORDER_NS: u64 = 1_000_000_000;
/// A peer that has asked for no part of a checkpoint for so long has it, or fetches another, in nanoseconds.
const GIVEN_NS: u64 = 1_000_000_000;

/// What is known of the peers' questions. At most one entry a replica.
#[derive(Debug, Default)]
pub(super) struct Source {
    peers: Vec<PeerQuota>,
}

/// The questions of one peer.
#[derive(Clone, Copy, Debug, Default)]
struct PeerQuota {
    /// The highest number seen, and when the order that it belongs to began.
    newest: u64,
    began_ns: Option<u64>,
    /// A bit for each of the last [`SEEN`] numbers, in a ring: it has been seen. So questions in flight
    /// together may overtake each other, and none is answered twice.
    seen: [u64; 16],
    turn: u64,
    answers: u32,
    /// The checkpoint that it was last given a part of, and when.
    given: SeqNum,
    given_ns: u64,
}

impl Source {
    /// Answers another replica's FETCH, or not at all. `state`: none if the checkpoint is known to be wrong here.
    pub(super) fn on_fetch<P: PageStore>(
        &mut self,
        now_ns: u64,
        from: ReplicaId,
        question: &Fetch,
        state: Option<&State<P>>,
        steps: &mut Steps,
    ) {
        if self.peers.len() <= from.index() {
            self.peers.resize(from.index() + 1, PeerQuota::default());
        }
        let quota = &mut self.peers[from.index()];
        if !quota.is_new(now_ns, question.rid) {
            return steps.refuse(from, Refusal::Replay);
        }
        if !quota.has_room(now_ns) {
            return steps.refuse(from, Refusal::TooMany);
        }
        if state.and_then(|state| answer(state, from, question, steps)).is_none() {
            return steps.refuse(from, Refusal::NotHeld);
        }
        (quota.given, quota.given_ns) = (question.checkpoint, now_ns);
    }

    /// Returns the lowest of `held`, checkpoints in their order, that a peer is fetching.
    pub(super) fn lowest(&self, now_ns: u64, held: impl Iterator<Item = SeqNum>) -> Option<SeqNum> {
        let mut held = held;
        let fetches =
            |peer: &PeerQuota, seq| peer.given == seq && now_ns < peer.given_ns.saturating_add(GIVEN_NS);
        held.find(|seq| self.peers.iter().any(|peer| fetches(peer, *seq)))
    }
}

impl PeerQuota {
    /// Notes a question's number. Says whether it is new.
    fn is_new(&mut self, now_ns: u64, rid: u64) -> bool {
        let passed = self.newest >= rid.saturating_add(SEEN);
        if passed && mutant!(M110, false, true) {
            return false;
        }
        if passed || mutant!(M110, rid > self.newest.saturating_add(JUMP_MAX), false) {
            if self.began_ns.is_some_and(|began| now_ns < began.saturating_add(ORDER_NS)) {
                return false;
            }
            (self.newest, self.seen, self.began_ns) = (rid, [0; 16], Some(now_ns));
        } else if rid > self.newest {
            self.began_ns.get_or_insert(now_ns);
            for passed in (self.newest + 1..=rid).take(usize::try_from(SEEN).unwrap_or(0)) {
                let (word, bit) = self.bit(passed);
                *word &= !bit;
            }
            self.newest = rid;
        }
        let (word, bit) = self.bit(rid);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn bit(&mut self, rid: u64) -> (&mut u64, u64) {
        let at = usize::try_from(rid % SEEN).unwrap_or(0);
        (&mut self.seen[at / 64], 1 << (at % 64))
    }

    /// Counts an answer. Returns whether there may be one.
    fn has_room(&mut self, now_ns: u64) -> bool {
        let turn = now_ns / TURN_NS;
        if turn != self.turn {
            (self.turn, self.answers) = (turn, 0);
        }
        self.answers += 1;
        self.answers <= ANSWERS_MAX
    }
}

/// Answers a question from a complete checkpoint (ST-7); none if that is not held.
fn answer<P: PageStore>(state: &State<P>, to: ReplicaId, question: &Fetch, steps: &mut Steps) -> Option<()> {
    let seq = question.checkpoint;
    state.root_at(seq)?;
    let index = u32::try_from(question.index).ok()?;
    let label = state.label_at(seq, question.level, index);
    let mut buffer = Vec::new();
    if question.level == 0 {
        let page = state.page_at(seq, index, &mut buffer)?;
        let answer = Data { rid: question.rid, index: question.index, modified: label.modified, page };
        steps.answer(to, Kind::Data, |out| answer.encode(out));
        return Some(());
    }
    if question.level > state.tree().height() || label.is_empty() {
        return None;
    }
    let mut children = [Label::EMPTY; BRANCHING as usize];
    for (at, child) in (0..).zip(&mut children) {
        *child = state.label_at(seq, question.level - 1, index.checked_mul(BRANCHING)?.checked_add(at)?);
    }
    let used = children.iter().rposition(|child| !child.is_empty()).map_or(0, |last| last + 1);
    let children = children[..used].iter().map(|child| (child.modified, child.digest));
    steps.answer(to, Kind::MetaData, |out| MetaData::encode(question, label.modified, children, out));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-3: "responders ignore rid <= last seen", which here lets those in flight overtake each other.
    #[test]
    fn a_question_is_new_once() {
        let mut quota = PeerQuota::default();
        let at = 7 * ORDER_NS;
        for rid in [at + 5, at + 3, at + 70, at + 69, at + 7, at + 1200] {
            assert!(quota.is_new(at, rid), "{rid} is new");
            assert!(!quota.is_new(at, rid), "{rid} is a replay");
        }
        assert!(!quota.is_new(at, at + 176), "out of the window");
        assert!(quota.is_new(at, at + 177));
        assert!(!quota.is_new(at, at + 177));
        assert!(!quota.is_new(at, 0));
        assert!(quota.is_new(at, at + 1200 + SEEN));
        assert!(!quota.is_new(at, at + 1200));
    }

    /// ST-3: a peer that has once sent a number near 2^64, as a liar or by accident, is answered again.
    #[test]
    fn l17_a_number_far_ahead_is_no_end() {
        let mut quota = PeerQuota::default();
        let mut now = 5 * ORDER_NS;
        assert!(quota.is_new(now, 1000));
        assert!(!quota.is_new(now + 1, u64::MAX - 1), "no order begins twice in a second");
        now += ORDER_NS;
        assert!(quota.is_new(now, u64::MAX - 1));
        assert!(!quota.is_new(now + 1, 1001), "nor does the old one come back in that time");
        now += ORDER_NS;
        assert!(quota.is_new(now, 1001));
        assert!(!quota.is_new(now, 1001));
        assert!((1002..2000).all(|rid| quota.is_new(now, rid)));
    }

    #[test]
    fn a_peer_is_answered_so_often_and_no_more() {
        let mut quota = PeerQuota::default();
        let answered = (0..2 * ANSWERS_MAX).filter(|_| quota.has_room(TURN_NS + 1)).count();
        assert_eq!(answered, usize::try_from(ANSWERS_MAX).unwrap());
        assert!(quota.has_room(2 * TURN_NS));
    }
}

//! Selects which replicas a walk asks, how often, and which last, and rates their answers: which have lied, which do
//! not respond, how long an answer takes (ST-2, ST-3).

use quorate_wire::ReplicaId;
use quorate_wire::message::Fetch;

use super::{Asked, Partition, TURN_NS, WAIT_NS, Walk, WalkContext};
use crate::page::PageStore;
use crate::transfer::step::{Refusal, Step};

/// The assumed round-trip time before one was measured, in nanoseconds.
const ROUND_TRIP_NS: u64 = 10_000_000;
/// Maximum number of questions to one peer in `TURNS` turns: 10 MB/s from each, a gigabyte in 35 s from three, so that
/// the others have time for their clients. Not fewer turns: a replica that was off its core may still ask that much.
const ASKS_MAX: u32 = 100;
pub(super) const TURNS: u64 = 4;
/// The number of questions that a walk may ask in a hurry, in each turn. A short walk ends soon, and a replica that has
/// fetched nearly everything has to be faster than the changes of its clients.
const HURRIED_MAX: u64 = 4096;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ReplicaId,
    pub(super) outstanding: usize,
    /// The turn since which its questions are counted, and how many there were.
    turn: (u64, u32),
    /// It has lied: asked only when all others have lied too.
    lied: bool,
    /// Questions it left unanswered lately.
    pub(super) silent: usize,
    pub(super) round_trip_ns: u64,
}

impl Walk {
    /// Asks for a partition: who has lied least, kept silent least and has least to do, and not `but` if
    /// there is another. Returns whether there was anyone.
    pub(super) fn ask<P: PageStore>(
        &mut self,
        partition: Partition,
        but: Option<usize>,
        cx: &mut WalkContext<'_, P>,
    ) -> bool {
        let (rid, turn) = (*cx.next_rid, cx.now_ns / TURN_NS);
        let is_hurried = self.questions < HURRIED_MAX || self.is_hot(&partition);
        let turns = if is_hurried { 1 } else { TURNS };
        let count = self.peers.len();
        let start = usize::try_from(rid % 64).unwrap_or(0);
        let order = (0..count).map(|at| (at + start) % count);
        // A lying source is asked only when all others have lied too, not when the others are busy.
        let peers = &self.peers;
        let all_lied = peers.iter().all(|peer| peer.lied);
        let others = (0..count).any(|at| but != Some(at) && (all_lied || !peers[at].lied));
        let order = order.filter(|&at| {
            let (peer, is_it) = (&peers[at], but == Some(at));
            (peer.turn.1 < ASKS_MAX || turn.saturating_sub(peer.turn.0) >= turns)
                && (all_lied || !peer.lied)
                && !(is_it && others)
        });
        let Some(at) = order.min_by_key(|&at| peers[at].outstanding + 4 * peers[at].silent) else {
            return false;
        };
        *cx.next_rid += 1;
        self.questions += 1;
        let peer = &mut self.peers[at];
        peer.outstanding += 1;
        peer.turn =
            if turn.saturating_sub(peer.turn.0) < turns { (peer.turn.0, peer.turn.1 + 1) } else { (turn, 1) };
        let wait = (3 * peer.round_trip_ns) << partition.attempts.min(8);
        let due_ns = cx.now_ns.saturating_add(wait.clamp(WAIT_NS.0, WAIT_NS.1));
        let question =
            Fetch { rid, level: partition.level, index: u64::from(partition.index), checkpoint: self.seq };
        cx.steps.push(Step::Ask { to: peer.id, question });
        self.asked.push(Asked { rid, is_old: false, peer: at, partition, sent_ns: cx.now_ns, due_ns });
        true
    }

    /// Returns whether this is a page that has changed since the walk began.
    pub(super) fn is_hot(&self, partition: &Partition) -> bool {
        partition.level == 0 && self.first.is_some_and(|first| partition.label.modified > first)
    }

    /// Returns a page that has changed since the walk began, when nothing else is left to find.
    pub(super) fn last_of_all(&mut self) -> Option<Partition> {
        let finds = |asked: &Asked| !asked.is_old && asked.partition.level > 0;
        if self.asked.iter().any(finds) { None } else { self.hot.pop() }
    }

    /// Returns the question that an answer belongs to.
    pub(super) fn find(&self, from: ReplicaId, rid: u64, (level, index): (u8, u64)) -> Option<usize> {
        self.asked.iter().position(|asked| {
            let partition = &asked.partition;
            let about = (partition.level, u64::from(partition.index));
            asked.rid == rid && self.peers[asked.peer].id == from && about == (level, index)
        })
    }

    pub(super) fn on_truth<P>(&mut self, asked: &Asked, cx: &WalkContext<'_, P>) {
        let peer = &mut self.peers[asked.peer];
        peer.outstanding -= 1;
        peer.silent /= 2;
        let took = cx.now_ns.saturating_sub(asked.sent_ns).min(WAIT_NS.1);
        peer.round_trip_ns = (7 * peer.round_trip_ns + took) / 8;
    }

    pub(super) fn on_lie<P: PageStore>(&mut self, asked: &Asked, cx: &mut WalkContext<'_, P>) {
        let peer = &mut self.peers[asked.peer];
        peer.outstanding -= 1;
        peer.lied = true;
        cx.steps.refuse(peer.id, Refusal::Lie);
        if asked.is_old {
            return;
        }
        if !self.ask(asked.partition, Some(asked.peer), cx) {
            self.todo.push(asked.partition);
        }
    }

    /// Takes over a list of peers and keeps what is known of those in it.
    pub(super) fn set_peers(&mut self, peers: &[ReplicaId]) {
        for &id in peers {
            if self.peers.iter().all(|peer| peer.id != id) {
                let (outstanding, turn) = (0, (0, 0));
                let round_trip_ns = ROUND_TRIP_NS;
                let new = Peer { id, outstanding, turn, lied: false, silent: 0, round_trip_ns };
                self.peers.push(new);
            }
        }
    }
}

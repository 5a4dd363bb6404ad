//! The walk of a state transfer: down the digest tree from the certified root, asking for what differs
//! (ST-2).
//!
//! A partition whose digest is the one wanted needs no visit: the digest stands for all that is below.
//! Of the others the children are asked for, and of pages that differ the content. Every answer is
//! checked against a digest that chains to the root, so one correct replica that answers suffices,
//! however many lie (K13). Nothing is believed because several say it (B18).
//!
//! ```text
//!  todo: partitions to look at        asked: on their way, at most 32        staged: pages to install
//!  [root]  -- differs: FETCH -->  [root, r2, due 40 ms]  -- META-DATA fits -->  todo: children
//!  [page 7] -- differs: FETCH --> [page 7, r3, due 40 ms] -- DATA fits ------>  7 -> content
//! ```
//!
//! What has been staged is found again by its digest when the target moves (ST-4).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::message::{Data, Fetch, MetaData};
use quorate_wire::{Digest, ReplicaId, SeqNum};

use crate::pages::{PageStore, Pool};
use crate::state::{Arrival, Arrivals, State};
use crate::transfer::{OUTSTANDING_MAX, Progress, Refusal, Step, Steps};
use crate::tree::{BRANCHING, Label};

/// Partitions looked at in one call, so that none takes long: about 1 us each where a page is digested.
const LOOKS_MAX: usize = 512;
/// What a round trip is taken for before one was measured, in nanoseconds.
const ROUND_TRIP_NS: u64 = 10_000_000;
/// The shortest and the longest wait for an answer, in nanoseconds.
const WAIT_NS: (u64, u64) = (2_000_000, 1_000_000_000);

/// What the walk works with.
pub(crate) struct Hands<'a, P> {
    pub(crate) state: &'a mut State<P>,
    pub(crate) pool: &'a mut Pool,
    pub(crate) next_rid: &'a mut u64,
    pub(crate) now_ns: u64,
    pub(crate) steps: &'a mut Steps,
}

/// A transfer under way.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    seq: SeqNum,
    root: Digest,
    /// The checkpoint of our own that is compared with the target.
    base: SeqNum,
    /// No digest of our own is trusted without the page (CK-6).
    check: bool,
    /// Counts the targets so far.
    round: u32,
    /// Depth first, so never more than 64 a level for each question on its way.
    todo: Vec<Partition>,
    /// At most [`OUTSTANDING_MAX`].
    asked: Vec<Asked>,
    peers: Vec<Peer>,
    /// Pages that will be installed. At most one entry a page.
    staged: BTreeMap<u32, Staged>,
    fetched: u64,
    total: u64,
    /// There is more to look at, without waiting for anything.
    paused: Option<u64>,
}

/// A page (level 0) or node of the target, and what its parent says of it.
#[derive(Clone, Copy, Debug)]
struct Partition {
    level: u8,
    index: u32,
    label: Label,
    /// Questions that went unanswered.
    attempts: u32,
}

#[derive(Debug)]
struct Asked {
    rid: u64,
    peer: usize,
    partition: Partition,
    sent_ns: u64,
    due_ns: u64,
}

#[derive(Debug)]
struct Peer {
    id: ReplicaId,
    outstanding: usize,
    /// It has lied: asked only when all others have lied too.
    lied: bool,
    /// Questions it left unanswered lately.
    silent: usize,
    round_trip_ns: u64,
}

#[derive(Debug)]
struct Staged {
    label: Label,
    arrival: Arrival,
    /// The last target that it is part of.
    round: u32,
}

impl Walk {
    /// Turns the walk to a target. `base` is a checkpoint held here.
    pub(crate) fn aim(
        &mut self,
        seq: SeqNum,
        root: Digest,
        base: SeqNum,
        check: bool,
        peers: &[ReplicaId],
        height: u8,
    ) {
        self.set_peers(peers);
        let same = self.round > 0 && (self.seq, self.root, self.base) == (seq, root, base);
        if same && (self.check || !check) {
            return;
        }
        (self.seq, self.root, self.base) = (seq, root, base);
        self.check |= check;
        self.round += 1;
        self.asked.clear();
        for peer in &mut self.peers {
            peer.outstanding = 0;
        }
        // What refers to pages of our own may mean others now; what has come is kept (ST-4).
        self.staged.retain(|_, staged| matches!(staged.arrival, Arrival::New(Some(_))));
        (self.fetched, self.total) = (0, 0);
        let label = Label { modified: seq, digest: root };
        self.todo.clear();
        self.todo.push(Partition { level: height, index: 0, label, attempts: 0 });
    }

    /// Returns the checkpoint to reach and its root.
    pub(crate) fn target(&self) -> (SeqNum, Digest) {
        (self.seq, self.root)
    }

    /// Returns the checkpoint held here that must stay until the end.
    pub(crate) fn base(&self) -> SeqNum {
        self.base
    }

    /// Says whether checkpoint `seq` here is known to be wrong, and must not be given to anyone.
    pub(crate) fn is_tainted(&self, seq: SeqNum) -> bool {
        self.check && seq >= self.base
    }

    /// Says whether everything is here.
    pub(crate) fn is_done(&self) -> bool {
        self.todo.is_empty() && self.asked.is_empty()
    }

    /// Returns how many questions are on their way.
    #[cfg(test)]
    pub(crate) fn outstanding(&self) -> usize {
        self.asked.len()
    }

    /// Returns how far it is.
    pub(crate) fn progress(&self) -> Progress {
        Progress { seq: self.seq, fetched: self.fetched, total: self.total }
    }

    /// Returns when it must go on.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.asked.iter().map(|asked| asked.due_ns).chain(self.paused).min()
    }

    /// Looks at what is to be done, and asks as much as may be on its way.
    pub(crate) fn advance<P: PageStore>(&mut self, hands: &mut Hands<'_, P>) {
        self.paused = None;
        for _ in 0..LOOKS_MAX {
            if self.asked.len() >= OUTSTANDING_MAX {
                return;
            }
            let Some(partition) = self.todo.pop() else { return };
            if self.is_here(partition, hands) {
                continue;
            }
            if !self.ask(partition, None, hands) {
                // Nobody to ask: a later target brings others (ST-4).
                self.todo.push(partition);
                return;
            }
            self.total += u64::from(partition.level == 0);
        }
        self.paused = Some(hands.now_ns);
    }

    /// Takes the children of a node.
    pub(crate) fn on_meta_data<P: PageStore>(
        &mut self,
        from: ReplicaId,
        answer: &MetaData<'_>,
        hands: &mut Hands<'_, P>,
    ) {
        let about = (answer.level, answer.index);
        let Some(at) = self.find(from, answer.rid, about).filter(|_| answer.checkpoint == self.seq) else {
            return hands.steps.refuse(from, Refusal::Unasked);
        };
        let asked = self.asked.swap_remove(at);
        let Partition { level, index, label, .. } = asked.partition;
        let digests = answer.children().map(|(_, digest)| digest);
        let proven = hands.state.tree_mut().proves((level, index), label.digest, answer.modified, digests);
        let children = if proven { children_of(level, index, answer) } else { None };
        let Some(children) = children else {
            return self.on_lie(&asked, hands);
        };
        self.on_truth(&asked, hands);
        for child in children.into_iter().rev() {
            let own = hands.state.label_at(self.base, child.level, child.index);
            if self.check || own.digest != child.label.digest {
                self.todo.push(child);
            }
        }
    }

    /// Takes a page.
    pub(crate) fn on_data<P: PageStore>(
        &mut self,
        from: ReplicaId,
        answer: &Data<'_>,
        hands: &mut Hands<'_, P>,
    ) {
        let Some(at) = self.find(from, answer.rid, (0, answer.index)) else {
            return hands.steps.refuse(from, Refusal::Unasked);
        };
        let asked = self.asked.swap_remove(at);
        let page = asked.partition.index;
        let found = hands.state.tree_mut().leaf(page, answer.modified, Some(answer.page));
        if found.digest != asked.partition.label.digest || answer.page.len() != hands.pool.page_bytes() {
            return self.on_lie(&asked, hands);
        }
        self.on_truth(&asked, hands);
        self.fetched += 1;
        let content = hands.pool.copy(answer.page);
        self.stage(page, found, Arrival::New(Some(content)));
    }

    /// Asks someone else what was not answered in time.
    pub(crate) fn on_deadline<P: PageStore>(&mut self, hands: &mut Hands<'_, P>) {
        let mut at = 0;
        while at < self.asked.len() {
            if self.asked[at].due_ns > hands.now_ns {
                at += 1;
                continue;
            }
            let late = self.asked.swap_remove(at);
            let peer = &mut self.peers[late.peer];
            peer.outstanding -= 1;
            peer.silent += 1;
            peer.round_trip_ns = (peer.round_trip_ns * 2).min(WAIT_NS.1);
            let mut partition = late.partition;
            partition.attempts += 1;
            // The one that kept silent is not asked this again while there are others.
            if !self.ask(partition, Some(late.peer), hands) {
                self.todo.push(partition);
            }
        }
    }

    /// Installs everything, if that gives the root. Otherwise the state is of no use, and no page of it
    /// may be trusted.
    pub(crate) fn install<P: PageStore>(&mut self, state: &mut State<P>, pool: &mut Pool) -> bool {
        let round = self.round;
        let staged = core::mem::take(&mut self.staged);
        let arrivals: Arrivals = staged
            .into_iter()
            .filter(|(_, staged)| staged.round == round)
            .map(|(page, staged)| (page, staged.label, staged.arrival))
            .collect();
        let found = state.install(self.base, self.seq, self.check, arrivals, pool);
        assert!(!self.check || found == self.root, "each page has been checked");
        found == self.root
    }

    /// Says whether a partition of the target is here, and stages what has to change for it.
    fn is_here<P: PageStore>(&mut self, partition: Partition, hands: &mut Hands<'_, P>) -> bool {
        let Partition { level, index, label, .. } = partition;
        let own = hands.state.label_at(self.base, level, index);
        if own.digest == label.digest && !self.check {
            return true;
        }
        if label.is_empty() {
            self.empty(level, index, hands);
            return true;
        }
        if level == 0 {
            return self.page_is_here(index, label, hands);
        }
        // With `check` our own labels are answers like those of others: true if they fit.
        if own.digest != label.digest {
            return false;
        }
        let children: Vec<Partition> = children(level, index)
            .map(|(level, index)| Partition {
                level,
                index,
                label: hands.state.label_at(self.base, level, index),
                attempts: 0,
            })
            .collect();
        let used = children.iter().rposition(|child| !child.label.is_empty()).map_or(0, |last| last + 1);
        let digests = children[..used].iter().map(|child| child.label.digest);
        if !hands.state.tree_mut().proves((level, index), label.digest, own.modified, digests) {
            return false;
        }
        self.todo.extend(children[..used].iter().rev());
        true
    }

    /// Says whether the content of a page of the target is here: at our checkpoint, staged, or current.
    fn page_is_here<P: PageStore>(&mut self, page: u32, label: Label, hands: &mut Hands<'_, P>) -> bool {
        if self.check && hands.state.leaf_at(self.base, page, label.modified).digest == label.digest {
            self.stage(page, label, Arrival::Base);
            return true;
        }
        if let Some(staged) = self.staged.get_mut(&page)
            && staged.label.digest == label.digest
        {
            staged.round = self.round;
            self.fetched += 1;
            self.total += 1;
            return true;
        }
        let found = hands.state.current_leaf(page, label.modified);
        if found.digest == label.digest {
            self.stage(page, found, Arrival::Current);
            return true;
        }
        false
    }

    /// Sees to it that a partition will be empty that is not so here. With `check` that needs nothing:
    /// what is not staged is empty.
    fn empty<P: PageStore>(&mut self, level: u8, index: u32, hands: &Hands<'_, P>) {
        if self.check {
            return;
        }
        if level == 0 {
            return self.stage(index, Label::EMPTY, Arrival::New(None));
        }
        for (level, index) in children(level, index) {
            if !hands.state.label_at(self.base, level, index).is_empty() {
                self.todo.push(Partition { level, index, label: Label::EMPTY, attempts: 0 });
            }
        }
    }

    fn stage(&mut self, page: u32, label: Label, arrival: Arrival) {
        self.staged.insert(page, Staged { label, arrival, round: self.round });
    }

    /// Asks for a partition: who has lied least, kept silent least and has least to do, and not `but` if
    /// there is another. Says whether there was anyone.
    fn ask<P: PageStore>(
        &mut self,
        partition: Partition,
        but: Option<usize>,
        hands: &mut Hands<'_, P>,
    ) -> bool {
        let rid = *hands.next_rid;
        let count = self.peers.len();
        let start = usize::try_from(rid % 64).unwrap_or(0);
        let order = (0..count).map(|at| (at + start) % count);
        let Some(at) = order.min_by_key(|&at| {
            let peer = &self.peers[at];
            (peer.lied, but == Some(at), peer.outstanding + 4 * peer.silent)
        }) else {
            return false;
        };
        *hands.next_rid += 1;
        let peer = &mut self.peers[at];
        peer.outstanding += 1;
        let wait = (3 * peer.round_trip_ns) << partition.attempts.min(8);
        let due_ns = hands.now_ns.saturating_add(wait.clamp(WAIT_NS.0, WAIT_NS.1));
        let question =
            Fetch { rid, level: partition.level, index: u64::from(partition.index), checkpoint: self.seq };
        hands.steps.push(Step::Ask { to: peer.id, question });
        self.asked.push(Asked { rid, peer: at, partition, sent_ns: hands.now_ns, due_ns });
        true
    }

    /// Returns the question that an answer belongs to.
    fn find(&self, from: ReplicaId, rid: u64, (level, index): (u8, u64)) -> Option<usize> {
        self.asked.iter().position(|asked| {
            let partition = &asked.partition;
            let about = (partition.level, u64::from(partition.index));
            asked.rid == rid && self.peers[asked.peer].id == from && about == (level, index)
        })
    }

    fn on_truth<P>(&mut self, asked: &Asked, hands: &Hands<'_, P>) {
        let peer = &mut self.peers[asked.peer];
        peer.outstanding -= 1;
        peer.silent /= 2;
        let took = hands.now_ns.saturating_sub(asked.sent_ns).min(WAIT_NS.1);
        peer.round_trip_ns = (7 * peer.round_trip_ns + took) / 8;
    }

    fn on_lie<P: PageStore>(&mut self, asked: &Asked, hands: &mut Hands<'_, P>) {
        let peer = &mut self.peers[asked.peer];
        peer.outstanding -= 1;
        peer.lied = true;
        hands.steps.refuse(peer.id, Refusal::Lie);
        if !self.ask(asked.partition, Some(asked.peer), hands) {
            self.todo.push(asked.partition);
        }
    }

    /// Takes over a list of peers and keeps what is known of those in it.
    fn set_peers(&mut self, peers: &[ReplicaId]) {
        for &id in peers {
            if self.peers.iter().all(|peer| peer.id != id) {
                let new = Peer { id, outstanding: 0, lied: false, silent: 0, round_trip_ns: ROUND_TRIP_NS };
                self.peers.push(new);
            }
        }
    }
}

/// Returns the level and index of each child that a node can have.
fn children(level: u8, index: u32) -> impl Iterator<Item = (u8, u32)> {
    let first = index.checked_mul(BRANCHING);
    (0..BRANCHING).map_while(move |at| Some((level.checked_sub(1)?, first?.checked_add(at)?)))
}

/// Returns the children of a node, empty ones included; none if an answer with the right digest is not
/// in the one form there is.
fn children_of(level: u8, index: u32, answer: &MetaData<'_>) -> Option<Vec<Partition>> {
    let mut said = answer.children();
    let mut found = Vec::new();
    for (level, index) in children(level, index) {
        let (modified, digest) = said.next().unwrap_or_default();
        let label = Label { modified, digest };
        if label.is_empty() && modified != SeqNum(0) {
            return None;
        }
        found.push(Partition { level, index, label, attempts: 0 });
    }
    let newest = found.iter().map(|child| child.label.modified).max()?;
    (said.next().is_none() && newest == answer.modified).then_some(found)
}

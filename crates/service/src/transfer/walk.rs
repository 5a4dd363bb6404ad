//! The walk of a state transfer: down the digest tree from the certified root, fetching the parts that differ (ST-2).
//!
//! A partition with the wanted digest needs no visit: the digest covers everything below it. Of other partitions the
//! children are fetched, and of pages that differ the content. Every answer is checked against a digest that leads to
//! the root. So one correct replica that answers is sufficient, independent of the number of Byzantine ones (K13). No
//! answer is trusted because several replicas agree on it (B18).
//!
//! ```text
//!  todo: partitions to look at        asked: on their way, a bounded few     arrived: pages to install
//!  [root]  -- differs: FETCH -->  [root, r2, due 40 ms]  -- META-DATA fits -->  todo: children
//!  [page 7] -- differs: FETCH --> [page 7, r3, due 40 ms] -- DATA fits ------>  7 -> content
//! ```
//!
//! These pages have their own tree, above that of the checkpoint on which the walk is based. So when the target
//! moves, only parts that differ from the local ones are visited again (ST-4).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use quorate_wire::message::{Data, MetaData};
use quorate_wire::{Digest, ReplicaId, SeqNum};

use crate::page::{Page, PageStore};
use crate::state::State;
use crate::state::arrival::{Arrival, Arrivals};
use crate::state::tree::{BRANCHING, Label, Tree};
use crate::transfer::step::{OUTSTANDING_MAX, Progress, Refusal, Step, Steps};

mod ask;
mod staging;

use ask::{Peer, TURNS};

/// Partitions looked at in one call, so that none takes long: about 1 us each where a page is digested.
const LOOKS_MAX: usize = 512;
/// Pages kept that came after the target had moved: those of more moves than a walk sees before it has come by again.
const EARLY_MAX: usize = 16 * OUTSTANDING_MAX;
/// The shortest and the longest wait for an answer, in nanoseconds. The other replica may be busy.
const WAIT_NS: (u64, u64) = (20_000_000, 1_000_000_000);
/// This many unanswered questions to each replica, on average, are reported (ST-4).
const ROUNDS: u32 = 2;
/// The unit of time in which questions are counted, in nanoseconds.
const TURN_NS: u64 = 10_000_000;

/// The inputs of the walk.
pub(super) struct WalkContext<'a, P> {
    pub(super) state: &'a mut State<P>,
    pub(super) next_rid: &'a mut u64,
    pub(super) now_ns: u64,
    /// Pages of the transfer that may be in memory.
    pub(super) contents_max: usize,
    pub(super) steps: &'a mut Steps,
}

/// A transfer in progress.
#[derive(Debug, Default)]
pub(super) struct Walk {
    seq: SeqNum,
    root: Digest,
    /// The checkpoint of our own that is compared with the target.
    base: SeqNum,
    /// No digest of our own is trusted without the page (CK-6).
    check: bool,
    /// The labels of what is here: of the base with what has arrived over it; with `check`, of what has arrived.
    /// Those of nodes are as of the last time that the walk was turned to a target.
    here: Option<Tree>,
    /// Pages that arrived since then.
    fresh: Vec<u32>,
    /// Pages that came after the target had moved: not visited again yet. At most [`EARLY_MAX`].
    early: BTreeMap<u32, (Label, Page)>,
    /// Depth first, so never more than 64 a level for each question on its way.
    todo: Vec<Partition>,
    /// Pages that have changed since the walk began, and so will change again: they come last, or with each move of the
    /// target the walk would bring the same pages once more and no others (DV-45). At most one entry a page.
    hot: Vec<Partition>,
    /// Pages have come since the target moved; some came before it did. If none did, it moves too fast for anything to
    /// be put off.
    brings: bool,
    has_brought: bool,
    /// The first target. None: it has not begun.
    first: Option<SeqNum>,
    /// How many questions it has asked.
    questions: u64,
    /// At most [`OUTSTANDING_MAX`].
    asked: Vec<Asked>,
    peers: Vec<Peer>,
    /// Pages that will be installed. At most one entry a page.
    arrived: BTreeMap<u32, Arrived>,
    /// How many of them have their content in memory, and those of them that were not given to a disk.
    contents: usize,
    to_stage: BTreeSet<u32>,
    fetched: u64,
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
    /// It was asked for an earlier target, and may be of use or not.
    is_old: bool,
    peer: usize,
    partition: Partition,
    sent_ns: u64,
    due_ns: u64,
}

#[derive(Debug)]
struct Arrived {
    label: Label,
    arrival: Arrival,
}

impl Walk {
    /// Turns the walk to a target. `base` is a checkpoint held here.
    pub(super) fn aim<P: PageStore>(
        &mut self,
        (seq, root): (SeqNum, Digest),
        base: SeqNum,
        check: bool,
        peers: &[ReplicaId],
        state: &State<P>,
    ) {
        self.set_peers(peers);
        let height = state.tree().height();
        let began = self.here.is_some();
        if began && (self.seq, self.root, self.base) == (seq, root, base) && (self.check || !check) {
            return;
        }
        if !began || self.base != base || (check && !self.check) {
            // What refers to pages of our own may mean others now; what has come is kept (ST-4).
            self.arrived
                .retain(|_, arrived| matches!(arrived.arrival, Arrival::New(Some(_)) | Arrival::Stored(_)));
            self.fresh = self.arrived.keys().copied().collect();
            self.check |= check;
            let mut here = if self.check { state.tree().to_empty() } else { state.tree().clone() };
            // What cannot be read is not here.
            here.set_leaves(state.unreadable_at(base).map(|page| (page, Label::EMPTY)));
            self.here = Some(here);
        }
        (self.seq, self.root, self.base) = (seq, root, base);
        self.fresh.sort_unstable();
        self.fresh.dedup();
        let arrived = &self.arrived;
        let leaves = self.fresh.drain(..).filter_map(|page| Some((page, arrived.get(&page)?.label)));
        if let Some(here) = &mut self.here {
            here.set_leaves(leaves);
        }
        // Pages that are on their way are of use mostly; nodes are not.
        self.asked.retain_mut(|asked| {
            asked.is_old = true;
            let is_page = asked.partition.level == 0;
            self.peers[asked.peer].outstanding -= usize::from(!is_page);
            is_page
        });
        let label = Label { modified: seq, digest: root };
        self.first.get_or_insert(seq);
        self.has_brought = core::mem::take(&mut self.brings);
        self.hot.clear();
        self.todo.clear();
        self.todo.push(Partition { level: height, index: 0, label, attempts: 0 });
    }

    /// Takes pages that were found elsewhere: those that the target has need not be asked for.
    pub(super) fn take_leftover(&mut self, pages: Vec<(u32, Label, Arrival)>) {
        for (page, label, arrival) in pages {
            self.arrive(page, label, arrival);
        }
    }

    /// Returns the checkpoint to reach and its root.
    pub(super) fn target(&self) -> (SeqNum, Digest) {
        (self.seq, self.root)
    }

    /// Returns the checkpoint held here that must stay until the end.
    pub(super) fn base(&self) -> SeqNum {
        self.base
    }

    /// Returns whether checkpoint `seq` here is known to be wrong, and must not be given to anyone.
    pub(super) fn is_tainted(&self, seq: SeqNum) -> bool {
        self.check && seq >= self.base
    }

    /// Returns whether everything is here.
    pub(super) fn is_done(&self) -> bool {
        self.todo.is_empty() && self.hot.is_empty() && self.asked.iter().all(|asked| asked.is_old)
    }

    /// Returns how many questions are on their way.
    #[cfg(test)]
    pub(super) fn outstanding(&self) -> usize {
        self.asked.len()
    }

    /// Returns how many pages have been brought since this was last asked.
    pub(super) fn take_fetched(&mut self) -> u64 {
        core::mem::take(&mut self.fetched)
    }

    /// Returns how far it is.
    pub(super) fn progress(&self) -> Progress {
        let asked = self.asked.iter().map(|asked| &asked.partition);
        // A node stands for as many pages as one of the lowest level: it has that many at least, mostly.
        let pages = |partition: &Partition| if partition.level == 0 { 1 } else { u64::from(BRANCHING) };
        let left: u64 = asked.chain(&self.todo).chain(&self.hot).map(pages).sum();
        Progress { seq: self.seq, fetched: self.fetched, total: self.fetched + left }
    }

    /// Returns when it must go on.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.asked.iter().map(|asked| asked.due_ns).chain(self.paused).min()
    }

    /// Skips a turn: the disk is behind.
    pub(super) fn wait(&mut self, now_ns: u64) {
        self.paused = Some(now_ns.saturating_add(TURNS * TURN_NS));
    }

    /// Looks at what is to be done, and asks as much as may be on its way.
    pub(super) fn advance<P: PageStore>(&mut self, cx: &mut WalkContext<'_, P>) {
        self.paused = None;
        if self.contents >= cx.contents_max {
            return self.wait(cx.now_ns);
        }
        for _ in 0..LOOKS_MAX {
            if self.asked.len() >= OUTSTANDING_MAX {
                return;
            }
            let Some(partition) = self.todo.pop().or_else(|| self.last_of_all()) else { return };
            if self.is_here(partition, cx) || self.is_coming(partition) {
                continue;
            }
            if !self.ask(partition, None, cx) {
                // Nobody to ask: a later target brings others (ST-4), or the next turn.
                self.todo.push(partition);
                self.paused = (!self.peers.is_empty()).then(|| (cx.now_ns / TURN_NS + 1) * TURN_NS);
                return;
            }
        }
        self.paused = Some(cx.now_ns);
    }

    /// Takes the children of a node.
    pub(super) fn on_meta_data<P: PageStore>(
        &mut self,
        from: ReplicaId,
        answer: &MetaData<'_>,
        cx: &mut WalkContext<'_, P>,
    ) {
        let about = (answer.level, answer.index);
        let Some(at) = self.find(from, answer.rid, about).filter(|_| answer.checkpoint == self.seq) else {
            return cx.steps.refuse(from, Refusal::Unasked);
        };
        let asked = self.asked.swap_remove(at);
        let Partition { level, index, label, .. } = asked.partition;
        let digests = answer.children().map(|(_, digest)| digest);
        let proven = cx.state.tree_mut().proves((level, index), label.digest, answer.modified, digests);
        let children = if mutant!(M104, proven, true) { children_of(level, index, answer) } else { None };
        let Some(children) = children else {
            return self.on_lie(&asked, cx);
        };
        self.on_truth(&asked, cx);
        for child in children.into_iter().rev() {
            if self.label(child.level, child.index).digest != child.label.digest {
                let is_put_off = self.has_brought && self.is_hot(&child);
                if is_put_off { &mut self.hot } else { &mut self.todo }.push(child);
            }
        }
    }

    /// Takes a page.
    pub(super) fn on_data<P: PageStore>(
        &mut self,
        from: ReplicaId,
        answer: &Data<'_>,
        cx: &mut WalkContext<'_, P>,
    ) {
        let Some(at) = self.find(from, answer.rid, (0, answer.index)) else {
            return cx.steps.refuse(from, Refusal::Unasked);
        };
        let asked = self.asked.swap_remove(at);
        let page = asked.partition.index;
        let found = cx.state.tree_mut().leaf(page, answer.modified, Some(answer.page));
        let differs = found.digest != asked.partition.label.digest;
        if mutant!(M103, differs, false) || answer.page.len() != cx.state.page_bytes() {
            return self.on_lie(&asked, cx);
        }
        self.on_truth(&asked, cx);
        self.fetched += 1;
        self.brings = true;
        let content = cx.state.copy(answer.page);
        if asked.is_old {
            self.early.insert(page, (found, content));
            if self.early.len() > EARLY_MAX {
                self.early.pop_last();
            }
        } else {
            self.arrive(page, found, Arrival::New(Some(content)));
        }
    }

    /// Asks someone else what was not answered in time.
    pub(super) fn on_deadline<P: PageStore>(&mut self, cx: &mut WalkContext<'_, P>) {
        let (mut at, mut is_stalled) = (0, false);
        while at < self.asked.len() {
            if self.asked[at].due_ns > cx.now_ns {
                at += 1;
                continue;
            }
            let late = self.asked.swap_remove(at);
            let peer = &mut self.peers[late.peer];
            peer.outstanding -= 1;
            peer.silent += 1;
            peer.round_trip_ns = (peer.round_trip_ns * 2).min(WAIT_NS.1);
            let mut partition = late.partition;
            if late.is_old {
                continue;
            }
            partition.attempts += 1;
            let reported_at = ROUNDS * u32::try_from(self.peers.len()).unwrap_or(1).max(1);
            is_stalled |= partition.attempts.is_multiple_of(reported_at);
            // The one that kept silent is not asked this again while there are others.
            if !self.ask(partition, Some(late.peer), cx) {
                self.todo.push(partition);
            }
        }
        // Once: each report turns the walk to another target, and two of them would turn it back (L107).
        if is_stalled {
            cx.steps.push(Step::Stalled);
        }
    }

    /// Installs everything, if that gives the root. Otherwise the state is of no use, and no page of it
    /// may be trusted.
    pub(super) fn install<P: PageStore>(&mut self, state: &mut State<P>) -> bool {
        let arrived = core::mem::take(&mut self.arrived);
        let arrivals: Arrivals =
            arrived.into_iter().map(|(page, arrived)| (page, arrived.label, arrived.arrival)).collect();
        self.here = None;
        self.asked.clear();
        self.peers.iter_mut().for_each(|peer| peer.outstanding = 0);
        self.early.clear();
        self.fresh.clear();
        self.to_stage.clear();
        self.contents = 0;
        let found = state.install(self.base, self.seq, self.check, arrivals);
        assert!(!self.check || found == self.root, "each page has been checked");
        found == self.root
    }

    /// Returns whether a partition of the target is here, and stages what has to change for it.
    fn is_here<P: PageStore>(&mut self, partition: Partition, cx: &mut WalkContext<'_, P>) -> bool {
        let Partition { level, index, label, .. } = partition;
        if self.label(level, index).digest == label.digest {
            return true;
        }
        if label.is_empty() {
            self.empty(level, index);
            return true;
        }
        if level == 0 {
            return self.page_is_here(index, label, cx);
        }
        let own = cx.state.label_at(self.base, level, index);
        // With `check` our own labels are answers like those of others: true if they fit.
        if !self.check || own.digest != label.digest {
            return false;
        }
        let children: Vec<Partition> = children(level, index)
            .map(|(level, index)| Partition {
                level,
                index,
                label: cx.state.label_at(self.base, level, index),
                attempts: 0,
            })
            .collect();
        let used = children.iter().rposition(|child| !child.label.is_empty()).map_or(0, |last| last + 1);
        let digests = children[..used].iter().map(|child| child.label.digest);
        if !cx.state.tree_mut().proves((level, index), label.digest, own.modified, digests) {
            return false;
        }
        // Not only those in use: where the target has nothing, a later target that it follows may have left something.
        let differs = |child: &Partition| self.label(child.level, child.index).digest != child.label.digest;
        let different: Vec<Partition> = children.into_iter().rev().filter(differs).collect();
        self.todo.extend(different);
        true
    }

    /// Returns whether the content of a page of the target is here: at our checkpoint, or current.
    fn page_is_here<P: PageStore>(&mut self, page: u32, label: Label, cx: &mut WalkContext<'_, P>) -> bool {
        if let Some((found, content)) = self.early.remove(&page)
            && found.digest == label.digest
        {
            self.arrive(page, found, Arrival::New(Some(content)));
            return true;
        }
        let is_readable = !cx.state.is_unreadable_at(self.base, page);
        let base = if self.check {
            cx.state.leaf_at(self.base, page, label.modified)
        } else {
            cx.state.label_at(self.base, 0, page)
        };
        if base.digest == label.digest && is_readable {
            self.arrive(page, label, Arrival::Base);
            return true;
        }
        let found = cx.state.current_leaf(page, label.modified);
        if found.digest == label.digest {
            self.arrive(page, found, Arrival::Current);
            return true;
        }
        false
    }

    /// Returns whether a page has been asked for already, for an earlier target.
    fn is_coming(&mut self, partition: Partition) -> bool {
        let of = |asked: &&mut Asked| {
            let Partition { level, index, label, .. } = asked.partition;
            asked.is_old && (level, index, label.digest) == (0, partition.index, partition.label.digest)
        };
        if partition.level > 0 {
            return false;
        }
        let Some(asked) = self.asked.iter_mut().find(of) else { return false };
        asked.is_old = false;
        true
    }

    /// Ensures that a partition will be empty that is not so here.
    fn empty(&mut self, level: u8, index: u32) {
        if level == 0 {
            return self.arrive(index, Label::EMPTY, Arrival::New(None));
        }
        for (level, index) in children(level, index) {
            if !self.label(level, index).is_empty() {
                self.todo.push(Partition { level, index, label: Label::EMPTY, attempts: 0 });
            }
        }
    }

    /// Returns the label of what is here.
    fn label(&self, level: u8, index: u32) -> Label {
        self.here.as_ref().map_or(Label::EMPTY, |here| here.label(level, index))
    }

    fn arrive(&mut self, page: u32, label: Label, arrival: Arrival) {
        if let Some(here) = &mut self.here {
            here.set_label(0, page, label);
        }
        self.fresh.push(page);
        let has_content = matches!(arrival, Arrival::New(Some(_)));
        if has_content {
            self.contents += 1;
            self.to_stage.insert(page);
        }
        let before = self.arrived.insert(page, Arrived { label, arrival });
        self.contents -= usize::from(before.is_some_and(|before| before.has_content()));
    }
}

impl Arrived {
    fn has_content(&self) -> bool {
        matches!(self.arrival, Arrival::New(Some(_)))
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

//! State transfer: inputs and outputs (spec §9).
//!
//! The walk down the digest tree is in `walk.rs`, the answers to other replicas' walks in `source.rs`, single pages
//! that cannot be read in `repair.rs`. All are independent of clocks and networks: the driver passes the time and the
//! messages, and performs the resulting steps.

mod repair;
mod source;
mod step;
mod walk;

pub use step::{OUTSTANDING_MAX, Progress, Refusal, Span, Step, Steps};

use quorate_wire::message::{Data, Fetch, MetaData};
use quorate_wire::{Digest, ReplicaId, SeqNum};

use crate::page::{PageLabel, PageStore};
use crate::state::State;
use crate::state::arrival::Arrivals;
use crate::state::tree::Label;
use repair::PageRepair;
use source::Source;
use walk::{Walk, WalkContext};

/// The inputs of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// The state is to become that of a checkpoint with this root. With `check` the pages that are here are not
    /// trusted (CK-6). `peers` are the replicas to ask.
    Fetch { target: (SeqNum, Digest), check: bool, peers: &'a [ReplicaId] },
    /// A page cannot be read. `peers` are the replicas to ask.
    Unreadable { page: u32, peers: &'a [ReplicaId] },
    /// Another replica's FETCH.
    Question(ReplicaId, &'a Fetch),
    /// The children of a node, in answer to a FETCH.
    MetaData(ReplicaId, &'a MetaData<'a>),
    /// A page, in answer to a FETCH.
    Data(ReplicaId, &'a Data<'a>),
    /// [`Transfer::deadline`] has passed. Harmless at any other time.
    Deadline,
}

/// Everything that is fetched from other replicas, and given to them.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The transfer under way.
    walk: Option<Walk>,
    /// A page that cannot be read, and is asked for.
    repair: Option<PageRepair>,
    source: Source,
    /// The number of the next FETCH.
    next_rid: u64,
    /// Pages that a disk had and that are not the state: a transfer looks here first.
    leftover: Arrivals,
    /// Pages that a transfer may have in memory.
    contents_max: usize,
    /// Pages that it may have there when it is installed.
    adopted_max: usize,
    /// Pages that transfers have brought.
    fetched: u64,
}

impl Transfer {
    /// Returns one without a transfer under way. A FETCH of it has a number from `first_rid` on.
    pub(crate) fn new(first_rid: u64) -> Self {
        Self {
            walk: None,
            repair: None,
            source: Source::default(),
            next_rid: first_rid,
            leftover: Arrivals::new(),
            contents_max: usize::MAX,
            adopted_max: usize::MAX,
            fetched: 0,
        }
    }

    /// Takes an event and appends to `steps` what follows from it. Returns the checkpoint that the state is now the
    /// one of, if a transfer has come to its end.
    pub(crate) fn step<P: PageStore>(
        &mut self,
        now_ns: u64,
        event: Event<'_>,
        state: &mut State<P>,
        steps: &mut Steps,
    ) -> Option<SeqNum> {
        match event {
            Event::Fetch { target, check, peers } => {
                self.repair = None;
                let base = if state.root_at(target.0).is_some() { target.0 } else { state.newest() };
                let mut walk = self.walk.take().unwrap_or_default();
                walk.take_leftover(core::mem::take(&mut self.leftover));
                walk.aim(target, base, check, peers, state);
                self.walk_on(walk, now_ns, state, steps, |_, _| {})
            }
            Event::Unreadable { page, peers } => {
                let label = state.note_unreadable(page);
                let is_asked = self.repair.as_ref().is_some_and(|repair| repair.page() == page);
                if !is_asked && self.walk.is_none() && !peers.is_empty() {
                    let mut repair = PageRepair::new(page, label, peers, now_ns);
                    repair.ask(now_ns, state, &mut self.next_rid, steps);
                    self.repair = Some(repair);
                }
                None
            }
            Event::Question(from, question) => {
                let is_tainted = self.walk.as_ref().is_some_and(|walk| walk.is_tainted(question.checkpoint));
                self.source.on_fetch(now_ns, from, question, (!is_tainted).then_some(&*state), steps);
                None
            }
            Event::MetaData(from, answer) => {
                let Some(walk) = self.walk.take() else {
                    steps.refuse(from, Refusal::Unasked);
                    return None;
                };
                self.walk_on(walk, now_ns, state, steps, |walk, cx| walk.on_meta_data(from, answer, cx))
            }
            Event::Data(from, answer) => {
                let Some(walk) = self.walk.take() else {
                    self.on_repair(now_ns, from, answer, state, steps);
                    return None;
                };
                self.walk_on(walk, now_ns, state, steps, |walk, cx| walk.on_data(from, answer, cx))
            }
            Event::Deadline => {
                let walk = self.walk.take();
                let installed =
                    walk.and_then(|walk| self.walk_on(walk, now_ns, state, steps, Walk::on_deadline));
                if let Some(unneeded) = self.repair.take_if(|repair| !repair.is_needed(state)) {
                    steps.push(Step::PageRestored { page: unneeded.page() });
                }
                if let Some(repair) = &mut self.repair {
                    repair.ask(now_ns, state, &mut self.next_rid, steps);
                }
                installed
            }
        }
    }

    /// Returns the moment, on the clock of `now_ns`, at which [`Event::Deadline`] is due. Changes with each call;
    /// none: there is nothing to wait for.
    pub(crate) fn deadline(&self) -> Option<u64> {
        if self.walk.as_ref().is_some_and(|walk| walk.may_adopt(self.adopted_max)) {
            return Some(0);
        }
        let repair = self.repair.as_ref().map(PageRepair::deadline);
        self.walk.as_ref().and_then(Walk::deadline).into_iter().chain(repair).min()
    }

    /// Returns whether a transfer is in progress.
    #[inline]
    pub(crate) fn is_fetching(&self) -> bool {
        self.walk.is_some()
    }

    /// Returns whether pages are being brought.
    #[inline]
    pub(crate) fn is_bringing(&self) -> bool {
        self.is_fetching() || self.repair.is_some()
    }

    /// Returns how many pages other replicas have brought since the start.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched + self.progress().map_or(0, |progress| progress.fetched)
    }

    /// Returns how far the transfer is, if one is in progress.
    pub(crate) fn progress(&self) -> Option<Progress> {
        Some(self.walk.as_ref()?.progress())
    }

    /// Returns the lowest checkpoint that must stay, of those from `below` on and of `held`, which are in their order:
    /// one that a transfer builds on, or that another replica is fetching. What others fetch does not stay if checkpoints
    /// have a quarter of the `pages` that may be in memory: a liar can fetch without end (L136).
    pub(crate) fn needs(
        &self,
        now_ns: u64,
        below: SeqNum,
        held: impl Iterator<Item = SeqNum>,
        pages: usize,
    ) -> SeqNum {
        let below = self.walk.as_ref().map_or(below, |walk| below.min(walk.base()));
        if pages > self.contents_max / 2 {
            return below;
        }
        self.source.lowest(now_ns, held).map_or(below, |given| below.min(given))
    }

    /// Gives up the transfer in progress: the state has become another one.
    pub(crate) fn give_up(&mut self) {
        self.walk = None;
    }

    /// Keeps pages that a disk had and that are not the state, for a transfer to look at first.
    pub(crate) fn keep(&mut self, pages: Arrivals) {
        self.leftover = pages;
    }

    /// Returns how many pages are kept so.
    pub(crate) fn pages_kept(&self) -> usize {
        self.leftover.len()
    }

    /// Sets how many pages a transfer may have in memory before it waits for [`Self::note_staged`].
    pub(crate) fn limit(&mut self, pages_max: usize) {
        self.contents_max = pages_max.max(1);
    }

    /// Sets how many pages a transfer may have in memory when it is installed.
    pub(crate) fn limit_arrivals(&mut self, pages_max: usize) {
        self.adopted_max = pages_max;
    }

    /// Returns how many pages the transfer in progress has in memory.
    pub(crate) fn pages(&self) -> usize {
        self.walk.as_ref().map_or(0, Walk::contents)
    }

    /// Calls `each` with pages of the transfer in progress that are in memory, `pages_max` at most and each once.
    pub(crate) fn stage(&mut self, pages_max: usize, each: impl FnMut(u32, Label, &[u8])) {
        if let Some(walk) = &mut self.walk {
            walk.stage(pages_max, each);
        }
    }

    /// Takes note that a disk has these pages of a transfer, each at a place of the store.
    pub(crate) fn note_staged<P: PageStore>(&mut self, staged: &[(PageLabel, u32)], state: &mut State<P>) {
        let Some(walk) = &mut self.walk else { return };
        for (label, place) in staged {
            let PageLabel { page, modified, digest } = *label;
            walk.note_staged(page, Label { modified, digest }, *place, state);
        }
    }

    /// Lets the walk take in what `event` is, go as far as it can, and install what it has when it is
    /// at its end.
    fn walk_on<P: PageStore>(
        &mut self,
        mut walk: Walk,
        now_ns: u64,
        state: &mut State<P>,
        steps: &mut Steps,
        event: impl FnOnce(&mut Walk, &mut WalkContext<'_, P>),
    ) -> Option<SeqNum> {
        let mut cx = WalkContext {
            state,
            next_rid: &mut self.next_rid,
            now_ns,
            contents_max: self.contents_max,
            steps,
        };
        event(&mut walk, &mut cx);
        walk.advance(&mut cx);
        while walk.may_adopt(self.adopted_max) {
            let (seq, root) = walk.target();
            self.fetched += walk.take_fetched();
            if walk.install(cx.state) {
                cx.steps.push(Step::Installed { seq, root });
                return Some(seq);
            }
            cx.steps.push(Step::Distrusted);
            walk.aim((seq, root), seq, true, &[], cx.state);
            walk.advance(&mut cx);
        }
        if walk.is_done() {
            walk.wait(now_ns);
        }
        self.walk = Some(walk);
        None
    }

    /// Takes an answer to the question about a page that could not be read.
    fn on_repair<P: PageStore>(
        &mut self,
        now_ns: u64,
        from: ReplicaId,
        answer: &Data<'_>,
        state: &mut State<P>,
        steps: &mut Steps,
    ) {
        let Some(repair) = self.repair.as_mut().filter(|repair| repair.is_about(from, answer)) else {
            return steps.refuse(from, Refusal::Unasked);
        };
        if repair.is_answered(answer, state) {
            steps.push(Step::PageRestored { page: repair.page() });
            self.repair = None;
            self.fetched += 1;
        } else {
            steps.refuse(from, Refusal::Lie);
            repair.ask_again(now_ns, state, &mut self.next_rid, steps);
        }
    }

    /// Returns how many questions are on their way.
    #[cfg(test)]
    pub(crate) fn outstanding(&self) -> usize {
        self.walk.as_ref().map_or(0, Walk::outstanding)
    }
}

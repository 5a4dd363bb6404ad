//! What the checkers know about one replica, from its reports and actions.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_pbft::step::Milestone;
use quorate_wire::{Batch, Digest, ReplicaId, SeqNum, ViewNum};

use super::verdict::{Verdict, Violation};

/// Where a state with a root comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// It was cut here: the log can bring it back, if it could bring back what it follows.
    Cut,
    /// It was fetched, and is nowhere but in memory.
    Fetched,
    /// It was fetched, and no disk is asked for it.
    Kept,
}

/// One replica, as seen from outside.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Facts {
    /// Who.
    pub id: ReplicaId,
    /// It keeps to the protocol.
    pub correct: bool,
    /// It has not lost its memory, or has rejoined since.
    pub remembers: bool,
    /// It has an old disk and may not have found out yet.
    pub misled: bool,
    /// Its view.
    pub view: ViewNum,
    /// It orders requests in its view.
    pub normal: bool,
    /// Its stable checkpoint.
    pub stable: SeqNum,
    /// The last batch executed finally.
    pub executed: SeqNum,
    /// The batch executed tentatively.
    pub tentative: Option<(SeqNum, Arc<Batch>)>,
    /// Reads are served from this number on (RO-4).
    pub read_floor: SeqNum,
    /// It is fetching state.
    pub transferring: bool,
    /// Its own state was found wrong and is not repaired yet.
    pub diverged: bool,
    /// It lied at some time, or its state was damaged behind its back: what it has said then may still arrive.
    pub was_faulty: bool,
    /// Its state was damaged behind its back: it is faulty until it has repaired that.
    pub damaged: bool,
    /// That happened while it was being repaired, perhaps behind where the repair had come.
    damaged_in_repair: bool,
    /// The newest checkpoint whose state it holds, or can make again from its log.
    pub checkpoint: SeqNum,
    /// A state that was fetched and is on no disk yet, and the newest checkpoint that was taken from there on (D5).
    unkept: Option<(SeqNum, SeqNum)>,
    /// The highest stable checkpoint that it ever had, and may have announced.
    highest: SeqNum,
    /// P: the newest view in which each number prepared here, above the stable checkpoint.
    pub prepared: BTreeMap<u64, (ViewNum, Digest)>,
}

impl Facts {
    /// Returns what is known of a replica that starts for the first time.
    pub fn new(id: ReplicaId, correct: bool) -> Self {
        Self {
            id,
            correct,
            remembers: true,
            misled: false,
            view: ViewNum(0),
            normal: true,
            stable: SeqNum(0),
            executed: SeqNum(0),
            tentative: None,
            read_floor: SeqNum(0),
            transferring: false,
            diverged: false,
            was_faulty: false,
            damaged: false,
            damaged_in_repair: false,
            checkpoint: SeqNum(0),
            unkept: None,
            highest: SeqNum(0),
            prepared: BTreeMap::new(),
        }
    }

    /// Returns whether it is correct at the moment, so that it may be counted on.
    pub fn counts(&self) -> bool {
        self.correct && self.remembers && !self.misled && !self.damaged
    }

    /// Returns whether it can have announced a stable checkpoint at `seq` or above.
    pub fn was_stable_at(&self, seq: SeqNum) -> bool {
        self.highest >= seq
    }

    /// It has found out that it has no memory.
    pub fn forgets(&mut self) {
        (self.remembers, self.misled) = (false, false);
    }

    /// It starts from its disk: with the state of checkpoint `seq`, in `view`, and what it had prepared.
    pub fn restart(
        &mut self,
        (seq, stable): (SeqNum, SeqNum),
        (view, normal): (ViewNum, bool),
        prepared: &[(SeqNum, ViewNum, Digest)],
    ) {
        // I7: what it said of later views, it said after that was on the disk.
        (self.view, self.normal) = (view, normal);
        self.executed = seq;
        self.tentative = None;
        self.transferring = false;
        self.diverged = false;
        (self.damaged, self.damaged_in_repair) = (false, false);
        self.stable = stable;
        self.highest = self.highest.max(stable);
        self.unkept = None;
        if self.checkpoint == SeqNum(0) {
            self.checkpoint = stable; // it was not watched when it took that one
        }
        self.prepared.clear();
        for (seq, view, digest) in prepared {
            let newest = self.prepared.entry(seq.0).or_insert((*view, *digest));
            if newest.0 <= *view {
                *newest = (*view, *digest);
            }
        }
        let last = self.prepared.last_key_value().map_or(0, |(seq, _)| *seq);
        self.read_floor = SeqNum(last);
    }

    /// It has the state of checkpoint `seq`.
    pub fn hold(&mut self, seq: SeqNum, from: Root) {
        match (from, &mut self.unkept) {
            (Root::Fetched, unkept) => *unkept = Some((seq, seq)),
            (Root::Cut, Some((_, newest))) => *newest = seq.max(*newest),
            (Root::Cut | Root::Kept, _) => self.checkpoint = self.checkpoint.max(seq),
        }
    }

    /// The state of checkpoint `seq` is on its disk.
    pub fn keep(&mut self, seq: SeqNum) {
        if let Some((_, newest)) = self.unkept.take_if(|(base, _)| *base <= seq) {
            self.checkpoint = self.checkpoint.max(newest);
        }
    }

    /// Its state is damaged behind its back.
    pub fn damage(&mut self) {
        (self.damaged, self.was_faulty) = (true, true);
        self.damaged_in_repair |= self.diverged;
    }

    /// It starts with nothing.
    pub fn forget(&mut self) {
        let (was_faulty, highest) = (self.was_faulty, self.highest);
        *self = Self { remembers: false, was_faulty, highest, ..Self::new(self.id, self.correct) };
    }

    /// It reports a milestone.
    pub fn milestone(&mut self, milestone: &Milestone) -> Verdict {
        match *milestone {
            Milestone::Prepared { seq, digest } => _ = self.prepared.insert(seq.0, (self.view, digest)),
            Milestone::Stable { seq, .. } => {
                self.stable = self.stable.max(seq);
                self.highest = self.highest.max(seq);
                self.prepared = self.prepared.split_off(&(self.stable.0 + 1));
            }
            Milestone::ViewChangeStarted { view } => {
                self.enter(view)?;
                self.normal = false;
            }
            Milestone::ViewEntered { view, last } => {
                self.enter(view)?;
                self.normal = true;
                self.read_floor = last;
            }
            Milestone::TransferStarted { .. } => self.transferring = true,
            Milestone::TransferFinished { seq } => {
                self.transferring = false;
                if seq < self.stable {
                    let text = format!(
                        "{} has fetched the state after n={}, and n={} is stable there",
                        self.id, seq.0, self.stable.0
                    );
                    return Err(Violation::new("low water mark (I6)", text, &[self.id]));
                }
                // A repair looks at every page, once.
                self.damaged &= !self.diverged || self.damaged_in_repair;
                (self.diverged, self.damaged_in_repair) = (false, false);
            }
            Milestone::Diverged { .. } => self.diverged = true,
            Milestone::Rejoined { .. } => self.remembers = true,
            _ => {}
        }
        Ok(())
    }

    /// I7: its view never decreases.
    fn enter(&mut self, view: ViewNum) -> Verdict {
        if view < self.view {
            let text = format!("{} goes from v={} back to v={}", self.id, self.view.0, view.0);
            return Err(Violation::new("views (I7)", text, &[self.id]));
        }
        self.view = view;
        Ok(())
    }

    /// It has a batch executed: the next one, at most one of them tentative (EX-1, TE-1).
    pub fn execute(&mut self, seq: SeqNum, batch: &Arc<Batch>, tentative: bool) -> Verdict {
        if self.tentative.is_some() || seq != self.executed.next() {
            let text = format!(
                "{} executes n={} after n={}, tentative {:?}",
                self.id,
                seq.0,
                self.executed.0,
                self.tentative.as_ref().map(|(seq, _)| seq.0)
            );
            return Err(Violation::new("order (I6, TE-1)", text, &[self.id]));
        }
        if !batch.is_complete() {
            let text = format!("{} executes n={} without all bodies", self.id, seq.0);
            return Err(Violation::new("bodies (I10)", text, &[self.id]));
        }
        if tentative {
            self.tentative = Some((seq, batch.clone()));
        } else {
            self.executed = seq;
        }
        Ok(())
    }

    /// Its tentative batch becomes final; returns it.
    pub fn merge(&mut self, seq: SeqNum) -> Result<Arc<Batch>, Violation> {
        match self.tentative.take() {
            Some((tentative, batch)) if tentative == seq => {
                self.executed = seq;
                Ok(batch)
            }
            other => {
                let found = other.map(|(seq, _)| seq.0);
                let text = format!("{} merges n={}, tentative is {found:?}", self.id, seq.0);
                Err(Violation::new("order (TE-2)", text, &[self.id]))
            }
        }
    }

    /// Its tentative batch is dropped if it is above `after`.
    pub fn undo(&mut self, after: SeqNum) {
        if self.tentative.as_ref().is_some_and(|(seq, _)| *seq > after) {
            self.tentative = None;
        }
    }
}

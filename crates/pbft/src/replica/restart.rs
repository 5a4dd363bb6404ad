//! Starting, and restarting from the log (spec §14.3).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::frame::Frame;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::Lives;
use quorate_wire::message::{NewView, ProofMessage, SuspectReason, ViewChange};
use quorate_wire::{Batch, Digest, Signed};

use crate::io::record::{self, Record};
use crate::io::step::{Action, Actions, Lsn, Milestone, Now, Timer};
use crate::order::log::Proposal;
use crate::recovery::lives::{LivesKnown, Table};
use crate::replica::{Replica, Status};
use crate::view::candidate::Candidate;

/// The initial state of a replica.
#[derive(Clone, Debug)]
pub enum Resume {
    /// The first start of a new cluster: the initial state, nothing said yet.
    Fresh {
        /// The incarnation: a counter in the high 44 bits, chance in the low 20 (§14.3).
        incarnation: u64,
    },
    /// Its own log and an image of its state.
    Restart(Restart),
    /// It has lost its log, or must not trust it: it rejoins (§14.4).
    Amnesia {
        /// The incarnation.
        incarnation: u64,
    },
}

/// The data from the disk. The driver has checked its checksums and cut an incomplete tail.
#[derive(Clone, Debug)]
pub struct Restart {
    /// The incarnation, higher than every one before.
    pub incarnation: u64,
    /// The records of the log, oldest first.
    pub records: Vec<Vec<u8>>,
    /// The checkpoint whose image the executor has loaded, and its root.
    pub checkpoint: (SeqNum, Digest),
    /// The last executed timestamp of each client lane in that image.
    pub clients: Vec<(ClientId, Timestamp)>,
    /// The lives of the replicas that have had more than one, in that image (RC-11).
    pub lives: Vec<(ReplicaId, Lives)>,
}

impl Replica {
    /// Handles the first input.
    pub(crate) fn start(&mut self, now: Now, resume: &Resume, out: &mut Actions) {
        let incarnation = match resume {
            Resume::Fresh { incarnation } | Resume::Amnesia { incarnation } => *incarnation,
            Resume::Restart(restart) => restart.incarnation,
        };
        self.peers.own = self.start_of(incarnation);
        Self::set_timer(out, Timer::Status, now.mono_ns.saturating_add(self.config.status_ns));
        match resume {
            // The digest of the initial state, which VIEW-CHANGEs name as checkpoint 0.
            Resume::Fresh { .. } => out.push(Action::Checkpoint { seq: SeqNum(0) }),
            Resume::Amnesia { .. } => {
                out.push(Action::Checkpoint { seq: SeqNum(0) });
                out.report(Milestone::RejoinStarted { incarnation });
                self.start_rejoin(now, out);
            }
            Resume::Restart(restart) => {
                out.report(Milestone::Restarted { incarnation });
                self.restart(now, restart, out);
            }
        }
        self.status_soon(now, out);
    }

    /// Rebuilds what was promised, and takes up the work where that allows it.
    fn restart(&mut self, now: Now, restart: &Restart, out: &mut Actions) {
        let (image, root) = restart.checkpoint;
        let history = History::read(&restart.records, &self.domains);
        // The log may know of a later stable checkpoint than the image on the disk is of (D5, D6), or the image be
        // of a state that was fetched and not known to be stable. The window is that of the stable one: votes
        // up to h + L were given, and none of them may be forgotten.
        let (stable, stable_root) = match history.stable {
            Some(known) => known,
            // Written by a version that made images of stable checkpoints only.
            None => (image, root),
        };
        self.exec.restart_at(image);
        if stable > SeqNum(0) {
            self.log.advance(stable);
        }
        self.checkpoints.own.insert(stable, stable_root);
        if image > stable {
            self.checkpoints.own.insert(image, root);
            self.checkpoints.note_fetched(image);
        }
        self.clients.reload(&restart.clients);
        self.recovery.note_transfer(&restart.lives, image);
        self.lives = LivesKnown::starting(image, Table::new(restart.lives.clone()));
        self.restore_slots(&history);
        self.peers.restore(&history.seen);
        self.resume_view(now, &history);
        self.judge_view();
        if stable > image {
            self.execute_from_log(now, &history, (stable, stable_root), out);
        }
        // RO-4: what prepared here may have been shown to clients, and what committed or was fetched was.
        self.reads.shown = mutant!(M61, history.shown.max(stable).max(image), SeqNum(0));
        self.reads.floor = mutant!(M61, self.reads.shown.max(history.last_prepared), SeqNum(0));
        if self.cluster.n() > 1 {
            self.recovery.await_echoes();
        }
        if let Some(frame) = &history.view_change
            && self.status == Status::ViewChange
        {
            out.forward(crate::io::step::Recipient::All, quorate_wire::Kind::ViewChange, Lsn(0), frame);
        }
        self.vote_for_own_new_view(out);
        // It may have proposed what it has forgotten how to continue: hand over (§14.3.3).
        if self.is_normal() && self.is_primary() && self.cluster.n() > 1 {
            self.hand_off(now, out);
        }
        // What its NEW-VIEW chose and it had not voted for yet (L7).
        mutant!(M93, self.adopt_rest_of_new_view(now, out), ());
        self.try_execute(now, out);
        self.exec.replayed_to = self.exec.final_to;
        self.watch.note_odd(self.log.high());
        self.watch_recoveries(now, out);
    }

    /// Takes what was said about numbers of the window into the slots that every later vote is checked
    /// against.
    fn restore_slots(&mut self, history: &History) {
        self.recovery.note_prepared(history.last_prepared);
        for (view, seq, digest) in &history.pre_prepared {
            let Some(slot) = self.log.get_mut(*seq) else { continue };
            slot.claim(*digest, *view);
            if mutant!(M41, slot.voted.is_none_or(|(voted, _)| voted <= *view), false) {
                slot.voted = Some((*view, *digest));
            }
        }
        for (view, seq, digest) in &history.prepared {
            let Some(slot) = self.log.get_mut(*seq) else { continue };
            let Some(batch) = history.batches.get(digest) else { continue };
            slot.claim(*digest, *view);
            let newest = slot.prepared.as_ref().is_none_or(|(prepared, _)| prepared <= view);
            if mutant!(M62, newest, slot.prepared.is_none()) {
                slot.prepared = Some((*view, batch.clone()));
                slot.logged = Some(*digest);
            }
        }
        for (seq, digest) in &history.committed {
            let Some(slot) = self.log.get_mut(*seq) else { continue };
            slot.committed = Some(*digest);
            slot.fetched = history.batches.get(digest).cloned();
        }
    }

    /// Executes again what the log has between the image and the stable checkpoint; where it has gaps, the
    /// state is fetched.
    fn execute_from_log(&mut self, now: Now, history: &History, stable: (SeqNum, Digest), out: &mut Actions) {
        let (last, root) = stable;
        out.report(Milestone::Stable { seq: last, root });
        for n in self.exec.executed.0 + 1..=last.0 {
            let seq = SeqNum(n);
            let digest = history.committed.get(&seq);
            let batch = digest.and_then(|digest| history.batches.get(digest)).filter(|b| b.is_complete());
            let Some(batch) = batch else {
                // It was fetched, and its image was lost: the disk has it when the next one is there (D5).
                self.checkpoints.await_image(last);
                return self.start_transfer(now, last, root, false, out);
            };
            for request in batch.requests() {
                self.clients.note_executed(request.client, request.timestamp);
            }
            self.hand_over(seq, batch.clone(), out);
        }
    }

    /// Its own NEW-VIEW is its vote for all that it takes over, and goes to the others again. If power was lost before
    /// those votes were on the disk, they are recorded now: in the next view change it has to claim them (DP-7).
    fn vote_for_own_new_view(&mut self, out: &mut Actions) {
        let entered = self.views.entered.as_ref().filter(|c| c.view() == self.view && self.is_normal());
        let Some(own) = entered.map(|c| c.message.clone()).filter(|m| m.sender() == self.id) else { return };
        let (view, mut seq) = (own.body().view, own.body().checkpoint.0);
        for digest in &own.body().chosen {
            seq = seq.next();
            if self.log.get(seq).is_some_and(|slot| slot.voted.is_none_or(|(voted, _)| voted < view)) {
                self.record_vote(view, seq, *digest, out);
            }
        }
    }

    /// Returns to the view at the end of the log: I7.
    fn resume_view(&mut self, now: Now, history: &History) {
        self.view = mutant!(M40, history.view, ViewNum(0));
        if let Some(frame) = &history.view_change {
            self.status = Status::ViewChange;
            // Votes were of the last view in which it was in normal operation: none of them returns.
            self.log.restore_view(ViewNum(history.view.0.saturating_sub(1)));
            if let Some(own) = read_view_change(frame, self) {
                self.views.keep_own(Arc::new(own));
            }
            return;
        }
        self.status = Status::Normal;
        self.log.restore_view(history.view);
        self.batcher.assigned = self.log.high();
        let candidate = history
            .new_view
            .as_ref()
            .and_then(|bytes| record::frames(bytes).ok().and_then(|frames| read_new_view(&frames, self)));
        if let Some(candidate) = candidate {
            let body = candidate.message.body();
            self.log.set_low(body.checkpoint.0);
            self.views.last_fixed = body.last();
            self.views.entered = Some(candidate);
        }
        let view = self.view;
        for seq in self.log.numbers() {
            let Some(slot) = self.log.get_mut(seq) else { continue };
            // What it voted for in this view, it stands by (PP-3).
            let Some((_, digest)) = slot.voted.filter(|(voted, _)| *voted == view) else { continue };
            let batch = slot.batch(&digest).cloned();
            slot.proposal = Some(Proposal { digest, batch, authentic: true, since: now.mono_ns });
            slot.prepares.insert(self.id, digest);
            if slot.prepared.as_ref().is_some_and(|(v, b)| *v == view && b.digest() == digest) {
                slot.commits.insert(self.id, digest);
            }
        }
    }

    /// Returns why a view is left by a primary that shuts down in order.
    pub fn shut_down(&mut self, now: Now, out: &mut Actions) {
        if self.is_normal() && self.is_primary() {
            self.handing_off = true;
            self.suspect(now, SuspectReason::SelfHandoff, out);
        }
    }
}

/// The committed batches in a log after an image, for examining a stopped replica.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The batches, from the one behind the image on, without a gap.
    pub batches: Vec<(SeqNum, Arc<Batch>)>,
    /// The newest stable checkpoint, and its root.
    pub stable: Option<(SeqNum, Digest)>,
}

impl Committed {
    /// Reads the records, oldest first. `image` is the last batch that the image reflects.
    pub fn read(records: &[Vec<u8>], domains: &Domains, image: SeqNum) -> Self {
        let history = History::read(records, domains);
        let mut batches = Vec::new();
        let mut seq = SeqNum(image.0 + 1);
        while let Some(digest) = history.committed.get(&seq)
            // Null batches are all one: the same digest can stand at several numbers.
            && let Some(batch) = history.batches.get(digest).filter(|batch| batch.is_complete())
        {
            batches.push((seq, batch.clone()));
            seq = SeqNum(seq.0 + 1);
        }
        Self { batches, stable: history.stable }
    }
}

/// The content of the log, sorted.
#[derive(Debug, Default)]
struct History {
    stable: Option<(SeqNum, Digest)>,
    pre_prepared: Vec<(ViewNum, SeqNum, Digest)>,
    prepared: Vec<(ViewNum, SeqNum, Digest)>,
    last_prepared: SeqNum,
    /// The last number that committed here, or whose state was fetched.
    shown: SeqNum,
    committed: BTreeMap<SeqNum, Digest>,
    batches: BTreeMap<Digest, Arc<Batch>>,
    view: ViewNum,
    view_change: Option<Vec<u8>>,
    new_view: Option<Vec<u8>>,
    seen: Vec<u8>,
}

impl History {
    /// Reads the records, oldest first.
    fn read(records: &[Vec<u8>], domains: &Domains) -> Self {
        let mut history = Self::default();
        for record in records.iter().filter_map(|bytes| Record::decode(bytes).ok()) {
            history.add(&record, domains);
        }
        history
    }

    fn add(&mut self, record: &Record<'_>, domains: &Domains) {
        match record {
            Record::PrePrepared { view, seq, digest } => self.pre_prepared.push((*view, *seq, *digest)),
            Record::Prepared { view, seq, batch } => {
                if let Some(digest) = self.add_batch(batch, domains) {
                    self.prepared.push((*view, *seq, digest));
                    self.last_prepared = self.last_prepared.max(*seq);
                }
            }
            Record::PreparedAgain { view, seq, digest } => {
                self.prepared.push((*view, *seq, *digest));
                self.last_prepared = self.last_prepared.max(*seq);
            }
            Record::Batch { seq, batch } => {
                self.add_batch(batch, domains);
                self.shown = self.shown.max(*seq);
            }
            Record::Floor { seq } => self.shown = self.shown.max(*seq),
            Record::ViewChange { view, frame } => {
                if *view > self.view {
                    (self.view, self.view_change, self.new_view) = (*view, Some(frame.to_vec()), None);
                }
            }
            Record::NewView { view, frames } => {
                if *view >= self.view {
                    (self.view, self.view_change, self.new_view) = (*view, None, Some(frames.to_vec()));
                }
            }
            Record::Committed { seq, digest } => {
                self.committed.insert(*seq, *digest);
                self.shown = self.shown.max(*seq);
            }
            Record::Seen { starts, .. } => self.seen = starts.to_vec(),
            Record::Stable { seq, root } => {
                if self.stable.is_none_or(|(newest, _)| newest <= *seq) {
                    self.stable = Some((*seq, *root));
                }
            }
        }
    }

    fn add_batch(&mut self, bytes: &[u8], domains: &Domains) -> Option<Digest> {
        let batch = record::decode_batch(bytes, domains).ok()?;
        let digest = batch.digest();
        self.batches.insert(digest, Arc::new(batch));
        Some(digest)
    }
}

/// Reads a VIEW-CHANGE that this replica wrote to its own log.
fn read_view_change(bytes: &[u8], replica: &Replica) -> Option<Signed<ViewChange>> {
    let frame = Frame::decode(bytes).ok()?;
    let body = ViewChange::decode(frame.body).ok()?;
    Signed::reread(&replica.domains, &frame, body)
}

fn read_new_view(frames: &[&[u8]], replica: &Replica) -> Option<Candidate> {
    let (first, rest) = frames.split_first()?;
    let frame = Frame::decode(first).ok()?;
    let body = NewView::decode(frame.body).ok()?;
    let message = Arc::new(Signed::reread(&replica.domains, &frame, body)?);
    let (changes, told) = rest.split_at_checked(message.body().view_changes.len())?;
    let mut named = Vec::new();
    for bytes in changes {
        named.push(Some(Arc::new(read_view_change(bytes, replica)?)));
    }
    let mut proofs = Vec::new();
    for bytes in told {
        let frame = Frame::decode(bytes).ok()?;
        let body = ProofMessage::decode(frame.body).ok()?;
        proofs.push(Arc::new(Signed::reread(&replica.domains, &frame, body)?));
    }
    Some(Candidate { message, named, proofs })
}

#[cfg(test)]
mod tests {
    use quorate_wire::codec::Writer;
    use quorate_wire::digest::ClusterId;

    use super::*;

    /// [OSDI99 §4.4] A new view fills its gaps with null batches, which are all one; after a fail-over there are often several
    /// in a row. A reader of the log must not take the second one for its end.
    #[test]
    fn the_same_null_batch_is_read_at_several_numbers() {
        let domains = Domains::new(ClusterId([7; 32]));
        let mut null = Batch::default();
        null.seal(&domains, &[]);
        let (bytes, digest) = (record::encoded(&null), null.digest());
        let mut records = Vec::new();
        for seq in [1, 2, 3].map(SeqNum) {
            for record in
                [Record::Prepared { view: ViewNum(1), seq, batch: &bytes }, Record::Committed { seq, digest }]
            {
                let mut out = Vec::new();
                record.encode(&mut Writer::new(&mut out));
                records.push(out);
            }
        }
        let read = Committed::read(&records, &domains, SeqNum(0));
        let numbers: Vec<u64> = read.batches.iter().map(|(seq, _)| seq.0).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }
}

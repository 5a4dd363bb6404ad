//! Starting, and starting again from the log (spec §14.3).

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::frame::Frame;
use quorate_wire::id::{ClientId, SeqNum, Timestamp, ViewNum};
use quorate_wire::message::{NewView, SuspectReason, ViewChange};
use quorate_wire::{Digest, Signed};

use crate::enter_view::Candidate;
use crate::log::Proposal;
use crate::record::{self, Record};
use crate::replica::{Replica, Status};
use crate::step::{Action, Actions, Lsn, Milestone, Now, Timer};

/// What a replica starts from.
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

/// What the disk gives back. The driver has checked its checksums and cut a torn tail.
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
}

impl Replica {
    /// Handles the first input.
    pub(crate) fn start(&mut self, now: Now, resume: &Resume, out: &mut Actions) {
        self.peers.incarnation = match resume {
            Resume::Fresh { incarnation } | Resume::Amnesia { incarnation } => *incarnation,
            Resume::Restart(restart) => restart.incarnation,
        };
        let incarnation = self.peers.incarnation;
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
        let (stable, root) = restart.checkpoint;
        self.exec.restart_at(stable);
        if stable > SeqNum(0) {
            self.log.advance(stable);
        }
        self.checkpoints.own.insert(stable, root);
        self.clients.reload(&restart.clients);
        self.recovery.note_transfer(&restart.clients, stable);
        let mut history = History::default();
        for bytes in &restart.records {
            if let Ok(record) = Record::decode(bytes) {
                self.replay(&record, &mut history);
            }
        }
        self.resume_view(now, &history);
        // RO-4: what prepared here may have been shown to clients.
        self.reads.floor = self.recovery_prepared();
        if self.cluster.n() > 1 {
            self.recovery.await_echoes();
        }
        if let Some(frame) = &history.view_change
            && self.status == Status::ViewChange
        {
            out.forward(crate::step::Recipient::All, quorate_wire::Kind::ViewChange, Lsn(0), frame);
        }
        // It may have proposed what it has forgotten how to continue: hand over (§14.3.3).
        if self.is_normal() && self.is_primary() && self.cluster.n() > 1 {
            self.hand_off(now, out);
        }
        self.try_execute(now, out);
        self.watch_recoveries(now, out);
    }

    fn recovery_prepared(&self) -> SeqNum {
        let of = self.log.iter().filter(|slot| slot.prepared.is_some()).map(|slot| slot.seq);
        of.max().unwrap_or(self.log.stable())
    }

    /// Takes one record into the maps that every later vote is checked against.
    fn replay(&mut self, record: &Record<'_>, history: &mut History) {
        match record {
            Record::PrePrepared { view, seq, digest } => {
                let Some(slot) = self.log.get_mut(*seq) else { return };
                slot.claim(*digest, *view);
                if mutant!(M41, slot.voted.is_none_or(|(voted, _)| voted <= *view), false) {
                    slot.voted = Some((*view, *digest));
                }
            }
            Record::Prepared { view, seq, batch } => {
                let Ok(batch) = record::decode_batch(batch, &self.domains) else { return };
                self.recovery.note_prepared(*seq);
                let Some(slot) = self.log.get_mut(*seq) else { return };
                slot.claim(batch.digest(), *view);
                if slot.prepared.as_ref().is_none_or(|(prepared, _)| prepared <= view) {
                    slot.prepared = Some((*view, Arc::new(batch)));
                }
            }
            Record::ViewChange { view, frame } => {
                if *view > history.view {
                    *history =
                        History { view: *view, view_change: Some(frame.to_vec()), ..History::default() };
                }
            }
            Record::NewView { view, frames } => {
                if *view >= history.view {
                    let (view, new_view) =
                        (*view, record::frames(frames).ok().and_then(|f| read_new_view(&f, self)));
                    *history = History { view, view_change: None, new_view };
                }
            }
            Record::Committed { seq, digest } => {
                if let Some(slot) = self.log.get_mut(*seq) {
                    slot.committed = Some(*digest);
                }
            }
            Record::Stable { .. } => {}
        }
    }

    /// Goes back into the view that the log ends in: I7.
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
        if let Some(candidate) = &history.new_view {
            let body = candidate.message.body();
            self.log.set_low(body.checkpoint.0);
            self.views.last_fixed = body.last();
            self.views.entered = Some(candidate.clone());
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

    /// Says why a view is left by a primary that shuts down in order.
    pub fn shut_down(&mut self, now: Now, out: &mut Actions) {
        if self.is_normal() && self.is_primary() {
            self.handing_off = true;
            self.suspect(now, SuspectReason::SelfHandoff, out);
        }
    }
}

/// What the log says of views.
#[derive(Debug, Default)]
struct History {
    view: ViewNum,
    view_change: Option<Vec<u8>>,
    new_view: Option<Candidate>,
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
    let mut named = Vec::new();
    for bytes in rest {
        named.push(Some(Arc::new(read_view_change(bytes, replica)?)));
    }
    (named.len() == message.body().view_changes.len()).then_some(Candidate { message, named })
}

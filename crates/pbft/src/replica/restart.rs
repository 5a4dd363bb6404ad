//! Starting, and restarting from the log (spec §14.3).

use alloc::sync::Arc;

use quorate_wire::Digest;
use quorate_wire::id::{SeqNum, ViewNum};
use quorate_wire::life::Life;
use quorate_wire::message::SuspectReason;

use crate::io::record::{self};
use crate::io::resume::{Restart, Resume};
use crate::io::step::{Action, Actions, Lsn, Milestone, Now, Timer};
use crate::recovery::history::{History, read_new_view, read_view_change};
use crate::recovery::lives::{LivesKnown, Table};
use crate::replica::Replica;
use crate::view::views::Status;

impl Replica {
    /// Handles the first input.
    #[cold]
    pub(super) fn start(&mut self, now: Now, resume: &Resume, out: &mut Actions) {
        let incarnation = match resume {
            Resume::Fresh { incarnation } | Resume::Amnesia { incarnation } => *incarnation,
            Resume::Restart(restart) => restart.incarnation,
        };
        self.peers.start(self.start_of(incarnation));
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
        self.peers.send_soon(now, out);
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
        self.exec.note_time(restart.time_ns);
        if stable > SeqNum(0) {
            self.log.advance(stable);
            self.promises.restore_stable(stable);
        }
        self.checkpoints.take(stable, stable_root, Lsn(0));
        if image > stable {
            self.checkpoints.adopt(image, root, Lsn(0));
        }
        self.clients.reload(&restart.clients);
        self.recovery.note_lives(&restart.lives, image);
        self.lives = LivesKnown::starting(image, Table::new(restart.lives.clone()));
        self.restore_slots(&history);
        self.peers.restore(&history.seen);
        self.resume_view(now, &history);
        self.judge_view();
        if stable > image {
            self.execute_from_log(now, &history, (stable, stable_root), out);
        }
        // RO-4: what prepared here may have been shown to clients, and what committed or was fetched was.
        let shown = history.shown.max(stable).max(image);
        mutant!(M61, self.reads.restore(shown, history.last_prepared), ());
        if self.cluster.n() > 1 {
            self.recovery.await_echoes();
        }
        if let Some(frame) = &history.view_change
            && !frame.is_empty()
        {
            out.forward(crate::io::step::Recipient::All, quorate_wire::Kind::ViewChange, Lsn(0), frame);
        }
        self.vote_for_own_new_view(out);
        // It may have proposed what it has forgotten how to continue: hand over (§14.3.3).
        if self.is_normal() && self.is_primary() && self.cluster.n() > 1 {
            self.shut_down(now, out);
        }
        // What its NEW-VIEW chose and it had not voted for yet (L7).
        mutant!(M93, self.adopt_rest_of_new_view(now, out), ());
        self.try_execute(now, out);
        self.exec.note_replayed();
        self.watch.note_odd(self.log.high());
        self.watch_recoveries(now, out);
    }

    /// Takes what was said about numbers of the window into the slots that every later vote is checked
    /// against.
    fn restore_slots(&mut self, history: &History) {
        self.recovery.note_prepared(history.last_prepared);
        for (view, seq, digest) in &history.pre_prepared {
            let Some(slot) = self.log.slot_mut(*seq) else { continue };
            slot.restore_vote(*view, *digest);
        }
        for (view, seq, digest) in &history.prepared {
            let Some(slot) = self.log.slot_mut(*seq) else { continue };
            let Some(batch) = history.batches.get(digest) else { continue };
            slot.restore_prepared(*view, batch);
        }
        for (seq, digest) in &history.committed {
            let Some(slot) = self.log.slot_mut(*seq) else { continue };
            slot.restore_committed(*digest, history.batches.get(digest).cloned());
        }
    }

    /// Executes again what the log has between the image and the stable checkpoint; where it has gaps, the
    /// state is fetched.
    fn execute_from_log(&mut self, now: Now, history: &History, stable: (SeqNum, Digest), out: &mut Actions) {
        let (last, root) = stable;
        out.report(Milestone::Stable { seq: last, root });
        for n in self.exec.executed().0 + 1..=last.0 {
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
        let entered = self.evidence.entered_in(self.views.view()).filter(|_| self.is_normal());
        let Some(own) = entered.map(|c| c.message().clone()).filter(|m| m.sender() == self.id) else {
            return;
        };
        let (view, mut seq) = (own.body().view, own.body().checkpoint.0);
        for digest in &own.body().chosen {
            seq = seq.next();
            if self.log.get(seq).is_some_and(|slot| slot.voted().is_none_or(|(voted, _)| voted < view)) {
                let after = self.record_vote(view, seq, *digest, out);
                self.evidence.send_entered_after(after);
            }
        }
    }

    /// Returns to the view at the end of the log: I7.
    fn resume_view(&mut self, now: Now, history: &History) {
        let view = mutant!(M40, history.view, ViewNum(0));
        if let Some(frame) = &history.view_change {
            self.views.restore(view, Status::ViewChange);
            // Votes were of the last view in which it was in normal operation: none of them returns.
            self.log.restore_view(ViewNum(history.view.0.saturating_sub(1)));
            let own = read_view_change(frame, &self.domains);
            // RC-11c: it may have sent a NEW-VIEW for this view before a rejoin. The log does not say which view it learned then.
            if own.as_ref().is_none_or(|own| own.body().life != Life::default()) {
                self.recovery.lead_only_above(view);
            }
            if let Some(own) = own {
                self.evidence.keep_own(Arc::new(own), Lsn(0));
            }
            return;
        }
        self.views.restore(view, Status::Normal);
        self.log.restore_view(history.view);
        self.batcher.skip_to(self.log.high());
        let candidate = history.new_view.as_ref().and_then(|bytes| {
            record::frames(bytes).ok().and_then(|frames| read_new_view(&frames, &self.domains))
        });
        if let Some(candidate) = candidate {
            let body = candidate.message().body();
            self.log.set_low(body.checkpoint.0);
            self.views.restore_fixed(body.last());
            self.evidence.enter(candidate, Lsn(0));
        }
        for seq in self.log.numbers() {
            if let Some(slot) = self.log.slot_mut(seq) {
                slot.resume(view, self.id, now.mono_ns);
            }
        }
    }

    /// Returns why a view is left by a primary that shuts down in order.
    pub fn shut_down(&mut self, now: Now, out: &mut Actions) {
        if self.is_normal() && self.is_primary() {
            self.views.hand_off();
            self.suspect(now, SuspectReason::SelfHandoff, out);
        }
    }
}

//! Checkpoints and garbage collection [OSDI99 §4.3], spec §8.

use quorate_wire::Digest;
use quorate_wire::id::{ReplicaId, SeqNum};
use quorate_wire::message::{Checkpoint, Kind};

use crate::io::step::{Action, Actions, Lsn, Milestone, Now, Recipient, Reject};
use crate::replica::Replica;

impl Replica {
    /// The state's digest after batch `seq` is known: "it multicasts a message CHECKPOINT to the other
    /// replicas" [OSDI99 §4.3], CK-1.
    #[cold]
    pub(super) fn on_checkpointed(&mut self, now: Now, seq: SeqNum, root: Digest, out: &mut Actions) {
        if seq < self.log.stable() || seq > mutant!(M30, self.exec.final_to(), seq) {
            return; // overtaken by a transfer
        }
        // Executed again from the log, to a checkpoint that was certified before.
        if let Some(certified) = self.checkpoints.root(seq).filter(|certified| *certified != root) {
            out.report(Milestone::Diverged { seq });
            return self.start_transfer(now, seq, certified, true, out);
        }
        self.checkpoints.take(seq, root, self.promises.last());
        if seq == SeqNum(0) {
            // The initial state, which everyone has. A restart from a later image still has to name its root.
            self.promises.persist_stable(seq, root, out);
            // A VIEW-CHANGE may wait for this (VC-5).
            return self.on_view_changes_grown(now, out);
        }
        out.report(Milestone::CheckpointTaken { seq, root });
        self.say_checkpoint(seq, root, Recipient::All, out);
        self.judge_checkpoint(now, seq, out);
        if self.is_window_full() {
            self.peers.send_now(now, out);
        }
    }

    /// An image of the state after `seq` is on the disk. If it is the one that was fetched, or a later one, what
    /// waited for it is said (D5, ST-6).
    #[cold]
    pub(super) fn on_kept(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        if !self.checkpoints.note_image(seq) {
            return;
        }
        for (seq, root) in self.checkpoints.own().clone() {
            if seq >= self.log.stable() && seq > SeqNum(0) {
                self.say_checkpoint(seq, root, Recipient::All, out);
            }
        }
        self.judge_checkpoints(now, out);
    }

    /// Decides again which of its own checkpoints are stable.
    pub(super) fn judge_checkpoints(&mut self, now: Now, out: &mut Actions) {
        let (stable, mut known) = (self.log.stable(), core::mem::take(&mut self.scratch));
        known.clear();
        known.extend(self.checkpoints.own().keys().filter(|seq| **seq > stable).map(|seq| seq.0));
        for seq in known.iter().map(|seq| SeqNum(*seq)) {
            if seq > self.log.stable() {
                self.judge_checkpoint(now, seq, out);
            }
        }
        self.scratch = known;
    }

    /// Says whether this replica has executed all that the window admits and lacks others' CHECKPOINTs to go on.
    /// Then no primary can make progress, and the request timers run (A24).
    pub(super) fn is_window_full(&self) -> bool {
        self.log.high() > self.log.stable() && self.checkpoints.root(self.log.high()).is_some()
    }

    /// Sends its checkpoints again that are not stable here: if all replicas lack the same, all send them.
    pub(super) fn say_checkpoints_again(&self, out: &mut Actions) {
        for (seq, root) in self.checkpoints.own().clone() {
            if seq > self.log.stable() {
                self.say_checkpoint_again(seq, root, Recipient::All, out);
            }
        }
    }

    /// Sends a CHECKPOINT again. One that still waits for the disk has not left yet: copies of it would take the places of other
    /// messages that wait (L39, L135).
    pub(super) fn say_checkpoint_again(&self, seq: SeqNum, root: Digest, to: Recipient, out: &mut Actions) {
        let after = self.checkpoint_waits_for(seq);
        if mutant!(M59, self.promises.is_durable(after), true) {
            self.say_checkpoint(seq, root, to, out);
        }
    }

    /// Returns what the CHECKPOINT for an own checkpoint waits for. That it is stable has a record of its own (D6).
    fn checkpoint_waits_for(&self, seq: SeqNum) -> Lsn {
        let is_new = seq == self.log.stable() && seq > self.promises.stable();
        if is_new { self.promises.last() } else { self.checkpoints.waits_for(seq) }
    }

    /// Sends the CHECKPOINT for an own checkpoint. It waits for the log up to it, and for the image of a state that
    /// was fetched (D5): others discard what is below because f + 1 correct replicas can bring this back.
    pub(super) fn say_checkpoint(&self, seq: SeqNum, root: Digest, to: Recipient, out: &mut Actions) {
        if self.recovery.is_active() || !self.checkpoints.are_kept() {
            return; // §14.4
        }
        let stable = seq == self.log.stable();
        let after = mutant!(M59, self.checkpoint_waits_for(seq), Lsn(0));
        out.send(to, Kind::Checkpoint, after, |w| Checkpoint { seq, digest: root, stable }.encode(w));
    }

    /// Another replica's state after `seq` has this digest, it says.
    #[cold]
    pub(super) fn on_checkpoint(&mut self, now: Now, from: ReplicaId, m: &Checkpoint, out: &mut Actions) {
        if !self.config.is_checkpoint(m.seq) || m.seq == SeqNum(0) {
            return out.reject(Reject::NotACheckpoint);
        }
        if m.seq <= self.log.stable() {
            return out.reject(Reject::OutsideWatermarks);
        }
        if m.seq > self.log.high() && !self.checkpoints.is_followed(m.seq) {
            self.checkpoints.hear_above(from, m.seq, (m.digest, m.stable), self.config.window);
            return self.judge_checkpoint(now, m.seq, out);
        }
        if let Err(reason) = self.checkpoints.hear(from, m.seq, (m.digest, m.stable)) {
            return Self::refuse(from, (reason, reason == Reject::Conflicts), out);
        }
        self.judge_checkpoint(now, m.seq, out);
    }

    /// Decides whether `seq` is stable: "Each replica collects checkpoint messages in its log until it
    /// has 2f + 1 of them for sequence number n with the same digest" [OSDI99 §4.3], CK-2.
    fn judge_checkpoint(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        let quorum = mutant!(M34, self.cluster.quorum(), self.cluster.weak());
        match self.checkpoints.root(seq) {
            Some(root) if seq > self.log.stable() => {
                let (others, proven) = self.checkpoints.support(seq, root);
                let weak = self.cluster.weak();
                // This replica's own statement counts, if its disk can bring that state back; or f + 1 others hold
                // a proof already. Or f + 1 stated this root, now or when it was fetched, and as many say that
                // their stable checkpoint is not below it: a correct one holds a proof.
                let own = usize::from(self.checkpoints.are_kept());
                let certified = others >= weak || self.checkpoints.is_certified(seq);
                let is_known = certified && self.peers.stable_at(seq) >= weak;
                if others + own >= quorum || proven >= mutant!(M57, weak, 1) || is_known {
                    return self.make_stable(now, seq, root, out);
                }
                self.look_for_divergence(now, seq, root, out);
            }
            // CK-4: never on others' evidence without holding the state; a transfer will bring it.
            Some(_) | None => self.note_certified(now, out),
        }
    }

    /// CK-6: a quorum certified another state than this replica's, or none can be certified any more.
    fn look_for_divergence(&mut self, now: Now, seq: SeqNum, root: Digest, out: &mut Actions) {
        let Some(votes) = self.checkpoints.said(seq) else { return };
        let mut best = (root, 1 + self.checkpoints.support(seq, root).0);
        let mut heard = 1;
        for (from, &(digest, _)) in votes.iter() {
            heard += usize::from(from != self.id);
            let count = self.checkpoints.support(seq, digest).0 + usize::from(digest == root);
            if count > best.1 {
                best = (digest, count);
            }
        }
        if mutant!(M83, best.0 != root && best.1 >= self.cluster.quorum(), false) {
            out.report(Milestone::Diverged { seq });
            return self.start_transfer(now, seq, best.0, true, out);
        }
        let silent = self.cluster.n().saturating_sub(heard);
        if best.1 + silent < self.cluster.quorum() {
            out.report(Milestone::Unrepairable { seq });
        }
    }

    /// A checkpoint is stable: the low water mark moves, and "the replica discards all pre-prepare,
    /// prepare, and commit messages with sequence number less than or equal to n from its log; it also
    /// discards all earlier checkpoints and checkpoint messages" [OSDI99 §4.3].
    pub(super) fn make_stable(&mut self, now: Now, seq: SeqNum, root: Digest, out: &mut Actions) {
        assert!(seq > self.log.stable());
        assert!(self.exec.executed() >= seq || self.exec.final_to() >= seq);
        self.help_primary(seq, root, out);
        // Commits that wait for a carrier leave while they may (I8). Somebody may lack just this one: where f
        // are faulty every correct vote counts, and soon nobody remembers the batch.
        self.piggyback.flush(self.log.view(), out);
        out.report(Milestone::Stable { seq, root });
        self.promises.persist_stable(seq, root, out);
        for slot in self.log.iter().take_while(|slot| slot.seq() <= seq) {
            if let Some(batch) = slot.committed().and_then(|digest| slot.batch(&digest)) {
                self.archive.keep(slot.seq(), batch.clone());
            }
        }
        self.log.advance(seq);
        // The table as of this checkpoint may know of lives that have ended (RC-11a).
        self.lives.collect(seq);
        self.judge_view();
        self.reads.note_shown(seq);
        self.promises.persist_seen(self.log.stable(), &self.peers.seen(), out);
        // The others may have gone on in a later view, which this replica does not know of yet.
        self.batcher.skip_to(seq);
        self.promises.forget(self.log.view(), self.log.stable());
        self.checkpoints.collect(seq);
        let log = &self.log;
        self.bodies.collect(|digest| log.iter().any(|slot| slot.lacks(digest)));
        self.lookup.clear();
        self.evidence.collect(seq);
        out.push(Action::Discard { below: seq });
        // TM-4: only if this view has executed all of it, not what it took over.
        if self.is_normal() && seq >= self.views.last_fixed().plus(self.config.checkpoint_interval) {
            self.views.calm_down(self.request_timeout());
        }
        self.adopt_rest_of_new_view(now, out);
        self.look_at_rejoin(now, out);
        self.watch_recoveries(now, out);
        // Others may lack the last vote; it now carries the proof (CK-2).
        let mut n = seq.next();
        while n <= self.log.used_to() {
            self.advance_quietly(now, n, out);
            n = n.next();
        }
        self.propose();
        // A new primary may have waited for this (DP-5).
        if !self.is_normal() {
            self.try_new_view(now, out);
        }
        // The holders of a checkpoint to which a wrong state is being repaired may have discarded it, and the state must
        // not end below the window: the repair goes to this one (CK-6).
        if mutant!(M79, self.target.is_repairing(), false)
            && self.target.get().is_some_and(|(target, _)| target < seq)
        {
            self.start_transfer(now, seq, root, true, out);
        }
    }

    /// A primary that lacks CHECKPOINTs comes to the end of its window, and everyone thinks that it is to blame. One
    /// whose STATUS shows a lower stable checkpoint is told of this one, with its proof.
    fn help_primary(&self, seq: SeqNum, root: Digest, out: &mut Actions) {
        let primary = self.primary();
        let lags = self.peers.known_stable(primary).is_some_and(|stable| stable < seq);
        if primary == self.id || !lags || self.recovery.is_active() || !self.checkpoints.are_kept() {
            return;
        }
        let (to, after) = (Recipient::Replica(primary), self.promises.last());
        let m = Checkpoint { seq, digest: root, stable: true };
        out.send(to, Kind::Checkpoint, after, |w| m.encode(w));
    }

    /// Says whether the primary, by its own STATUS, has come to the end of a window below this replica's: it lacks
    /// CHECKPOINTs, and is told again. If it proposes beyond that window, its STATUS is old (L29).
    pub(super) fn primary_lacks_checkpoints(&self, out: &mut Actions) -> bool {
        let (stable, window) = (self.log.stable(), self.config.window);
        let Some(known) = self.peers.known_stable(self.primary()).filter(|known| *known < stable) else {
            return false;
        };
        let Some(root) = self.checkpoints.root(stable) else { return false };
        self.help_primary(stable, root, out);
        let end = known.plus(window);
        end <= self.exec.executed() && mutant!(M117, self.watch.accepted() <= end, true)
    }

    /// Looks at a number again after the window has moved.
    fn advance_quietly(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        let busy =
            self.log.get(seq).is_some_and(|slot| slot.proposal().is_some() && slot.committed().is_none());
        if busy {
            self.advance(now, seq, out);
        }
    }
}

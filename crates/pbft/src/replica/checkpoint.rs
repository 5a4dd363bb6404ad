//! Checkpoints and garbage collection [OSDI99 §4.3], spec §8.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::id::{ReplicaId, SeqNum};
use quorate_wire::message::{Checkpoint, Kind};
use quorate_wire::{Cluster, Digest};

use crate::io::record::Record;
use crate::io::step::{Action, Actions, Lsn, Milestone, Now, Recipient, Reject};
use crate::order::votes::{Votes, bit, size};
use crate::replica::{Replica, Status};

/// What a replica says of its state at a checkpoint: the root, and whether it holds a proof.
pub(crate) type Statement = (Digest, bool);

/// Checkpoints of this replica and of the others. At most `L / K + 1` numbers inside the window, the one
/// that is fetched, and the newest statement of each replica above the window.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    cluster: Cluster,
    /// This replica's own roots, from the stable checkpoint on.
    pub(crate) own: BTreeMap<SeqNum, Digest>,
    /// All replicas' statements, by number: inside the window, and for the checkpoint that is fetched.
    said: BTreeMap<SeqNum, Votes<Statement>>,
    /// The checkpoint that is fetched or was fetched last. When it is here the others have long gone on: unless
    /// what they said of it were kept, it would never be stable here, and the next would have to be fetched.
    fetched: SeqNum,
    /// The last state that came by a transfer: f + 1 replicas have stated its root.
    certified: SeqNum,
    /// A state that was fetched, and of which no image is on the disk yet. What this replica says of it, and of
    /// checkpoints that it takes from there on, waits for that: the log alone cannot bring them back (D5, ST-6).
    unkept: Option<SeqNum>,
    /// The newest statements of each replica above the window (CK-5): of a checkpoint that is not stable there, and of
    /// one that is. Two replicas that stopped at different numbers may agree on their stable ones only.
    above: Vec<[Option<(SeqNum, Statement)>; 2]>,
}

impl Checkpoints {
    /// Returns a table that knows the initial state's number only.
    pub(crate) fn new(cluster: Cluster) -> Self {
        let above = alloc::vec![[None; 2]; cluster.n()];
        let (own, said) = (BTreeMap::new(), BTreeMap::new());
        Self { cluster, own, said, fetched: SeqNum(0), certified: SeqNum(0), unkept: None, above }
    }

    /// A state was fetched that is not on the disk.
    pub(crate) fn await_image(&mut self, seq: SeqNum) {
        self.unkept = Some(seq);
    }

    /// Says whether own checkpoints are such that the disk can bring them back.
    pub(crate) fn are_kept(&self) -> bool {
        mutant!(M56, self.unkept.is_none(), true)
    }

    /// The state after `seq` was fetched, in this life or an earlier one.
    pub(crate) fn note_fetched(&mut self, seq: SeqNum) {
        self.certified = seq;
    }

    /// Keeps what is said of a checkpoint above the window, which ends at `high`, and of no other one there (DV-44).
    pub(crate) fn follow(&mut self, seq: SeqNum, high: SeqNum) {
        let n = self.cluster.n();
        self.fetched = seq;
        self.said.retain(|n, _| *n <= high || *n == seq);
        for (from, said) in self.above.iter().enumerate() {
            if let Some((_, said)) = said.iter().rev().flatten().find(|(n, _)| *n == seq).copied() {
                self.said.entry(seq).or_insert_with(|| Votes::new(n)).replace(ReplicaId::at(from), said);
            }
        }
    }

    /// Returns how many replicas state `root` at `seq`, and how many of them hold a proof. Each counts
    /// once, also one that was heard above the window and, when that had moved, again inside of it (B1).
    fn support(&self, seq: SeqNum, root: Digest) -> (usize, usize) {
        let inside = self.said.get(&seq).into_iter().flat_map(Votes::iter).map(|(from, said)| (from, *said));
        let above = self.above.iter().enumerate().flat_map(|(from, said)| {
            let there = said.iter().flatten().filter(|(n, _)| *n == seq);
            there.map(move |(_, said)| (ReplicaId::at(from), *said))
        });
        let (mut all, mut proven) = (0, 0);
        for (from, (digest, stable)) in inside.chain(above) {
            if digest == root {
                all |= bit(from);
                proven |= if stable { bit(from) } else { 0 };
            }
        }
        (size(all), size(proven))
    }

    /// Returns the highest checkpoint above `seq` that `f + 1` replicas state alike: one of them is
    /// correct and has that state (ST-1).
    pub(crate) fn certified_above(&self, seq: SeqNum) -> Option<(SeqNum, Digest)> {
        let inside =
            self.said.range(seq.next()..).flat_map(|(n, votes)| votes.iter().map(|(_, (d, _))| (*n, *d)));
        let above = self
            .above
            .iter()
            .flatten()
            .flatten()
            .map(|(n, (digest, _))| (*n, *digest))
            .filter(|(n, _)| *n > seq);
        let mut candidates: Vec<(SeqNum, Digest)> = inside.chain(above).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let weak = mutant!(M33, self.cluster.weak(), 1);
        candidates.into_iter().rev().find(|(n, digest)| self.support(*n, *digest).0 >= weak)
    }

    /// Forgets what is below a stable checkpoint.
    fn collect(&mut self, stable: SeqNum) {
        self.own = self.own.split_off(&stable);
        self.said = self.said.split_off(&stable.next());
        for entry in self.above.iter_mut().flatten() {
            if entry.is_some_and(|(n, _)| n <= stable) {
                *entry = None;
            }
        }
    }
}

impl Replica {
    /// The state's digest after batch `seq` is known: "it multicasts a message CHECKPOINT to the other
    /// replicas" [OSDI99 §4.3], CK-1.
    pub(crate) fn on_checkpointed(&mut self, now: Now, seq: SeqNum, root: Digest, out: &mut Actions) {
        if seq < self.log.stable() || seq > mutant!(M30, self.exec.final_to, seq) {
            return; // overtaken by a transfer
        }
        // Executed again from the log, to a checkpoint that was certified before.
        if let Some(certified) =
            self.checkpoints.own.get(&seq).copied().filter(|certified| *certified != root)
        {
            out.report(Milestone::Diverged { seq });
            return self.start_repair(now, seq, certified, out);
        }
        self.checkpoints.own.insert(seq, root);
        if seq == SeqNum(0) {
            // The initial state, which everyone has. A restart from a later image still has to name its root.
            self.persist(Record::Stable { seq, root }, out);
            // A VIEW-CHANGE may wait for this (VC-5).
            return self.on_view_changes_grown(now, out);
        }
        out.report(Milestone::CheckpointTaken { seq, root });
        self.say_checkpoint(seq, root, Recipient::All, out);
        self.judge_checkpoint(now, seq, out);
        if self.is_window_full() {
            self.status_now(now, out);
        }
    }

    /// An image of the state after `seq` is on the disk. If it is the one that was fetched, or a later one, what
    /// waited for it is said (D5, ST-6).
    pub(crate) fn on_kept(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        if self.checkpoints.unkept.is_none_or(|unkept| unkept > seq) {
            return;
        }
        self.checkpoints.unkept = None;
        for (seq, root) in self.checkpoints.own.clone() {
            if seq >= self.log.stable() && seq > SeqNum(0) {
                self.say_checkpoint(seq, root, Recipient::All, out);
            }
        }
        self.judge_checkpoints(now, out);
    }

    /// Decides again which of its own checkpoints are stable.
    pub(crate) fn judge_checkpoints(&mut self, now: Now, out: &mut Actions) {
        let (stable, mut known) = (self.log.stable(), self.take_scratch());
        known.extend(self.checkpoints.own.keys().filter(|seq| **seq > stable).map(|seq| seq.0));
        for seq in known.iter().map(|seq| SeqNum(*seq)) {
            if seq > self.log.stable() {
                self.judge_checkpoint(now, seq, out);
            }
        }
        self.put_scratch(known);
    }

    /// Says whether this replica has executed all that the window admits and lacks others' CHECKPOINTs to go on.
    /// Then no primary can make progress, and the request timers run (A24).
    pub(crate) fn is_window_full(&self) -> bool {
        self.log.high() > self.log.stable() && self.checkpoints.own.contains_key(&self.log.high())
    }

    /// Sends its checkpoints again that are not stable here: if all replicas lack the same, all send them.
    pub(crate) fn say_checkpoints_again(&mut self, out: &mut Actions) {
        for (seq, root) in self.checkpoints.own.clone() {
            if seq > self.log.stable() {
                self.say_checkpoint(seq, root, Recipient::All, out);
            }
        }
    }

    /// Sends the CHECKPOINT for an own checkpoint. It waits for the log up to it, and for the image of a state that
    /// was fetched (D5): others discard what is below because f + 1 correct replicas can bring this back.
    pub(crate) fn say_checkpoint(&mut self, seq: SeqNum, root: Digest, to: Recipient, out: &mut Actions) {
        if self.recovery.is_active() || !self.checkpoints.are_kept() {
            return; // §14.4
        }
        let stable = seq == self.log.stable();
        let after = mutant!(M59, self.last_lsn(), Lsn(0));
        out.send(to, Kind::Checkpoint, after, |w| Checkpoint { seq, digest: root, stable }.encode(w));
    }

    /// Another replica's state after `seq` has this digest, it says.
    pub(crate) fn on_checkpoint(&mut self, now: Now, from: ReplicaId, m: &Checkpoint, out: &mut Actions) {
        if !self.config.is_checkpoint(m.seq) || m.seq == SeqNum(0) {
            return out.reject(Reject::NotACheckpoint);
        }
        if m.seq <= self.log.stable() {
            return out.reject(Reject::OutsideWatermarks);
        }
        if m.seq > self.log.high() && m.seq != self.checkpoints.fetched {
            // CK-5: the newest of each sender, one that is not stable there and one that is, and no more, so that nobody
            // can fill memory (K10).
            // One that is lower by more than a window is newer all the same: the other was a lie, or from a time
            // before its sender was cleaned.
            let said = self.checkpoints.above.get_mut(from.index());
            if let Some(entry) = said.and_then(|said| said.get_mut(usize::from(m.stable)))
                && entry.is_none_or(|(seq, _)| seq <= m.seq || seq > m.seq.plus(self.config.window))
            {
                *entry = Some((m.seq, (m.digest, m.stable)));
            }
            return self.judge_checkpoint(now, m.seq, out);
        }
        let n = self.cluster.n();
        let votes = self.checkpoints.said.entry(m.seq).or_insert_with(|| Votes::new(n));
        match votes.get(from) {
            Some((digest, _)) if *digest != m.digest => {
                out.report(Milestone::Equivocation { by: from });
                return out.reject(Reject::Conflicts);
            }
            Some((_, proven)) if *proven || !m.stable => return out.reject(Reject::Duplicate),
            Some(_) | None => {}
        }
        votes.replace(from, (m.digest, m.stable));
        self.judge_checkpoint(now, m.seq, out);
    }

    /// Decides whether `seq` is stable: "Each replica collects checkpoint messages in its log until it
    /// has 2f + 1 of them for sequence number n with the same digest" [OSDI99 §4.3], CK-2.
    pub(crate) fn judge_checkpoint(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        let quorum = mutant!(M34, self.cluster.quorum(), self.cluster.weak());
        match self.checkpoints.own.get(&seq).copied() {
            Some(root) if seq > self.log.stable() => {
                let (others, proven) = self.checkpoints.support(seq, root);
                let weak = self.cluster.weak();
                // This replica's own statement counts, if its disk can bring that state back; or f + 1 others hold
                // a proof already. Or f + 1 stated this root, now or when it was fetched, and as many say that
                // their stable checkpoint is not below it: a correct one holds a proof.
                let own = usize::from(self.checkpoints.are_kept());
                let certified = others >= weak || seq == self.checkpoints.certified;
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
        let Some(votes) = self.checkpoints.said.get(&seq) else { return };
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
            return self.start_repair(now, seq, best.0, out);
        }
        let silent = self.cluster.n().saturating_sub(heard);
        if best.1 + silent < self.cluster.quorum() {
            out.report(Milestone::Unrepairable { seq });
        }
    }

    /// A checkpoint is stable: the low water mark moves, and "the replica discards all pre-prepare,
    /// prepare, and commit messages with sequence number less than or equal to n from its log; it also
    /// discards all earlier checkpoints and checkpoint messages" [OSDI99 §4.3].
    pub(crate) fn make_stable(&mut self, now: Now, seq: SeqNum, root: Digest, out: &mut Actions) {
        assert!(seq > self.log.stable());
        assert!(self.exec.executed >= seq || self.exec.final_to >= seq);
        self.help_primary(seq, root, out);
        // Commits that wait for a carrier leave while they may (I8). Somebody may lack just this one: where f
        // are faulty every correct vote counts, and soon nobody remembers the batch.
        self.flush_commits(out);
        out.report(Milestone::Stable { seq, root });
        self.persist(Record::Stable { seq, root }, out);
        for slot in self.log.iter().take_while(|slot| slot.seq <= seq) {
            if let Some(batch) = slot.committed.and_then(|digest| slot.batch(&digest)) {
                self.archive.keep(slot.seq, batch.clone());
            }
        }
        self.log.advance(seq);
        // The table as of this checkpoint may know of lives that have ended (RC-11a).
        self.lives.collect(seq);
        self.judge_view();
        self.reads.shown = self.reads.shown.max(seq);
        self.persist_seen(out);
        // The others may have gone on in a later view, which this replica does not know of yet.
        self.batcher.assigned = self.batcher.assigned.max(seq);
        self.drop_old_votes();
        self.checkpoints.collect(seq);
        let log = &self.log;
        self.bodies.collect(|digest| log.iter().any(|slot| slot.lacks(digest)));
        self.lookup.clear();
        self.views.collect(seq);
        out.push(Action::Discard { below: seq });
        // TM-4: only if this view has executed all of it, not what it took over.
        if self.is_normal() && seq >= self.views.last_fixed.plus(self.config.checkpoint_interval) {
            self.views.calm_down(self.watch.request_timeout());
        }
        self.adopt_rest_of_new_view(now, out);
        self.recovery_made_stable(now, out);
        // Others may lack the last vote; it now carries the proof (CK-2).
        for n in self.log.numbers() {
            self.advance_quietly(now, n, out);
        }
        self.propose(now, out);
        // A new primary may have waited for this (DP-5).
        if self.status == Status::ViewChange {
            self.try_new_view(now, out);
        }
        self.raise_repair(now, seq, root, out);
    }

    /// A primary that lacks CHECKPOINTs comes to the end of its window, and everyone thinks that it is to blame. One
    /// whose STATUS shows a lower stable checkpoint is told of this one, with its proof.
    pub(crate) fn help_primary(&mut self, seq: SeqNum, root: Digest, out: &mut Actions) {
        let primary = self.primary();
        let lags = self.peers.known_stable(primary).is_some_and(|stable| stable < seq);
        if primary == self.id || !lags || self.recovery.is_active() || !self.checkpoints.are_kept() {
            return;
        }
        let (to, after) = (Recipient::Replica(primary), self.last_lsn());
        let m = Checkpoint { seq, digest: root, stable: true };
        out.send(to, Kind::Checkpoint, after, |w| m.encode(w));
    }

    /// Says whether the primary, by its own STATUS, has come to the end of a window below this replica's: it lacks
    /// CHECKPOINTs, and is told again.
    pub(crate) fn primary_lacks_checkpoints(&mut self, out: &mut Actions) -> bool {
        let (stable, window) = (self.log.stable(), self.config.window);
        let Some(known) = self.peers.known_stable(self.primary()).filter(|known| *known < stable) else {
            return false;
        };
        let Some(root) = self.checkpoints.own.get(&stable).copied() else { return false };
        self.help_primary(stable, root, out);
        known.plus(window) <= self.exec.executed
    }

    /// Looks at a number again after the window has moved.
    fn advance_quietly(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        let busy = self.log.get(seq).is_some_and(|slot| slot.proposal.is_some() && slot.committed.is_none());
        if busy {
            self.advance(now, seq, out);
        }
    }
}

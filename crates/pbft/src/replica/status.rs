//! Retransmission by status: a replica reports what it has and lacks, and the others send what it lacks (spec §10).
//! One mechanism, with bounded state, for every kind of message.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Signed;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{
    Bitmap, Commit, Committed, Echoes, Kind, Prepare, ProofMessage, Status as StatusMessage, VcFetch,
    ViewChange, WANTS_MAX, Want, encode_pre_prepare,
};

use crate::io::step::{Actions, Lsn, Now, Recipient, Reject, Timer};
use crate::order::slot::Slot;
use crate::order::votes::bit;
use crate::replica::Replica;
use crate::status::peers::Answer;
use crate::view::candidate::Candidate;
use crate::view::proofs::Shown;

/// The most COMMITTEDs in one answer.
const COMMITTEDS_MAX: u64 = 128;

impl Replica {
    /// Time for a status, and for a look at what depends on none.
    pub(super) fn on_status_timer(&mut self, now: Now, out: &mut Actions) {
        self.peers.stop_hurry();
        let full = self.is_window_full();
        let earliest = self.peers.earliest();
        if !full || now.mono_ns >= earliest {
            self.send_status(now, out);
        }
        self.note_certified(now, out);
        self.look_after_transfer(now, out);
        let suspect = self.evidence.own_suspect(self.views.view());
        if let Some(frame) = suspect.filter(|_| !self.recovery.is_active()) {
            out.forward(Recipient::All, Kind::Suspect, Lsn(0), frame);
        }
        self.watch_requests(now, out);
        let mut next = self.config.status_ns;
        if full {
            // Before a replica can suspect the primary.
            self.say_checkpoints_again(out);
            next = next.min(self.patience(now) / 4);
        }
        Self::set_timer(out, Timer::Status, now.mono_ns.saturating_add(next));
    }

    /// Returns as many of the wanted proofs as a STATUS has room for, starting at a random one: a Byzantine replica
    /// can make enough claims to keep the important ones from ever having their turn (DP-4).
    fn some_wants(&mut self) -> Vec<Want> {
        let wants = self.evidence.wants();
        let start = usize::try_from(self.rng.below(u64::try_from(wants.len()).unwrap_or(1))).unwrap_or(0);
        let room = wants.len().min(usize::from(WANTS_MAX));
        wants.iter().cycle().skip(start).take(room).copied().collect()
    }

    fn send_status(&mut self, now: Now, out: &mut Actions) {
        let counter = self.peers.count_status(now, self.exec.done());
        let echoes = self.peers.seen();
        // Others rely on it after a crash, too (RC-9a, L106).
        let stable = self.promises.stable();
        let first = stable.next();
        let len = usize::try_from(self.config.window.div_ceil(8)).unwrap_or(0);
        let (mut prepared, mut committed) = (alloc::vec![0_u8; len], alloc::vec![0_u8; len]);
        let mark = |bits: &mut Vec<u8>, seq| {
            let k = offset(first, seq);
            if let Some(byte) = bits.get_mut(k / 8) {
                *byte |= 1 << (k % 8);
            }
        };
        for slot in self.log.iter() {
            if slot.prepared_in(self.views.view()) {
                mark(&mut prepared, slot.seq());
            }
            if slot.committed().is_some_and(|digest| slot.batch(&digest).is_some()) {
                mark(&mut committed, slot.seq());
            }
        }
        // Of what is below the window by now, nothing is needed.
        for n in first.0..=self.log.stable().min(stable.plus(self.config.window)).0 {
            mark(&mut prepared, SeqNum(n));
            mark(&mut committed, SeqNum(n));
        }
        // The slots of these may be empty: their effects may have come with a checkpoint.
        for seq in self.log.numbers().take_while(|seq| *seq <= self.exec.executed()) {
            mark(&mut committed, seq);
        }
        let has_new_view = self.evidence.entered_in(self.views.view()).is_some();
        let status = StatusMessage {
            counter,
            view: self.views.view(),
            stable,
            executed: self.exec.executed(),
            start: self.peers.own(),
            settings: self.settings,
            echoes: Echoes::new(&echoes),
            normal: self.is_normal(),
            has_new_view,
            prepared: Bitmap::new(&prepared),
            committed: Bitmap::new(&committed),
            have: self.view_changes_held(),
            wants: self.some_wants(),
        };
        out.send(Recipient::All, Kind::Status, Lsn(0), |w| status.encode(w));
    }

    /// Returns whose VIEW-CHANGEs for this view are here, or not needed; not those whose other version a
    /// NEW-VIEW under examination names.
    fn view_changes_held(&self) -> u64 {
        let examined = self.evidence.candidates().filter(|c| c.view() == self.views.view());
        let missing = examined.fold(0, |set, candidate| set | candidate.missing());
        self.view_changes_here() & !missing
    }

    /// Returns whose VIEW-CHANGEs for this view are here, also in the NEW-VIEW by which this replica entered it.
    fn view_changes_here(&self) -> u64 {
        let entered = self.evidence.entered_in(self.views.view());
        let named = entered.into_iter().flat_map(Candidate::named).fold(0, |set, m| set | bit(m.sender()));
        named | self.evidence.senders_for(self.views.view())
    }

    /// Another replica says what it has and lacks.
    #[cold]
    pub(super) fn on_status(&mut self, now: Now, from: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        let stable_before = match self.peers.hear(now, from, m) {
            Ok(before) => before,
            Err(reason) => return out.reject(reason),
        };
        if m.stable > stable_before && m.stable > self.log.stable() {
            self.judge_checkpoints(now, out);
        }
        self.look_at_rejoin(now, out);
        let so_far = (self.views.view(), self.exec.executed());
        match self.peers.may_answer(now, from, m, so_far) {
            Answer::Everything => mutant!(M47, self.answer(now, from, m, out), ()),
            Answer::Next => self.send_committed(now, from, m, out),
            Answer::Nothing => return out.reject(Reject::TooSoon),
        }
        // A replica that is ahead will answer our own (SM-1).
        if m.view > self.views.view() || m.executed > self.exec.done() {
            self.peers.send_soon(now, out);
        }
    }

    /// Sends a peer what it lacks, in the order of SM-2. What leads to a view goes before
    /// what committed: a replica that is far behind would not get to the NEW-VIEW otherwise.
    fn answer(&mut self, now: Now, to: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        let recipient = Recipient::Replica(to);
        // 1, 2. Checkpoints that it may lack; one too far behind needs nothing but the stable one.
        let stable = self.log.stable();
        for (seq, root) in self.checkpoints.own().clone() {
            if seq > m.stable && seq >= stable {
                self.say_checkpoint_again(seq, root, recipient, out);
            }
        }
        if m.stable.plus(self.config.window) < stable {
            return;
        }
        if m.view < self.views.view() {
            // 3. It is in an older view.
            let own = bit(self.id);
            // One that follows without a VIEW-CHANGE of its own passes on those of others.
            let here = mutant!(M176, self.view_changes_here(), self.evidence.senders_for(self.views.view()));
            let set = if here & own == 0 { u64::MAX } else { own };
            self.send_view_changes(now, to, self.views.view(), set, out);
            self.send_new_view_to(now, to, m.view.next(), 0, out);
        } else if m.view == self.views.view() && !m.normal {
            // 5. It waits for the NEW-VIEW of this view: a replica that has it sends it, and what it names (SM-4).
            self.send_view_changes(now, to, self.views.view(), bit(self.id) & !m.have, out);
            self.send_new_view_to(now, to, m.view, m.have, out);
            self.send_proofs(now, to, m, out);
        }
        // What committed here helps it in any view (ST-5).
        self.send_committed(now, to, m, out);
        // 4. Both are in normal operation.
        if m.view == self.views.view() && m.normal && self.is_normal() {
            self.send_votes(now, to, m, out);
        }
    }

    fn send_committed(&mut self, now: Now, to: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        let view = self.views.view();
        let last = self.exec.executed().min(self.log.high()).min(m.stable.plus(self.config.window));
        let first = m.executed.max(m.stable);
        // The batches themselves are to find room as well.
        let last = last.min(first.plus(COMMITTEDS_MAX));
        for seq in first.0.saturating_add(1)..=last.0 {
            let seq = SeqNum(seq);
            // What lies below this replica's window may lie in the other's (ST-5).
            let known = self.log.get(seq).map_or_else(|| self.archive.digest_at(seq), Slot::committed);
            let Some(digest) = known else { continue };
            if mutant!(M48, m.committed.has(offset(m.stable.next(), seq)), true) {
                continue;
            }
            if !self.peers.allow_committed(to, now.mono_ns, seq, 128, &self.config) {
                return;
            }
            let committed = Committed { view, seq, digest };
            out.send(Recipient::Replica(to), Kind::Committed, Lsn(0), |w| committed.encode(w));
        }
    }

    /// Sends the NEW-VIEW that this replica last entered a view by, if that helps a peer in view `from` or
    /// waiting for it.
    fn send_new_view_to(&mut self, now: Now, to: ReplicaId, from: ViewNum, have: u64, out: &mut Actions) {
        let Some(candidate) = self.evidence.entered().filter(|c| c.view() >= from) else { return };
        let (message, proofs) = (candidate.message().clone(), candidate.proofs().to_vec());
        let after = self.evidence.entered_after();
        if !self.promises.is_durable(after) {
            return; // its maker's first copies are on their way to the disk (L43)
        }
        if !self.peers.allow(to, now.mono_ns, message.frame().len(), &self.config) {
            return;
        }
        out.forward(Recipient::Replica(to), Kind::NewView, after, message.frame());
        let named = message.body().view_changes.iter().fold(0, |set, (replica, _)| set | bit(*replica));
        self.send_view_changes(now, to, message.body().view, named & !have, out);
        self.show(now, to, &proofs, out);
    }

    /// Sends votes and proposals of this view again: the same content, sealed again (SM-3). Also for
    /// numbers that the peer has executed: it may have done so without having prepared them, or in an earlier
    /// view, and the others may need its COMMIT (PC-4). What waits for the disk has not left yet (L39).
    fn send_votes(&mut self, now: Now, to: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        let recipient = Recipient::Replica(to);
        let (view, first) = (self.views.view(), m.stable.next());
        let is_primary = self.is_primary();
        let fixed = self.views.last_fixed();
        let low = first.max(self.log.stable().next());
        for seq in low.0..=self.log.high().0 {
            let seq = SeqNum(seq);
            // A vote that is not cast is not said again, either (RC-5, RC-11a).
            if mutant!(M120, self.forbids_vote(seq), false) {
                continue;
            }
            let Some(slot) = self.log.get(seq) else { continue };
            let k = offset(first, seq);
            if m.committed.has(k) && m.prepared.has(k) {
                continue;
            }
            let Some(digest) = slot.voted_in(view) else { continue };
            let prepared = slot.has_prepared(view, &digest);
            let batch = slot.batch(&digest).cloned();
            let (voted_lsn, prepared_lsn) = (slot.voted_lsn(), slot.prepared_lsn());
            if prepared && !m.committed.has(k) && self.promises.is_durable(prepared_lsn) {
                if !self.peers.allow(to, now.mono_ns, 128, &self.config) {
                    return;
                }
                out.send(recipient, Kind::Commit, prepared_lsn, |w| Commit { view, seq, digest }.encode(w));
            }
            if m.prepared.has(k) || !self.promises.is_durable(voted_lsn) {
                continue;
            }
            if is_primary && seq > fixed {
                let Some(batch) = batch else { continue };
                if !self.peers.allow(to, now.mono_ns, batch.payload().len() + 256, &self.config) {
                    return;
                }
                out.send(recipient, Kind::PrePrepare, voted_lsn, |w| {
                    encode_pre_prepare(view, seq, &batch, &[], w);
                });
            } else if !is_primary {
                if !self.peers.allow(to, now.mono_ns, 128, &self.config) {
                    return;
                }
                out.send(recipient, Kind::Prepare, voted_lsn, |w| {
                    Prepare::encode(view, seq, &digest, &[], w);
                });
            }
        }
    }

    /// Sends VIEW-CHANGEs that a peer lacks, as they came: anyone can verify them (SM-4).
    #[cold]
    pub(super) fn on_vc_fetch(&mut self, now: Now, from: ReplicaId, m: &VcFetch, out: &mut Actions) {
        self.send_view_changes(now, from, m.view, m.set, out);
    }

    /// Sends the VIEW-CHANGEs for `view` of the replicas in `set`.
    fn send_view_changes(&mut self, now: Now, to: ReplicaId, view: ViewNum, set: u64, out: &mut Actions) {
        let known = self.evidence.candidates().chain(self.evidence.entered());
        let named = known.filter(|c| c.view() == view).flat_map(Candidate::named);
        let received = self.evidence.received().filter(|m| m.body().view == view);
        let mut messages: Vec<Arc<Signed<ViewChange>>> =
            named.chain(received).filter(|m| set & bit(m.sender()) != 0).cloned().collect();
        messages.sort_by_key(|m| (m.sender(), m.digest()));
        messages.dedup_by_key(|m| (m.sender(), m.digest()));
        // If only some have room, it is not always the same ones (L56).
        let bytes: usize = messages.iter().map(|m| m.frame().len()).sum();
        if mutant!(M176, bytes > self.config.retransmit_bytes, false) {
            let start = self.rng.below(u64::try_from(messages.len()).unwrap_or(1));
            messages.rotate_left(usize::try_from(start).unwrap_or(0));
        }
        let own_after = self.evidence.own_after();
        for m in messages {
            let after = if m.sender() == self.id { own_after } else { Lsn(0) };
            if !self.promises.is_durable(after) {
                continue; // it leaves when the disk has its record (L43)
            }
            if !self.peers.allow(to, now.mono_ns, m.frame().len(), &self.config) {
                return out.reject(Reject::TooSoon);
            }
            out.forward(Recipient::Replica(to), Kind::ViewChange, after, m.frame());
        }
    }

    /// Sends a peer the PROOFs that it wants: this replica's own, and those of others that this view rests on.
    fn send_proofs(&mut self, now: Now, to: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        for want in &m.wants {
            let mut shown: Vec<Shown> = self.own_proof(want).into_iter().collect();
            let entered = self.evidence.entered().into_iter().flat_map(Candidate::proofs);
            shown.extend(entered.filter(|proof| supports(proof.body(), want)).cloned());
            shown.extend(self.evidence.supporting(want).cloned());
            shown.sort_by_key(|proof| (proof.sender(), proof.digest()));
            shown.dedup_by_key(|proof| (proof.sender(), proof.digest()));
            self.show(now, to, &shown, out);
        }
    }

    /// Sends PROOFs to one replica, as far as there is room for what is sent again.
    fn show(&mut self, now: Now, to: ReplicaId, proofs: &[Shown], out: &mut Actions) {
        let own = self.id;
        for proof in proofs.iter().filter(|proof| mutant!(M68, true, proof.sender() == own)) {
            if !self.peers.allow(to, now.mono_ns, proof.frame().len(), &self.config) {
                return;
            }
            out.forward(Recipient::Replica(to), Kind::Proof, Lsn(0), proof.frame());
        }
    }
}

fn offset(first: SeqNum, seq: SeqNum) -> usize {
    usize::try_from(seq.0.saturating_sub(first.0)).unwrap_or(usize::MAX)
}

/// Says whether a PROOF is one of those that are wanted.
fn supports(m: &ProofMessage, want: &Want) -> bool {
    m.seq == want.seq && m.digest == want.digest && m.view >= want.view
}

//! Retransmission by status: a replica reports what it has and lacks, and the others send what it lacks (spec §10).
//! One mechanism, with bounded state, for every kind of message.

use alloc::vec::Vec;

use quorate_wire::Cluster;
use quorate_wire::codec::Writer;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{
    Bitmap, Commit, Committed, Echoes, Kind, Prepare, Start, Status as StatusMessage, WANTS_MAX, Want,
    encode_pre_prepare,
};

use crate::io::config::{Config, MS};
use crate::io::record::Record;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject, Timer};
use crate::order::votes::bit;
use crate::replica::starts::Incarnation;
use crate::replica::{Replica, Status};

/// An older counter is a replay only this soon after a newer one: a replica whose clock went back
/// together with its memory is heard again, and a replay costs one answer a second (SM-2).
const REPLAY_NS: u64 = 1_000 * MS;
/// The most digests that one peer may ask for in each `status_min_ns`: as many as a pipeline of full batches
/// names, which is far more than the bytes allow to answer.
const LOOKUPS_MAX: usize = 8 * 1024;

/// What is known of one other replica.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer {
    counter: u64,
    heard_at: u64,
    answered_at: u64,
    /// How far along the views it was when it was last answered: its view, and whether it worked in it.
    answered_in: (ViewNum, bool),
    /// The latest start of it that was seen.
    pub(crate) start: Start,
    /// When that was seen first.
    pub(crate) started_at: u64,
    /// What it has executed, it says.
    executed: SeqNum,
    /// Its stable checkpoint, it says.
    stable: SeqNum,
    /// Bytes sent again to it since `budget_at`.
    sent_bytes: usize,
    /// Digests that it has asked for since then.
    lookups: usize,
    budget_at: u64,
    /// It echoes this replica's start.
    pub(crate) echoes_us: bool,
    /// The last echo of it whose token was checked.
    pub(crate) echo: Start,
    /// The count of starts of another incarnation of this replica that it has seen, not below this one's:
    /// an old disk was put back, or the count was lost with a disk.
    pub(crate) later: Option<u64>,
    /// What it says of its settings, once that was other than ours.
    settings: Option<u64>,
}

/// The records of the others. One entry per replica.
#[derive(Debug)]
pub(crate) struct PeerStatus {
    pub(crate) peers: Vec<Peer>,
    counter: u64,
    /// This replica's own start.
    pub(crate) own: Start,
    /// A count of starts that somebody has shown a token of this replica's for, not below its own (§14.3).
    pub(crate) proven: Option<u64>,
    sent_at: Option<u64>,
    soon: bool,
}

impl PeerStatus {
    /// Returns the knowledge of a replica that has just started.
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            peers: alloc::vec![Peer::default(); cluster.n()],
            counter: 0,
            own: Start::default(),
            proven: None,
            sent_at: None,
            soon: false,
        }
    }

    /// Returns whether `len` more bytes may be sent again to `to`, and counts them: at most `retransmit_bytes` in
    /// each `status_min_ns`, so that no replica can cause unlimited work (K14).
    pub(crate) fn allow(&mut self, to: ReplicaId, now: u64, len: usize, config: &Config) -> bool {
        let Some(peer) = self.budget(to, now, config) else { return false };
        // One item of any size passes: a request of 1 MiB must be obtainable.
        let allowed = peer.sent_bytes == 0 || peer.sent_bytes + len <= config.retransmit_bytes;
        if allowed {
            peer.sent_bytes += len;
        }
        allowed
    }

    /// Returns whether `from` may ask for `count` more digests, and counts them whether they are here or not: at
    /// most [`LOOKUPS_MAX`] in each `status_min_ns` (K14).
    pub(crate) fn allow_lookups(&mut self, from: ReplicaId, now: u64, count: usize, config: &Config) -> bool {
        let Some(peer) = self.budget(from, now, config) else { return false };
        let allowed = peer.lookups + count <= LOOKUPS_MAX;
        if allowed {
            peer.lookups += count;
        }
        allowed
    }

    /// Returns a peer with its budgets of the interval that `now` is in.
    fn budget(&mut self, of: ReplicaId, now: u64, config: &Config) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(of.index())?;
        if now >= peer.budget_at.saturating_add(config.status_min_ns) {
            peer.budget_at = now;
            peer.sent_bytes = 0;
            peer.lookups = 0;
        }
        Some(peer)
    }

    /// Returns how many others say that their stable checkpoint is `seq` or a later one.
    pub(crate) fn stable_at(&self, seq: SeqNum) -> usize {
        self.peers.iter().filter(|p| p.stable >= seq).count()
    }

    /// Returns the stable checkpoint of a peer that has said so in this life.
    pub(crate) fn known_stable(&self, of: ReplicaId) -> Option<SeqNum> {
        self.peers.get(of.index()).filter(|p| p.heard_at != 0).map(|p| p.stable)
    }

    /// Returns how many others echo this replica's start.
    pub(crate) fn echoes(&self) -> usize {
        self.peers.iter().filter(|p| p.echoes_us).count()
    }

    /// Returns a number that `count` others say to have executed.
    pub(crate) fn executed_by(&self, count: usize) -> SeqNum {
        let mut executed: Vec<SeqNum> = self.peers.iter().map(|p| p.executed).collect();
        executed.sort_unstable();
        executed.iter().rev().nth(count.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Returns the latest start seen of each replica, as bytes.
    pub(crate) fn seen(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.peers.len() * Start::BYTES);
        self.peers.iter().for_each(|peer| peer.start.encode(&mut Writer::new(&mut bytes)));
        bytes
    }

    /// Restores what [`Self::seen`] returned in an earlier life.
    pub(crate) fn restore(&mut self, seen: &[u8]) {
        let seen = Echoes::new(seen);
        for (index, peer) in self.peers.iter_mut().enumerate() {
            peer.start = seen.of(ReplicaId::at(index));
        }
    }

    /// Notes what a peer says of its settings. Returns whether that is a difference that was not known yet.
    fn note_settings(&mut self, from: ReplicaId, settings: u64, own: u64) -> bool {
        let Some(peer) = self.peers.get_mut(from.index()) else { return false };
        let differs = (settings != own).then_some(settings);
        let news = differs.is_some() && peer.settings != differs;
        peer.settings = differs;
        news
    }
}

impl Replica {
    /// Sends a status soon: there is evidence of being behind, or a request waits (SM-1).
    pub(crate) fn status_soon(&mut self, now: Now, out: &mut Actions) {
        if self.peers.soon {
            return;
        }
        self.peers.soon = true;
        let earliest = self.peers.sent_at.map_or(0, |at| at.saturating_add(self.config.status_min_ns));
        Self::set_timer(out, Timer::Status, earliest.max(now.mono_ns));
    }

    /// Sends a status at once: a view begins here, and what the others have said in it already was turned
    /// away, because this replica had not entered it. They answer at once, too.
    pub(crate) fn status_now(&mut self, now: Now, out: &mut Actions) {
        self.peers.soon = true;
        Self::set_timer(out, Timer::Status, now.mono_ns);
    }

    /// Time for a status, and for a look at what depends on none.
    pub(crate) fn on_status_timer(&mut self, now: Now, out: &mut Actions) {
        self.peers.soon = false;
        let full = self.is_window_full();
        let earliest = self.peers.sent_at.map_or(0, |at| at.saturating_add(self.config.status_min_ns));
        if !full || now.mono_ns >= earliest {
            self.send_status(now, out);
        }
        self.note_certified(now, out);
        self.look_after_transfer(now, out);
        if let Some(frame) = self.views.own_suspect(self.view) {
            out.forward(Recipient::All, Kind::Suspect, Lsn(0), frame);
        }
        self.watch_requests(now, out);
        let mut next = self.config.status_ns;
        if full {
            // Before a replica can suspect the primary.
            self.say_checkpoints_again(out);
            next = next.min(self.patience() / 4);
        }
        Self::set_timer(out, Timer::Status, now.mono_ns.saturating_add(next));
    }

    /// Returns as many of the wanted proofs as a STATUS has room for, starting at a random one: a Byzantine replica
    /// can make enough claims to keep the important ones from ever having their turn (DP-4).
    fn some_wants(&mut self) -> Vec<Want> {
        let wants = &self.views.wants;
        let start = usize::try_from(self.rng.below(u64::try_from(wants.len()).unwrap_or(1))).unwrap_or(0);
        let room = wants.len().min(usize::from(WANTS_MAX));
        wants.iter().cycle().skip(start).take(room).copied().collect()
    }

    /// Writes what has been seen of the others. Nothing waits for it.
    pub(crate) fn persist_seen(&mut self, out: &mut Actions) {
        let (seq, starts) = (self.log.stable(), self.peers.seen());
        self.persist(Record::Seen { seq, starts: &starts }, out);
    }

    fn send_status(&mut self, now: Now, out: &mut Actions) {
        self.peers.sent_at = Some(now.mono_ns);
        self.peers.counter = (self.peers.counter + 1).max(now.wall_ns);
        let echoes = self.peers.seen();
        let first = self.log.stable().next();
        let len = usize::try_from(self.config.window.div_ceil(8)).unwrap_or(0);
        let (mut prepared, mut committed) = (alloc::vec![0_u8; len], alloc::vec![0_u8; len]);
        for slot in self.log.iter() {
            let k = offset(first, slot.seq);
            let mark = |bits: &mut Vec<u8>| {
                if let Some(byte) = bits.get_mut(k / 8) {
                    *byte |= 1 << (k % 8);
                }
            };
            if slot.prepared_in(self.view) {
                mark(&mut prepared);
            }
            let here = slot.committed.is_some_and(|digest| slot.batch(&digest).is_some());
            if here || slot.seq <= self.exec.executed {
                mark(&mut committed);
            }
        }
        let has_new_view = self.views.entered.as_ref().is_some_and(|c| c.view() == self.view);
        let status = StatusMessage {
            counter: self.peers.counter,
            view: self.view,
            stable: self.log.stable(),
            executed: self.exec.executed,
            start: self.peers.own,
            settings: self.settings,
            echoes: Echoes::new(&echoes),
            normal: self.status == Status::Normal,
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
        let examined = self.views.candidates.iter().flatten().filter(|c| c.view() == self.view);
        let missing = examined.fold(0, |set, candidate| set | candidate.missing());
        let entered = self.views.entered.iter().filter(|c| c.view() == self.view);
        let held = entered.flat_map(|c| c.named.iter().flatten()).fold(0, |set, m| set | bit(m.sender()));
        (held | self.views.senders_for(self.view)) & !missing
    }

    /// Another replica says what it has and lacks.
    pub(crate) fn on_status(&mut self, now: Now, from: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        match self.peers.note_start(now, from, m.start, self.config.status_min_ns) {
            Incarnation::New => {
                self.persist_seen(out);
                // It votes when enough of us have told it that we have seen it start (§14.3).
                self.status_soon(now, out);
            }
            Incarnation::Known => {}
            Incarnation::Old => out.reject(Reject::OldIncarnation),
        }
        if self.peers.note_settings(from, m.settings, self.settings) {
            out.report(Milestone::SettingsDiffer { of: from });
        }
        self.note_echo(now, from, m.echoes.of(self.id));
        self.look_at_echoes(now, out);
        let min = self.config.status_min_ns;
        let Some(peer) = self.peers.peers.get_mut(from.index()) else { return };
        let recently = peer.heard_at != 0 && now.mono_ns < peer.heard_at.saturating_add(REPLAY_NS);
        if m.counter <= peer.counter && recently {
            return out.reject(Reject::OldStatus);
        }
        peer.counter = m.counter;
        peer.executed = m.executed;
        let stable_before = core::mem::replace(&mut peer.stable, m.stable);
        peer.heard_at = now.mono_ns.max(1);
        if m.stable > stable_before && m.stable > self.log.stable() {
            self.judge_checkpoints(now, out);
        }
        self.look_at_rejoin(now, out);
        let Some(peer) = self.peers.peers.get_mut(from.index()) else { return };
        // Never the same to the same peer more than once in this time (SM-2). What it needs in a view that it
        // has just come to is not the same: at most two answers for each of this replica's own views.
        let along = (m.view, m.normal);
        let arrives = along > peer.answered_in && m.view <= self.view;
        if peer.answered_at != 0 && now.mono_ns < peer.answered_at.saturating_add(min) && !arrives {
            return out.reject(Reject::TooSoon);
        }
        peer.answered_at = now.mono_ns.max(1);
        if m.view <= self.view {
            peer.answered_in = peer.answered_in.max(along);
        }
        mutant!(M47, self.answer(now, from, m, out), ());
        // A replica that is ahead will answer our own (SM-1).
        if m.view > self.view || m.executed > self.exec.executed {
            self.status_soon(now, out);
        }
    }

    /// Sends a peer what it lacks, in the order of SM-2.
    fn answer(&mut self, now: Now, to: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        let recipient = Recipient::Replica(to);
        // 1, 2. Checkpoints that it may lack; one too far behind needs nothing but the stable one.
        let stable = self.log.stable();
        for (seq, root) in self.checkpoints.own.clone() {
            if seq > m.stable && seq >= stable {
                self.say_checkpoint(seq, root, recipient, out);
            }
        }
        if m.stable.plus(self.config.window) < stable {
            return;
        }
        // What committed here helps it in any view (ST-5).
        self.send_committed(now, to, m, out);
        // 3. It is in an older view.
        if m.view < self.view {
            let own = bit(self.id);
            // One that follows without a VIEW-CHANGE of its own passes on those of others.
            let set = if self.views.senders_for(self.view) & own == 0 { u64::MAX } else { own };
            self.send_view_changes(now, to, self.view, set, out);
            return self.send_new_view_to(now, to, m.view.next(), 0, out);
        }
        if m.view > self.view {
            return;
        }
        // 5. It waits for the NEW-VIEW of this view: a replica that has it sends it, and what it names (SM-4).
        if !m.normal {
            self.send_view_changes(now, to, self.view, bit(self.id) & !m.have, out);
            self.send_new_view_to(now, to, m.view, m.have, out);
            return self.send_proofs(now, to, m, out);
        }
        // 4. Both are in normal operation.
        if self.is_normal() {
            self.send_votes(now, to, m, out);
        }
    }

    fn send_committed(&mut self, now: Now, to: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        let view = self.view;
        let last = self.exec.executed.min(self.log.high()).min(m.stable.plus(self.config.window));
        for seq in m.executed.max(m.stable).0.saturating_add(1)..=last.0 {
            let seq = SeqNum(seq);
            // What lies below this replica's window may lie in the other's (ST-5).
            let known = self.log.get(seq).map_or_else(|| self.archive.digest_at(seq), |slot| slot.committed);
            let Some(digest) = known else { continue };
            if mutant!(M48, m.committed.has(offset(m.stable.next(), seq)), true) {
                continue;
            }
            if !self.peers.allow(to, now.mono_ns, 128, &self.config) {
                return;
            }
            let committed = Committed { view, seq, digest };
            out.send(Recipient::Replica(to), Kind::Committed, Lsn(0), |w| committed.encode(w));
        }
    }

    /// Sends the NEW-VIEW that this replica last entered a view by, if that helps a peer in view `from` or
    /// waiting for it.
    fn send_new_view_to(&mut self, now: Now, to: ReplicaId, from: ViewNum, have: u64, out: &mut Actions) {
        let Some(candidate) = self.views.entered.as_ref().filter(|c| c.view() >= from) else { return };
        let (message, proofs) = (candidate.message.clone(), candidate.proofs.clone());
        if !self.peers.allow(to, now.mono_ns, message.frame().len(), &self.config) {
            return;
        }
        let after = self.last_lsn();
        out.forward(Recipient::Replica(to), Kind::NewView, after, message.frame());
        let named = message.body().view_changes.iter().fold(0, |set, (replica, _)| set | bit(*replica));
        self.send_view_changes(now, to, message.body().view, named & !have, out);
        self.show(now, to, &proofs, out);
    }

    /// Sends votes and proposals of this view again: the same content, sealed again (SM-3). Also for
    /// numbers that the peer has executed: it may have done so without having prepared them, or in an earlier
    /// view, and the others may need its COMMIT (PC-4).
    fn send_votes(&mut self, now: Now, to: ReplicaId, m: &StatusMessage<'_>, out: &mut Actions) {
        let recipient = Recipient::Replica(to);
        let (view, first) = (self.view, m.stable.next());
        let is_primary = self.is_primary();
        let fixed = self.views.last_fixed;
        let low = first.max(self.log.stable().next());
        for seq in low.0..=self.log.high().0 {
            let seq = SeqNum(seq);
            let Some(slot) = self.log.get(seq) else { continue };
            let k = offset(first, seq);
            if m.committed.has(k) && m.prepared.has(k) {
                continue;
            }
            let Some((_, digest)) = slot.voted.filter(|(voted, _)| *voted == view) else { continue };
            let prepared = slot.prepared.as_ref().is_some_and(|(v, b)| *v == view && b.digest() == digest);
            let batch = slot.batch(&digest).cloned();
            let after = self.last_lsn();
            if prepared && !m.committed.has(k) {
                if !self.peers.allow(to, now.mono_ns, 128, &self.config) {
                    return;
                }
                out.send(recipient, Kind::Commit, after, |w| Commit { view, seq, digest }.encode(w));
            }
            if m.prepared.has(k) {
                continue;
            }
            if is_primary && seq > fixed {
                let Some(batch) = batch else { continue };
                if !self.peers.allow(to, now.mono_ns, batch.payload().len() + 256, &self.config) {
                    return;
                }
                out.send(recipient, Kind::PrePrepare, after, |w| {
                    encode_pre_prepare(view, seq, &batch, &[], w);
                });
            } else if !is_primary {
                if !self.peers.allow(to, now.mono_ns, 128, &self.config) {
                    return;
                }
                out.send(recipient, Kind::Prepare, after, |w| Prepare::encode(view, seq, &digest, &[], w));
            }
        }
    }
}

fn offset(first: SeqNum, seq: SeqNum) -> usize {
    usize::try_from(seq.0.saturating_sub(first.0)).unwrap_or(usize::MAX)
}

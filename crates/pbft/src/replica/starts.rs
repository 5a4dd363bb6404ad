//! How often everyone has started: the defence against an old disk (spec §14.3).
//!
//! A replica says in every STATUS how often it has started, and what it has seen of the others. One that starts
//! again votes when enough others have seen that; if f + 1 have seen a later start, this is an old disk. One that has
//! seen it is enough if it shows the token of that start, which only this replica can have made.

use quorate_wire::id::ReplicaId;
use quorate_wire::message::{Start, Status};

use crate::io::step::{Actions, Milestone, Now, Reject};
use crate::replica::Replica;
use crate::status::peers::{Incarnation, Peers};

impl Replica {
    /// Returns a start of this replica with its token, which takes its signing key to compute.
    pub(super) fn start_of(&self, incarnation: u64) -> Start {
        let mut covered = [0; 16];
        covered[..8].copy_from_slice(&u64::from(self.id.0).to_le_bytes());
        covered[8..].copy_from_slice(&incarnation.to_le_bytes());
        let signature = self.signer.sign(&self.domains.message(&covered));
        let token = signature.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Start { incarnation, token }
    }

    /// A STATUS says how often its sender has started, with which settings, and which start of this replica it has seen
    /// last.
    #[cold]
    pub(super) fn on_start(&mut self, now: Now, from: ReplicaId, m: &Status<'_>, out: &mut Actions) {
        match self.peers.note_start(now, from, m.start, self.config.status_min_ns) {
            Incarnation::New => {
                self.promises.owe_seen();
                // It votes when enough of us have told it that we have seen it start (§14.3).
                self.peers.send_soon(now, out);
            }
            Incarnation::Known => {}
            Incarnation::Old => out.reject(Reject::OldIncarnation),
        }
        if self.promises.owes_seen() {
            self.promises.persist_seen(self.log.stable(), &self.peers.seen(), out);
        }
        if self.peers.note_settings(from, m.settings, self.settings) {
            out.report(Milestone::SettingsDiffer { of: from });
        }
        let echo = m.echoes.of(self.id);
        if self.peers.note_echo(now, from, echo) && self.start_of(echo.incarnation) == echo {
            self.peers.prove(echo);
        }
        self.look_at_echoes(now, out);
    }

    /// §14.3: before its first vote after a restart, a replica hears from the others that they have
    /// seen it start, and never that they have seen it later than that.
    fn look_at_echoes(&mut self, now: Now, out: &mut Actions) {
        if self.recovery.is_active() {
            return self.outgrow_earlier_starts(now, out);
        }
        // A start with its token is proof at any time; what f + 1 say counts until this replica votes.
        let waits = self.recovery.waits_for_echoes();
        let later = self.peers.has_proof_of_later()
            || waits && self.peers.later_known_to(self.cluster.weak()).is_some();
        if mutant!(M43, later, false) {
            let incarnation = self.peers.own().incarnation;
            out.report(Milestone::RejoinStarted { incarnation });
            self.start_rejoin(now, out);
            return self.outgrow_earlier_starts(now, out);
        }
        let enough = mutant!(M64, self.cluster.quorum(), self.cluster.weak());
        if waits && mutant!(M43, self.peers.echoes() + 1 >= enough, true) {
            self.recovery.heard_echoes();
            self.serve_reads(out);
            self.on_view_changes_grown(now, out);
            for seq in self.log.numbers() {
                self.advance(now, seq, out);
            }
            self.propose();
        }
    }

    /// A replica that has lost its memory may have lost its count of starts as well, and go by a clock that
    /// is behind (D8). It takes a higher one while it rejoins: otherwise its next start, with memory, would
    /// look like that of an old disk. f + 1 others have seen the count that it goes beyond, so a correct one has; or one
    /// has its token.
    fn outgrow_earlier_starts(&mut self, now: Now, out: &mut Actions) {
        let later = self.peers.later_known_to(self.cluster.weak());
        let Some(starts) = later.filter(|starts| Peers::can_outgrow(*starts)) else { return };
        let incarnation = Peers::incarnation_after(starts, self.rng.next());
        self.peers.start(self.start_of(incarnation));
        out.report(Milestone::RejoinStarted { incarnation });
        self.peers.send_soon(now, out);
    }
}

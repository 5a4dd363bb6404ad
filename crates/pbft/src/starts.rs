//! How often everyone has started: the defence against an old disk (spec §14.3).
//!
//! A replica says in every STATUS how often it has started, and what it has seen of the others. One that starts
//! again votes when enough others have seen that; if f + 1 have seen a later start, this is an old disk.

use alloc::vec::Vec;

use quorate_wire::id::ReplicaId;

use crate::replica::Replica;
use crate::status::PeerStatus;
use crate::step::{Actions, Milestone, Now};

/// Low bits of an incarnation that are random, so that two starts from one image differ (§14.3).
const INCARNATION_RANDOM_BITS: u32 = 20;
/// The most starts that an incarnation can count.
const STARTS_MAX: u64 = u64::MAX >> INCARNATION_RANDOM_BITS;
/// A count of starts is believed up to the time of day in seconds, from which it begins where it was lost (D8), and
/// so much more, for clocks differ ...
const STARTS_AHEAD: u64 = 1 << 20;
/// ... and above that as long as it goes in steps no longer than this. So a liar cannot use up the numbers of the
/// replica that it pretends to be, which has to outgrow them when it is itself again.
const STARTS_STEP: u64 = 1 << 10;

/// What a peer's incarnation is to what is known of it.
pub(crate) enum Incarnation {
    New,
    Known,
    Old,
}

impl PeerStatus {
    /// Returns a count of starts that `count` others have seen this replica exceed or reach in another life.
    fn later_known_to(&self, count: usize) -> Option<u64> {
        let mut later: Vec<u64> = self.peers.iter().filter_map(|p| p.later).collect();
        later.sort_unstable();
        later.iter().rev().nth(count.saturating_sub(1)).copied()
    }

    /// Notes an incarnation: the counter in its high bits must rise; the same counter with other random
    /// bits is a second start from one image. It rises by no more than starts can explain, and not again before
    /// `min_ns` have passed.
    pub(crate) fn note_incarnation(
        &mut self,
        now: Now,
        from: ReplicaId,
        incarnation: u64,
        min_ns: u64,
    ) -> Incarnation {
        let Some(peer) = self.peers.get_mut(from.index()) else { return Incarnation::Old };
        let (known, new) =
            (peer.incarnation >> INCARNATION_RANDOM_BITS, incarnation >> INCARNATION_RANDOM_BITS);
        if new > known {
            let ahead = (now.wall_ns / 1_000_000_000).saturating_add(STARTS_AHEAD);
            let believed = ahead.max(known.saturating_add(STARTS_STEP));
            let soon = peer.started_at != 0 && now.mono_ns < peer.started_at.saturating_add(min_ns);
            if mutant!(M63, new > believed || soon, false) {
                return Incarnation::Old;
            }
            peer.incarnation = incarnation;
            peer.started_at = now.mono_ns.max(1);
            return Incarnation::New;
        }
        if peer.incarnation == incarnation { Incarnation::Known } else { Incarnation::Old }
    }

    pub(crate) fn note_echo(&mut self, from: ReplicaId, echo: u64) {
        let own = self.incarnation;
        let Some(peer) = self.peers.get_mut(from.index()) else { return };
        peer.echoes_us = echo == own;
        let (starts, own_starts) = (echo >> INCARNATION_RANDOM_BITS, own >> INCARNATION_RANDOM_BITS);
        peer.later = (echo != own && starts >= own_starts).then_some(starts);
    }
}

impl Replica {
    /// §14.3: before its first vote after a restart, a replica hears from the others that they have
    /// seen it start, and never that they have seen it later than that.
    pub(crate) fn look_at_echoes(&mut self, now: Now, out: &mut Actions) {
        if self.recovery.is_active() {
            return self.outgrow_earlier_starts(now, out);
        }
        if !self.recovery.waits_for_echoes() {
            return;
        }
        if mutant!(M43, self.peers.later_known_to(self.cluster.weak()).is_some(), false) {
            let incarnation = self.peers.incarnation;
            out.report(Milestone::RejoinStarted { incarnation });
            return self.start_rejoin(now, out);
        }
        let enough = mutant!(M64, self.cluster.quorum(), self.cluster.weak());
        if mutant!(M43, self.peers.echoes() + 1 >= enough, true) {
            self.recovery.heard_echoes();
            self.serve_reads(out);
            self.on_view_changes_grown(now, out);
            for seq in self.log.numbers() {
                self.advance(now, seq, out);
            }
            self.propose(now, out);
        }
    }

    /// A replica that has lost its memory may have lost its count of starts as well, and go by a clock that
    /// is behind (D8). It takes a higher one while it rejoins: otherwise its next start, with memory, would
    /// look like that of an old disk. f + 1 others have seen the count that it goes beyond, so a correct one has.
    fn outgrow_earlier_starts(&mut self, now: Now, out: &mut Actions) {
        let later = self.peers.later_known_to(self.cluster.weak());
        let Some(starts) = later.filter(|starts| *starts < STARTS_MAX) else { return };
        let chance = self.rng.next() >> (u64::BITS - INCARNATION_RANDOM_BITS);
        let incarnation = ((starts + 1) << INCARNATION_RANDOM_BITS) | chance;
        self.peers.incarnation = incarnation;
        self.peers.peers.iter_mut().for_each(|peer| peer.later = None);
        out.report(Milestone::RejoinStarted { incarnation });
        self.status_soon(now, out);
    }
}

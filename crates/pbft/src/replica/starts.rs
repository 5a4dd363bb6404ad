//! How often everyone has started: the defence against an old disk (spec §14.3).
//!
//! A replica says in every STATUS how often it has started, and what it has seen of the others. One that starts
//! again votes when enough others have seen that; if f + 1 have seen a later start, this is an old disk. One that has
//! seen it is enough if it shows the token of that start, which only this replica can have made.

use alloc::vec::Vec;

use quorate_wire::id::ReplicaId;
use quorate_wire::message::Start;

use crate::io::step::{Actions, Milestone, Now};
use crate::replica::Replica;
use crate::replica::status::PeerStatus;

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
    /// Returns a count of starts that `count` others have seen this replica exceed or reach in another life, or that
    /// one of them has a token of.
    fn later_known_to(&self, count: usize) -> Option<u64> {
        if let Some(proven) = self.proven {
            return Some(proven);
        }
        let mut later: Vec<u64> = self.peers.iter().filter_map(|p| p.later).collect();
        later.sort_unstable();
        later.iter().rev().nth(count.saturating_sub(1)).copied()
    }

    /// Notes an incarnation: the counter in its high bits must rise; the same counter with other random
    /// bits is a second start from one image. It rises by no more than starts can explain, and not again before
    /// `min_ns` have passed.
    pub(crate) fn note_start(&mut self, now: Now, from: ReplicaId, start: Start, min_ns: u64) -> Incarnation {
        let Some(peer) = self.peers.get_mut(from.index()) else { return Incarnation::Old };
        let (known, new) =
            (peer.start.incarnation >> INCARNATION_RANDOM_BITS, start.incarnation >> INCARNATION_RANDOM_BITS);
        if new > known {
            let ahead = (now.wall_ns / 1_000_000_000).saturating_add(STARTS_AHEAD);
            let believed = ahead.max(known.saturating_add(STARTS_STEP));
            let soon = peer.started_at != 0 && now.mono_ns < peer.started_at.saturating_add(min_ns);
            if mutant!(M63, new > believed || soon, false) {
                return Incarnation::Old;
            }
            peer.start = start;
            peer.started_at = now.mono_ns.max(1);
            return Incarnation::New;
        }
        if peer.start == start { Incarnation::Known } else { Incarnation::Old }
    }
}

impl Replica {
    /// Returns a start of this replica with its token, which takes its signing key to compute.
    pub(crate) fn start_of(&self, incarnation: u64) -> Start {
        let mut covered = [0; 16];
        covered[..8].copy_from_slice(&u64::from(self.id.0).to_le_bytes());
        covered[8..].copy_from_slice(&incarnation.to_le_bytes());
        let signature = self.signer.sign(&self.domains.message(&covered));
        let token = signature.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Start { incarnation, token }
    }

    /// Another replica says which start of this one it has seen last.
    pub(crate) fn note_echo(&mut self, now: Now, from: ReplicaId, echo: Start) {
        let own = self.peers.own;
        let Some(peer) = self.peers.peers.get_mut(from.index()) else { return };
        peer.echoes_us = echo == own;
        let starts = echo.incarnation >> INCARNATION_RANDOM_BITS;
        let is_later = echo != own && starts >= own.incarnation >> INCARNATION_RANDOM_BITS;
        let news = is_later && core::mem::replace(&mut peer.echo, echo) != echo;
        peer.later = is_later.then_some(starts);
        // A count that no clock explains was used up by somebody who had this replica's key: it is outgrown when f + 1
        // know of it.
        let ahead = (now.wall_ns / 1_000_000_000).saturating_add(STARTS_AHEAD);
        // Two processes that run from copies of one directory have the same count: no later start, and f + 1 have to say so.
        let beyond = starts > own.incarnation >> INCARNATION_RANDOM_BITS;
        if news && beyond && starts <= ahead && self.start_of(echo.incarnation) == echo {
            self.peers.proven = Some(self.peers.proven.map_or(starts, |known| known.max(starts)));
        }
    }

    /// §14.3: before its first vote after a restart, a replica hears from the others that they have
    /// seen it start, and never that they have seen it later than that.
    pub(crate) fn look_at_echoes(&mut self, now: Now, out: &mut Actions) {
        if self.recovery.is_active() {
            return self.outgrow_earlier_starts(now, out);
        }
        // A start with its token is proof at any time; what f + 1 say counts until this replica votes.
        let waits = self.recovery.waits_for_echoes();
        let later =
            self.peers.proven.is_some() || waits && self.peers.later_known_to(self.cluster.weak()).is_some();
        if mutant!(M43, later, false) {
            let incarnation = self.peers.own.incarnation;
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
            self.propose(now, out);
        }
    }

    /// A replica that has lost its memory may have lost its count of starts as well, and go by a clock that
    /// is behind (D8). It takes a higher one while it rejoins: otherwise its next start, with memory, would
    /// look like that of an old disk. f + 1 others have seen the count that it goes beyond, so a correct one has; or one
    /// has its token.
    fn outgrow_earlier_starts(&mut self, now: Now, out: &mut Actions) {
        let later = self.peers.later_known_to(self.cluster.weak());
        let Some(starts) = later.filter(|starts| *starts < STARTS_MAX) else { return };
        let chance = self.rng.next() >> (u64::BITS - INCARNATION_RANDOM_BITS);
        let incarnation = ((starts + 1) << INCARNATION_RANDOM_BITS) | chance;
        self.peers.own = self.start_of(incarnation);
        self.peers.proven = None;
        self.peers.peers.iter_mut().for_each(|peer| peer.later = None);
        out.report(Milestone::RejoinStarted { incarnation });
        self.status_soon(now, out);
    }
}

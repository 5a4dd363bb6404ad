//! The exchange of session keys: NEW-KEY (spec §2.4, KX-1 to KX-5).
//!
//! Every node has a *generation* of keys: an ephemeral X25519 key pair with a random number, the key id. It signs the
//! public half, its *share*, and sends it to its peers. Two nodes that hold each other's shares derive two keys from
//! them, one for each direction. When both have deleted a generation, its messages can no longer be read or forged.
//!
//! ```text
//!   r0                                   r1
//!   NEW-KEY t=1 kid=7 want        >      accepted: r1 can check what r0 sends
//!   accepted                      <      NEW-KEY t=1 kid=9       (the answer to `want`)
//! ```
//!
//! Any of these messages may be lost, late, duplicated or replayed. There are no acknowledgements: the generations
//! named by a peer's MACs show which shares it has. A replica is sent our share again, at growing intervals, until it
//! uses it. A node whose MAC fails here is sent our share, at most once a second, and `want` is set while we lack
//! theirs (KX-2). So both ends converge as soon as messages are delivered.
//!
//! A key is derived at its first use: an agreement costs 40 us, and there may be thousands of clients. This module
//! has no I/O, no clock and no randomness: they are passed in.

mod letters;
mod peer;

use self::letters::Letters;
use self::peer::{Generation, Generations, Peer, Peers, Share};
use crate::envelope::cluster::Cluster;
use crate::envelope::digest::ClusterId;
use crate::envelope::id::{Principal, ReplicaId};
use crate::envelope::keys::{Covered, Tag, equal_tags};
use crate::envelope::new_key::NewKey;

/// Maximum number of clients (principals) that a node shares keys with (`MAX_CLIENTS`).
pub const CLIENTS_MAX: usize = 65_536;
/// How long the generation before is accepted after a change (KX-4).
pub const GRACE_NS: u64 = 2_000_000_000;
/// A client is sent at most one NEW-KEY in this time, unless it has just sent a new one (KX-2).
pub const RESEND_NS: u64 = 1_000_000_000;
/// A replica is sent at most one NEW-KEY in this time: as long as a lost one is missing, one replica less votes, and at
/// the shortest request time-out the next view change is 100 ms away (KX-2).
pub const RESEND_TO_REPLICA_NS: u64 = 100_000_000;
/// The longest time between two NEW-KEYs for a replica that does not use ours.
const BACKOFF_MAX_NS: u64 = 32_000_000_000;
/// How long a new generation is only received with, so that every replica has it before it is used.
const SWITCH_NS: u64 = 1_000_000_000;
/// How often a replica can make a client doubt all of them.
const DOUBT_NS: u64 = 30_000_000_000;
/// How long a client's next signature is not looked at after a request with a wrong MAC.
const SIGNATURE_NS: u64 = 10_000_000;

/// How far the time of a NEW-KEY may be ahead of the own clock, for clocks differ. So a Byzantine node cannot use up the
/// times of its later, correct keys (KX-1).
pub const AHEAD_NS: u64 = (1 << 20) * 1_000_000_000;

/// Why an entry proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// One of the generations that it names is not known here, or its time is over.
    NoKey,
    /// The tag is not the one that the sender would have made.
    WrongTag,
}

/// How to treat a NEW-KEY before its signature has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Older than one that was accepted, a replay, or of a time far ahead (KX-1).
    Stale,
    /// The one that was accepted last, once more.
    Known,
    /// Newer: its signature decides.
    New,
}

/// A node's session keys with all its peers, and the NEW-KEYs that it owes them.
///
/// Holds at most one peer for each replica and for each of [`CLIENTS_MAX`] clients.
pub struct Exchange {
    own: Principal,
    now_ns: u64,
    /// The time of day, as it was told last, and when.
    wall: (u64, u64),
    generations: Generations,
    /// From when on the current generation is used for sending.
    switch_ns: u64,
    peers: Peers,
    letters: Letters,
    /// The front of the digest of the settings that all replicas must have alike.
    settings: u64,
}

impl core::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Exchange")
            .field("own", &self.own)
            .field("key_id", &self.key_id())
            .field("clients", &self.peers.clients())
            .finish_non_exhaustive()
    }
}

impl Exchange {
    /// Returns the keys of `own`, which knows the replicas of `cluster` and no client yet, and owes
    /// each of them a NEW-KEY.
    ///
    /// `entropy` is fresh and secret. `wall_ns` is above that of every earlier start, or the peers
    /// take this node's NEW-KEYs for replays (KX-1).
    pub fn new(
        own: Principal,
        cluster: Cluster,
        cluster_id: ClusterId,
        entropy: &[u8; 32],
        wall_ns: u64,
    ) -> Self {
        let mut exchange = Self {
            own,
            now_ns: 0,
            wall: (wall_ns, 0),
            generations: Generations {
                cluster_id,
                current: Generation::new(entropy, wall_ns, None),
                previous: None,
            },
            switch_ns: 0,
            peers: Peers::new(cluster.n()),
            letters: Letters::new(),
            settings: 0,
        };
        exchange.announce();
        exchange
    }

    /// Adds a client. Returns whether there was room.
    pub fn add_client(&mut self, client: Principal) -> bool {
        self.peers.add_client(client.key_holder(), CLIENTS_MAX)
    }

    /// Forgets a client and its keys.
    pub fn remove_client(&mut self, client: Principal) {
        let holder = client.key_holder();
        if let Some(due) = self.peers.remove_client(holder).and_then(|peer| peer.due()) {
            self.letters.remove(due, holder);
        }
    }

    /// Returns whether `peer` is known here, this node itself among the replicas.
    #[inline]
    pub fn knows(&self, peer: Principal) -> bool {
        self.peers.knows(peer)
    }

    /// Returns the number of this node's current generation.
    pub fn key_id(&self) -> u32 {
        self.generations.current.key_id
    }

    /// Returns the NEW-KEY of the current generation.
    pub fn new_key(&self, want: bool) -> NewKey {
        let Generation { time, key_id, share, .. } = self.generations.current;
        NewKey { time, key_id, share, settings: self.settings, want }
    }

    /// Says from now on in each NEW-KEY that this node has the settings with this digest.
    pub fn state_settings(&mut self, settings: u64) {
        self.settings = settings;
    }

    /// Returns the digest of the settings that `peer` has stated in its last NEW-KEY; none if it has not.
    pub fn settings_of(&mut self, peer: Principal) -> Option<u64> {
        self.peers.get(peer)?.share().map(|share| share.settings).filter(|settings| *settings != 0)
    }

    /// Sets the time. Ends the previous generation once its grace is over (KX-4).
    #[inline]
    pub fn observe(&mut self, mono_ns: u64) {
        self.now_ns = self.now_ns.max(mono_ns);
        if self.generations.previous.as_ref().is_some_and(|(_, until)| *until <= self.now_ns) {
            self.end_previous();
        }
    }

    /// Sets the time of day.
    #[inline]
    pub fn observe_wall(&mut self, wall_ns: u64) {
        self.wall = (wall_ns, self.now_ns);
    }

    /// Returns the latest time that a NEW-KEY may have now.
    fn latest(&self) -> u64 {
        let (wall_ns, told_ns) = self.wall;
        wall_ns.saturating_add(self.now_ns.saturating_sub(told_ns)).saturating_add(AHEAD_NS)
    }

    #[cold]
    fn end_previous(&mut self) {
        self.generations.previous = None;
        let current = self.key_id();
        self.peers.all().for_each(|peer| peer.retain(current));
    }

    /// Begins a new generation (KX-2). The one before is received with for [`GRACE_NS`], and sent
    /// with until every replica is seen to use the new one, one second at most.
    pub fn refresh(&mut self, entropy: &[u8; 32], wall_ns: u64) {
        self.observe_wall(wall_ns);
        let next = Generation::new(entropy, wall_ns, Some(&self.generations.current));
        let before = core::mem::replace(&mut self.generations.current, next);
        self.peers.all().for_each(|peer| peer.start_generation(before.key_id));
        self.generations.previous = Some((before, self.now_ns.saturating_add(GRACE_NS)));
        self.switch_ns = self.now_ns.saturating_add(SWITCH_NS);
        self.announce();
    }

    /// Owes every other replica a NEW-KEY at once. For a client that is not heard: its keys may be missing
    /// at replicas that have started again, which looks like silence (CL-3).
    pub fn announce(&mut self) {
        for index in 0..self.peers.replicas().len() {
            let replica = Principal::Replica(ReplicaId::at(index));
            if replica == self.own {
                continue;
            }
            if let Some(peer) = self.peers.get(replica) {
                peer.hurry(RESEND_TO_REPLICA_NS);
            }
            self.owe(replica);
        }
    }

    /// Owes `to` a NEW-KEY as soon as the rate allows (KX-2).
    fn owe(&mut self, to: Principal) {
        if let Some(peer) = self.peers.get(to) {
            let due = peer.earliest(self.now_ns);
            self.letters.schedule(peer, to.key_holder(), due);
        }
    }

    /// Returns the next pending NEW-KEY that may be sent: its receiver, and whether we want theirs.
    #[inline]
    pub fn take_letter(&mut self) -> Option<(Principal, bool)> {
        let holder = self.letters.take(self.now_ns)?;
        self.letter_for(holder)
    }

    #[cold]
    fn letter_for(&mut self, holder: u64) -> Option<(Principal, bool)> {
        let (now, to) = (self.now_ns, Principal::from_wire(holder));
        let peer = self.peers.get(to)?;
        peer.note_sent(now.saturating_add(resend_ns(to)));
        // Who has said that it lacks our share is to say so when it has it: a client waits for that (CL-11).
        let want = peer.is_wanted() || matches!(self.own, Principal::Client(_)) && !peer.is_ready();
        // A replica is told again until it has used our generation and we have its; a client comes
        // back by itself.
        if matches!(to, Principal::Replica(_)) && (want || !peer.is_confirmed()) {
            let due = now.saturating_add(peer.back_off(RESEND_TO_REPLICA_NS, BACKOFF_MAX_NS));
            self.letters.schedule(peer, holder, due);
        }
        Some((to, want))
    }

    /// Returns how to treat a NEW-KEY of `from`, before its signature is verified (KX-1).
    pub fn judge(&mut self, from: Principal, new_key: &NewKey) -> Freshness {
        let latest = self.latest();
        let known = self.peers.get(from).and_then(|peer| peer.share().copied());
        let same = |known: &Share| (known.time, known.key_id, known.public);
        if known.as_ref().map(same) == Some((new_key.time, new_key.key_id, new_key.share)) {
            return Freshness::Known;
        }
        // One that was taken while the own clock was wrong gives way.
        let is_later = known.is_none_or(|known| new_key.time > known.time || known.time > latest);
        if is_later && new_key.time <= latest { Freshness::New } else { Freshness::Stale }
    }

    /// Takes the share of a NEW-KEY that is new and whose signature the caller has verified, and
    /// answers `want`, also of one that is known.
    pub fn accept(&mut self, from: Principal, new_key: &NewKey) {
        let freshness = self.judge(from, new_key);
        let Some(peer) = self.peers.get(from) else { return };
        match freshness {
            Freshness::Stale => return,
            Freshness::Known => {}
            Freshness::New => {
                let NewKey { time, key_id, share: public, settings, want } = *new_key;
                let had_ours = peer.is_ready();
                peer.replace(Share { time, key_id, public, settings }, self.now_ns.saturating_add(GRACE_NS));
                // It is there, so it need not wait for its answer. Replays cannot bring this about,
                // only new signatures, and each of them gets one answer.
                peer.hurry(RESEND_TO_REPLICA_NS);
                let lost_ours = had_ours && want && matches!(self.own, Principal::Client(_));
                if lost_ours && peer.may_cause_doubt(self.now_ns, DOUBT_NS) {
                    self.doubt();
                }
            }
        }
        let Some(peer) = self.peers.get(from) else { return };
        peer.note_want(new_key.want);
        if new_key.want {
            self.owe(from);
        }
    }

    /// A replica has started again, and so all others may have: each is to say that it has our share (CL-11, L38).
    #[cold]
    fn doubt(&mut self) {
        self.peers.replicas_mut().iter_mut().for_each(Peer::doubt);
        self.announce();
    }

    /// Checks an entry of a message from `from` under its generation `theirs`; the entry names ours.
    ///
    /// Records what that tells about the peer: it has our current generation, or may need it (KX-2).
    #[inline]
    pub fn check(
        &mut self,
        from: Principal,
        theirs: u32,
        (own, tag): (u32, &Tag),
        covered: &Covered,
    ) -> Result<(), Mismatch> {
        let current = self.generations.current.key_id;
        let Some(peer) = self.peers.get(from) else { return Err(Mismatch::NoKey) };
        let pair = peer.pair(&self.generations, (&self.own, &from), (own, theirs), self.now_ns);
        let mismatch = match pair {
            None => Mismatch::NoKey,
            Some(pair) if equal_tags(pair.incoming.tag(covered), tag) => {
                if own != current || !peer.is_confirmed() {
                    self.has_used(from, own);
                }
                return Ok(());
            }
            Some(_) => Mismatch::WrongTag,
        };
        peer.note_named(theirs);
        self.owe(from);
        Err(mismatch)
    }

    /// Says whether an entry is right, as [`Self::check`] does. A wrong one tells nothing about the peer: the
    /// message has a signature as well.
    pub fn proves(
        &mut self,
        from: Principal,
        theirs: u32,
        (own, tag): (u32, &Tag),
        covered: &Covered,
    ) -> bool {
        let Some(peer) = self.peers.get(from) else { return false };
        let pair = peer.pair(&self.generations, (&self.own, &from), (own, theirs), self.now_ns);
        pair.is_some_and(|pair| equal_tags(pair.incoming.tag(covered), tag))
    }

    /// Says whether the share of `peer` is here.
    pub fn has_share_of(&mut self, peer: Principal) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.share().is_some())
    }

    /// Returns with how many replicas no keys have been exchanged, in one direction or in both.
    pub fn not_ready(&self) -> usize {
        let own = self.own.key_holder();
        let replicas = (0_u64..).zip(self.peers.replicas());
        replicas.filter(|(holder, peer)| *holder != own && !peer.is_ready()).count()
    }

    /// Notes that `from` has used our generation `own`.
    #[cold]
    fn has_used(&mut self, from: Principal, own: u32) {
        if own != self.key_id() {
            self.owe(from); // it may have missed the current one
            return;
        }
        if let Some(peer) = self.peers.get(from) {
            peer.confirm(RESEND_TO_REPLICA_NS);
        }
        let us = self.own;
        let mut replicas = (0..).map(ReplicaId).zip(self.peers.replicas());
        if replicas.all(|(id, peer)| peer.is_confirmed() || us == Principal::Replica(id)) {
            self.switch_ns = self.now_ns;
        }
    }

    /// Returns our generation to use for what goes to all replicas.
    #[inline]
    pub fn sending(&self) -> u32 {
        match &self.generations.previous {
            Some((before, _)) if self.now_ns < self.switch_ns => before.key_id,
            _ => self.key_id(),
        }
    }

    /// Returns our generation to use for what goes to `to` alone: the current one as soon as it has
    /// used that, or if it never had the one before.
    pub fn sending_to(&mut self, to: Principal) -> u32 {
        let (sending, current) = (self.sending(), self.key_id());
        match self.peers.get(to) {
            Some(peer) if !peer.is_confirmed() && peer.has_used(sending) => sending,
            _ => current,
        }
    }

    /// Returns the entry for `to` over what a message says, under our generation `own`: its generation
    /// and the tag. While we lack its share, for which it is being asked, gives an entry that proves
    /// nothing, and makes the receiver send us its share.
    #[inline]
    pub fn entry(&mut self, to: Principal, own: u32, covered: &Covered) -> (u32, Tag) {
        if let Some(peer) = self.peers.get(to)
            && let Some(theirs) = peer.share().map(|share| share.key_id)
            && let Some(pair) = peer.pair(&self.generations, (&self.own, &to), (own, theirs), self.now_ns)
        {
            return (theirs, pair.outgoing.tag(covered));
        }
        if matches!(to, Principal::Client(_)) {
            self.owe(to); // a replica is told until both have the other's
        }
        (0, Tag::default())
    }

    /// Says whether a signature of `from`, a client, may be looked at: a hundred times a second at most, wherever
    /// what it is on comes from (AU-1).
    pub fn may_check_signature(&mut self, from: Principal) -> bool {
        let now = self.now_ns;
        self.peers.get(from).is_some_and(|peer| peer.may_check_signature(now, SIGNATURE_NS))
    }
}

/// Returns the least time between two NEW-KEYs to a peer (KX-2).
fn resend_ns(to: Principal) -> u64 {
    match to {
        Principal::Replica(_) => RESEND_TO_REPLICA_NS,
        Principal::Client(_) => RESEND_NS,
    }
}

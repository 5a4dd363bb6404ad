//! The two sides of a session: this node's generations, and what is known about a peer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use x25519_dalek::{PublicKey, StaticSecret};

use crate::envelope::digest::ClusterId;
use crate::envelope::id::Principal;
use crate::envelope::keys::SessionKey;

/// One generation of this node's own keys.
pub(super) struct Generation {
    pub(super) time: u64,
    pub(super) key_id: u32,
    pub(super) share: [u8; 32],
    secret: StaticSecret,
}

impl Generation {
    /// Returns the generation made from `entropy`, later than and different from `before`.
    pub(super) fn new(entropy: &[u8; 32], wall_ns: u64, before: Option<&Self>) -> Self {
        let time = wall_ns.max(before.map_or(1, |before| before.time.saturating_add(1)));
        let secret = StaticSecret::from(blake3::derive_key("quorate/1/ephemeral", entropy));
        let share = PublicKey::from(&secret).to_bytes();
        let id = blake3::derive_key("quorate/1/key-id", entropy);
        let mut key_id = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
        while key_id == 0 || before.is_some_and(|before| before.key_id == key_id) {
            key_id = key_id.wrapping_add(1); // 0 stands for "no key" in an entry
        }
        Self { time, key_id, share, secret }
    }
}

/// This node's generations: the current one, and the one before until its grace is over (KX-4).
pub(super) struct Generations {
    pub(super) cluster_id: ClusterId,
    pub(super) current: Generation,
    pub(super) previous: Option<(Generation, u64)>,
}

impl Generations {
    /// Returns the generation with this number, if it still counts.
    #[inline]
    fn get(&self, key_id: u32, now_ns: u64) -> Option<&Generation> {
        if self.current.key_id == key_id {
            return Some(&self.current);
        }
        let (before, until) = self.previous.as_ref()?;
        (before.key_id == key_id && now_ns < *until).then_some(before)
    }
}

/// A peer's share, as its NEW-KEY brought it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) time: u64,
    pub(super) key_id: u32,
    pub(super) public: [u8; 32],
    /// What it says of its settings.
    pub(super) settings: u64,
}

/// The keys that one generation of ours and one of a peer's make.
pub(super) struct Pair {
    pub(super) own: u32,
    pub(super) peer: u32,
    pub(super) incoming: SessionKey,
    pub(super) outgoing: SessionKey,
}

/// The keys of one key holder. At most four pairs: two generations on each side.
#[derive(Default)]
pub(super) struct Peer {
    /// Its newest share.
    share: Option<Share>,
    /// The one before, and when it ends.
    previous: Option<(Share, u64)>,
    pairs: Vec<Pair>,
    /// It has used our current generation.
    confirmed: bool,
    /// It has named one of its generations that we lack.
    missed: bool,
    /// Its last NEW-KEY said that it lacks our share.
    lacks_ours: bool,
    /// It causes no doubt about others before this time.
    doubt_at: u64,
    /// When the pending NEW-KEY for it may be sent.
    due: Option<u64>,
    /// It is sent no NEW-KEY before this time.
    not_before: u64,
    /// How long it is left alone if it does not answer.
    backoff: u64,
    /// Its next signature on a request is not looked at before this time.
    signature_at: u64,
}

impl Peer {
    /// Returns its newest share.
    #[inline]
    pub(super) fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// Takes its new share; the one before is accepted until `until`.
    pub(super) fn replace(&mut self, share: Share, until: u64) {
        self.pairs.retain(|pair| pair.peer != share.key_id);
        self.previous = self.share.replace(share).map(|before| (before, until));
        self.missed = false;
    }

    /// Keeps only the pairs with our generation `own`.
    pub(super) fn retain(&mut self, own: u32) {
        self.pairs.retain(|pair| pair.own == own);
    }

    /// Returns whether it has used our current generation.
    #[inline]
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Notes that it has used our current generation.
    pub(super) fn confirm(&mut self, backoff_ns: u64) {
        self.confirmed = true;
        self.backoff = backoff_ns;
    }

    /// Says whether it may cause doubt about others, which it then may not for `pause_ns`.
    pub(super) fn may_cause_doubt(&mut self, now_ns: u64, pause_ns: u64) -> bool {
        let may = now_ns >= self.doubt_at;
        if may {
            self.doubt_at = now_ns.saturating_add(pause_ns);
        }
        may
    }

    /// It may have started again, and lack our share.
    pub(super) fn doubt(&mut self) {
        (self.confirmed, self.lacks_ours) = (false, true);
    }

    /// Our current generation is a new one; the one before was `own`.
    pub(super) fn start_generation(&mut self, own: u32) {
        self.confirmed = false;
        self.retain(own);
    }

    /// Notes whether it has said in its NEW-KEY that it lacks our share.
    pub(super) fn note_want(&mut self, wants: bool) {
        self.lacks_ours = wants;
    }

    /// Returns whether both sides have what they need to check what the other one sends, as far as we know.
    pub(super) fn is_ready(&self) -> bool {
        self.share.is_some() && (self.confirmed || !self.lacks_ours)
    }

    /// Notes that it has named its generation `theirs`.
    pub(super) fn note_named(&mut self, theirs: u32) {
        self.missed |= self.share.is_none_or(|share| share.key_id != theirs);
    }

    /// Returns whether we lack a share of it.
    pub(super) fn is_wanted(&self) -> bool {
        self.share.is_none() || self.missed
    }

    /// It may be sent a NEW-KEY at once, and is left alone for `backoff_ns` after that.
    pub(super) fn hurry(&mut self, backoff_ns: u64) {
        self.not_before = 0;
        self.backoff = backoff_ns;
    }

    /// Returns when it may be sent a NEW-KEY: `now_ns` or later.
    pub(super) fn earliest(&self, now_ns: u64) -> u64 {
        now_ns.max(self.not_before)
    }

    /// Returns when the pending NEW-KEY for it may be sent.
    pub(super) fn due(&self) -> Option<u64> {
        self.due
    }

    /// Sets when the pending NEW-KEY may be sent. Returns when it might have been before.
    pub(super) fn set_due(&mut self, due_ns: u64) -> Option<u64> {
        self.due.replace(due_ns)
    }

    /// Notes that it is sent a NEW-KEY, and the next one not before `not_before`.
    pub(super) fn note_sent(&mut self, not_before: u64) {
        self.due = None;
        self.not_before = not_before;
    }

    /// Returns how long it is left alone now: each time twice as long, from `least_ns` to `most_ns`.
    pub(super) fn back_off(&mut self, least_ns: u64, most_ns: u64) -> u64 {
        let pause = self.backoff.max(least_ns);
        self.backoff = self.backoff.saturating_mul(2).clamp(least_ns, most_ns);
        pause
    }

    /// Says whether its next signature on a request may be looked at, which then has to wait for `pause_ns`.
    pub(super) fn may_check_signature(&mut self, now_ns: u64, pause_ns: u64) -> bool {
        let may = now_ns >= self.signature_at;
        if may {
            self.signature_at = now_ns.saturating_add(pause_ns);
        }
        may
    }

    /// Returns whether it can check what we send under our generation `own`, as far as we know.
    pub(super) fn has_used(&self, own: u32) -> bool {
        self.pairs.iter().any(|pair| pair.own == own)
    }

    /// Returns the share of its generation `key_id`, if that still counts.
    fn share_of(&self, key_id: u32, now_ns: u64) -> Option<&Share> {
        if let Some(share) = self.share.as_ref().filter(|share| share.key_id == key_id) {
            return Some(share);
        }
        let (before, until) = self.previous.as_ref()?;
        (before.key_id == key_id && now_ns < *until).then_some(before)
    }

    /// Returns the keys of our generation `own` and its generation `theirs`, derived if need be.
    /// None if one of them does not count any more, or never did.
    #[inline]
    pub(super) fn pair(
        &mut self,
        generations: &Generations,
        ends: (&Principal, &Principal), // rarely looked at
        (own, theirs): (u32, u32),
        now_ns: u64,
    ) -> Option<&Pair> {
        let current = generations.current.key_id == own
            && self.share.is_some_and(|share| share.key_id == theirs)
            && self.pairs.first().is_some_and(|pair| pair.own == own && pair.peer == theirs);
        if current {
            return self.pairs.first();
        }
        self.any_pair(generations, ends, (own, theirs), now_ns)
    }

    #[cold]
    fn any_pair(
        &mut self,
        generations: &Generations,
        ends: (&Principal, &Principal),
        (own, theirs): (u32, u32),
        now_ns: u64,
    ) -> Option<&Pair> {
        let generation = generations.get(own, now_ns)?;
        let share = *self.share_of(theirs, now_ns)?;
        if let Some(at) = self.pairs.iter().position(|pair| pair.own == own && pair.peer == theirs) {
            return self.pairs.get(at);
        }
        self.derive(generations.cluster_id, generation, ends, &share, now_ns)
    }

    /// Derives the keys of two generations and puts them first (KX-5).
    fn derive(
        &mut self,
        cluster_id: ClusterId,
        generation: &Generation,
        (us, them): (&Principal, &Principal),
        share: &Share,
        now_ns: u64,
    ) -> Option<&Pair> {
        let shared = generation.secret.diffie_hellman(&PublicKey::from(share.public));
        if !shared.was_contributory() {
            return None; // a share of low order would give a key that everyone knows
        }
        let (current, before) = (self.share, self.previous.filter(|(_, until)| now_ns < *until));
        let counts = [current.map(|share| share.key_id), before.map(|(share, _)| share.key_id)];
        self.pairs.retain(|pair| counts.contains(&Some(pair.peer)));
        let (us, them) = ((us.key_holder(), generation.key_id), (them.key_holder(), share.key_id));
        let incoming = SessionKey::derive(cluster_id, shared.as_bytes(), them, us);
        let outgoing = SessionKey::derive(cluster_id, shared.as_bytes(), us, them);
        self.pairs.insert(0, Pair { own: us.1, peer: them.1, incoming, outgoing });
        self.pairs.first()
    }
}

/// Everyone with whom a node shares keys: the replicas in order, and clients by key holder.
pub(super) struct Peers {
    replicas: Vec<Peer>,
    clients: BTreeMap<u64, Peer>,
}

impl Peers {
    /// Returns `n` replicas and no client.
    pub(super) fn new(n: usize) -> Self {
        Self { replicas: (0..n).map(|_| Peer::default()).collect(), clients: BTreeMap::new() }
    }

    #[inline]
    pub(super) fn get(&mut self, of: Principal) -> Option<&mut Peer> {
        match of {
            Principal::Replica(id) => self.replicas.get_mut(id.index()),
            Principal::Client(_) => self.clients.get_mut(&of.key_holder()),
        }
    }

    /// Returns whether there is such a peer.
    #[inline]
    pub(super) fn knows(&self, peer: Principal) -> bool {
        match peer {
            Principal::Replica(id) => id.index() < self.replicas.len(),
            Principal::Client(_) => self.clients.contains_key(&peer.key_holder()),
        }
    }

    /// Returns the replicas, in order.
    pub(super) fn replicas(&self) -> &[Peer] {
        &self.replicas
    }

    /// Returns the replicas, in order.
    pub(super) fn replicas_mut(&mut self) -> &mut [Peer] {
        &mut self.replicas
    }

    /// Returns the number of clients.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Adds a client, if there are fewer than `max` or it is there already.
    pub(super) fn add_client(&mut self, holder: u64, max: usize) -> bool {
        let room = self.clients.len() < max || self.clients.contains_key(&holder);
        if room {
            self.clients.entry(holder).or_default();
        }
        room
    }

    /// Forgets a client.
    pub(super) fn remove_client(&mut self, holder: u64) -> Option<Peer> {
        self.clients.remove(&holder)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.replicas.iter_mut().chain(self.clients.values_mut())
    }
}

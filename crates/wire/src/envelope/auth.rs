//! The authenticator: received bytes become [`Verified`] messages, and bodies become sealed frames (ADR 3).
//!
//! A received frame is authenticated and then decoded by its protocol, which recomputes every digest from its payload,
//! so that the digests of a [`Verified`] message are true (B35). Only then is it passed to the core.
//!
//! A forwarded frame is verified by its own authentication: its forwarder proves nothing.

mod error;
mod forgeries;
mod macs;
mod seal;

use alloc::vec::Vec;
use core::fmt::Debug;

use crate::envelope::cluster::Cluster;
use crate::envelope::codec::Writer;
use crate::envelope::digest::{ClusterId, Digest, Domains};
use crate::envelope::exchange::{Exchange, Freshness};
use crate::envelope::frame::{Auth, Frame};
use crate::envelope::id::{ClientId, Principal};
use crate::envelope::keys::{Covered, signature_hash};
use crate::envelope::memo::Memo;
use crate::envelope::new_key::NewKey;
use crate::envelope::seal::{Kinds, NEW_KEY, Seal};
use crate::envelope::sign::{PublicKey, Signer, Verifier};

use self::forgeries::Checks;

pub use self::error::AuthError;
pub use self::forgeries::{Payer, Source};
pub use self::macs::Macs;

/// A message whose sender has been authenticated.
///
/// Only [`Authenticator::admit`] makes one. What the message *means* is checked by the protocol: a faulty
/// replica authenticates its lies correctly.
#[derive(Clone, Debug)]
pub struct Verified<M> {
    sender: Principal,
    message: M,
}

impl<M> Verified<M> {
    /// Returns a message that was authenticated earlier, and kept since.
    pub(crate) fn again(sender: Principal, message: M) -> Self {
        Self { sender, message }
    }

    /// Returns who sent it.
    pub fn sender(&self) -> Principal {
        self.sender
    }

    /// Returns the message.
    pub fn message(&self) -> &M {
        &self.message
    }
}

/// An incoming frame.
#[derive(Clone, Debug)]
pub enum Admitted<M> {
    /// A message for the core.
    Message(Verified<M>),
    /// A NEW-KEY, which the authenticator has dealt with. [`Authenticator::take_outgoing`] may have an answer.
    Keys,
}

/// When a frame came, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The monotonic time.
    pub mono_ns: u64,
    /// Who pays for its signature if nobody better is known.
    pub source: Source,
}

/// A protocol: what it does with frames, and what it keeps for that in its nodes' authenticators.
pub trait Protocol: Debug + Sized {
    /// Its kinds of message, NEW-KEY among them.
    type Kind: Kinds;
    /// A message that was authenticated.
    type Message<'a>;

    /// Returns what the entries of a message cover. `memo` has what was digested last.
    fn covered(
        domains: &Domains,
        memo: &mut Memo,
        kind: Self::Kind,
        epoch: u32,
        sender: Principal,
        body: &[u8],
    ) -> Covered;

    /// Authenticates a frame whose header is right, and decodes its body.
    ///
    /// # Errors
    ///
    /// The frame is not what its sender made, or breaks a rule of its form. Nothing of it counts.
    fn admit<'a>(
        auth: &mut Authenticator<Self>,
        arrival: Arrival,
        frame: &Frame<'a, Self::Kind>,
    ) -> Result<Self::Message<'a>, AuthError>;
}

/// A node's authenticator, for one protocol. Owns its session keys; does no I/O and reads no clock.
#[derive(Debug)]
pub struct Authenticator<P> {
    own: Principal,
    cluster: Cluster,
    domains: Domains,
    epoch: u32,
    signer: Signer,
    verifier: Verifier,
    exchange: Exchange,
    last_hash: Memo,
    checks: Checks,
    protocol: P,
}

impl<P: Protocol + Default> Authenticator<P> {
    /// Returns the authenticator of `own`: a replica of `cluster`, or a client of it (any lane).
    ///
    /// `verifier` has the public keys of all replicas, and at a replica those of the clients that
    /// may come in. `entropy` is fresh and secret; `wall_ns` is above that of every earlier start
    /// (KX-1). Authenticators made from the same values hold the same keys.
    #[allow(clippy::too_many_arguments, reason = "a node's identity, made once")]
    pub fn new(
        own: Principal,
        cluster: Cluster,
        cluster_id: ClusterId,
        epoch: u32,
        signer: Signer,
        mut verifier: Verifier,
        entropy: [u8; 32],
        wall_ns: u64,
    ) -> Self {
        // Its own signatures come back inside others' evidence: SUSPECTs in a LeaveCert, its own
        // recovery request in a batch.
        verifier.insert(own, &signer.public());
        let mut exchange = Exchange::new(own, cluster, cluster_id, &entropy, wall_ns);
        if matches!(own, Principal::Replica(_)) {
            verifier.clients().for_each(|client| _ = exchange.add_client(client));
        }
        let domains = Domains::new(cluster_id);
        Self {
            own,
            cluster,
            domains,
            epoch,
            signer,
            verifier,
            exchange,
            last_hash: Memo::default(),
            checks: Checks::new(cluster, &entropy),
            protocol: P::default(),
        }
    }
}

impl<P: Protocol> Authenticator<P> {
    /// Returns the principal of this authenticator.
    pub fn own(&self) -> Principal {
        self.own
    }

    /// Returns the cluster's size.
    pub fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// Returns how many signatures on what came in were looked at, right and wrong ones. Those that were
    /// right before are not looked at again.
    pub fn signatures_checked(&self) -> u64 {
        self.checks.made()
    }

    /// Returns the domains of this cluster's digests.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Returns the configuration's epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns what the protocol keeps here.
    pub(crate) fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Returns what it takes to check MACs, beside what the protocol keeps here: both are used at the same time.
    #[inline]
    pub(crate) fn split(&mut self) -> (Macs<'_>, &mut P) {
        let Self { exchange, domains, last_hash, own, epoch, cluster, protocol, .. } = self;
        (Macs::new(exchange, domains, last_hash, (*own, cluster.n(), *epoch)), protocol)
    }

    /// Accepts a client: the principal of `client`, all lanes. Returns whether its key is valid and
    /// there was space; clients accept no clients.
    pub fn add_client(&mut self, client: ClientId, key: &PublicKey) -> bool {
        let client = Principal::Client(client);
        self.checks.forget();
        matches!(self.own, Principal::Replica(_))
            && client.key_holder() > u64::from(u16::MAX)
            && self.exchange.add_client(client)
            && self.verifier.insert(client, key)
    }

    /// Stops accepting a client.
    pub fn remove_client(&mut self, client: ClientId) {
        if client.replica().is_none() {
            self.checks.forget();
            self.exchange.remove_client(Principal::Client(client));
            self.verifier.remove(Principal::Client(client));
        }
    }

    /// Returns the number of this node's generation of session keys (RC-11).
    pub fn key_id(&self) -> u32 {
        self.exchange.key_id()
    }

    /// Returns the time of this node's newest NEW-KEY. Where the clock may go back over a restart, keep
    /// it, and start with the later of its successor and the time of day (KX-1).
    pub fn key_time(&self) -> u64 {
        self.exchange.new_key(false).time
    }

    /// Tells the time. Call it once in a while, every 100 ms or so, and before
    /// [`Self::take_outgoing`]. The time of day is needed less often (KX-1): 0 stands for the last one and the time since.
    pub fn tick(&mut self, mono_ns: u64, wall_ns: u64) {
        self.exchange.observe(mono_ns);
        if wall_ns != 0 {
            self.exchange.observe_wall(wall_ns);
        }
        self.checks.tick(mono_ns);
    }

    /// Returns whether it matters where frames come from: whether their places have to be told apart.
    #[inline]
    pub fn asks_sources(&self) -> bool {
        self.checks.asks_sources()
    }

    /// Begins a new generation of session keys (KX-2). `entropy` is fresh and secret.
    pub fn refresh(&mut self, entropy: [u8; 32], wall_ns: u64) {
        self.exchange.refresh(&entropy, wall_ns);
    }

    /// Says from now on in each NEW-KEY that this replica has the settings with this digest.
    pub fn state_settings(&mut self, settings: u64) {
        self.exchange.state_settings(settings);
    }

    /// Returns the digest of the settings that `peer` has stated in its last NEW-KEY; none if it has not.
    pub fn settings_of(&mut self, peer: Principal) -> Option<u64> {
        self.exchange.settings_of(peer)
    }

    /// Returns with how many replicas no keys have been exchanged yet. A replica that has sent a NEW-KEY may still lack
    /// ours.
    pub fn keys_missing(&self) -> usize {
        self.exchange.not_ready()
    }

    /// Sends every other replica the current NEW-KEY again (CL-3). A new generation would do harm: requests
    /// under way are sealed with the one that is there.
    pub fn announce(&mut self) {
        self.exchange.announce();
    }

    /// Returns the next NEW-KEY to be sent: for whom, and the frame. A client is named by its
    /// lane 0, whichever lane it used.
    #[inline]
    pub fn take_outgoing(&mut self) -> Option<(Principal, Vec<u8>)> {
        let (to, want) = self.exchange.take_letter()?;
        Some(self.write_new_key(to, want))
    }

    #[cold]
    fn write_new_key(&mut self, to: Principal, want: bool) -> (Principal, Vec<u8>) {
        let (mut body, mut frame) = (Vec::new(), Vec::new());
        self.exchange.new_key(want).encode(&mut Writer::new(&mut body));
        self.signer.seal_number(&self.domains, NEW_KEY, self.epoch, self.own, &body, &mut frame);
        if !self.exchange.has_share_of(to) {
            return (to, frame);
        }
        // It is known to come from here, also while others send NEW-KEYs in this name (A5).
        let mut escorted = Vec::new();
        self.escort(Some(to), &frame, &mut escorted);
        (to, escorted)
    }

    /// Takes one frame, which [`Frame::take`] has split from a datagram.
    ///
    /// # Errors
    ///
    /// The frame is not what its sender made, or breaks a rule of its form. Nothing of it counts.
    #[inline]
    pub fn admit<'a>(
        &mut self,
        mono_ns: u64,
        frame: Frame<'a, P::Kind>,
    ) -> Result<Admitted<P::Message<'a>>, AuthError> {
        self.admit_from(mono_ns, Source::UNKNOWN, &frame)
    }

    /// Takes one frame that came from `source`, which pays for its signature if nobody better is known.
    ///
    /// # Errors
    ///
    /// As [`Self::admit`].
    pub fn admit_from<'a>(
        &mut self,
        mono_ns: u64,
        source: Source,
        frame: &Frame<'a, P::Kind>,
    ) -> Result<Admitted<P::Message<'a>>, AuthError> {
        self.exchange.observe(mono_ns);
        self.check_header(frame)?;
        let arrival = Arrival { mono_ns, source };
        if frame.kind.number() == NEW_KEY {
            return self.admit_new_key(arrival, frame).map(|()| Admitted::Keys);
        }
        let message = P::admit(self, arrival, frame)?;
        Ok(Admitted::Message(Verified { sender: frame.sender, message }))
    }

    /// Checks that the frame is of this epoch, from someone who is known and may send its kind here,
    /// and authenticated in a form that its kind has.
    fn check_header(&self, frame: &Frame<'_, P::Kind>) -> Result<(), AuthError> {
        let (kind, sender) = (frame.kind, frame.sender);
        if frame.epoch != self.epoch {
            return Err(AuthError::WrongEpoch { epoch: frame.epoch, own: self.epoch });
        }
        // Never from the network (CR-4), except for evidence of one's own that others keep: a replica that has lost its
        // memory may need it to check what rests on it.
        if sender.key_holder() == self.own.key_holder() && !kind.comes_back() {
            return Err(AuthError::OwnIdentity);
        }
        if !self.exchange.knows(sender) {
            return Err(AuthError::UnknownSender(sender));
        }
        let is_replica = |of| matches!(of, Principal::Replica(_));
        if !kind.route().may(is_replica(sender), is_replica(self.own)) {
            return Err(AuthError::WrongRole { kind: kind.name(), sender });
        }
        if is_form_of(kind, frame.auth) { Ok(()) } else { Err(AuthError::WrongSeal(kind.name())) }
    }

    /// Takes a NEW-KEY. Its signature is looked at only if it is new, so that replays are cheap.
    fn admit_new_key(&mut self, arrival: Arrival, frame: &Frame<'_, P::Kind>) -> Result<(), AuthError> {
        let new_key = NewKey::decode(frame.body)?;
        match self.exchange.judge(frame.sender, &new_key) {
            Freshness::Stale => return Err(AuthError::StaleKey(frame.sender)),
            Freshness::Known => {}
            Freshness::New => _ = self.check_signed(arrival, frame)?,
        }
        self.exchange.accept(frame.sender, &new_key);
        Ok(())
    }

    /// Checks the MAC of a frame.
    ///
    /// # Errors
    ///
    /// It is not the sender's.
    #[inline]
    pub fn check_mac(&mut self, frame: &Frame<'_, P::Kind>) -> Result<(), AuthError> {
        let mut macs = self.split().0;
        let Frame { kind, epoch, sender, body, .. } = *frame;
        let covered = macs.cover(|domains, memo| P::covered(domains, memo, kind, epoch, sender, body));
        macs.check_entry(frame, &covered)
    }

    /// Checks the signature over a whole frame. Says who has paid for it.
    pub(crate) fn check_signed(
        &mut self,
        arrival: Arrival,
        frame: &Frame<'_, P::Kind>,
    ) -> Result<Payer, AuthError> {
        let Frame { kind, epoch, sender, body, .. } = *frame;
        let signature = signature_of(frame)?;
        let digest = signature_hash(&self.domains, kind.number(), epoch, sender, body);
        let payer = self.payer(arrival.source, frame, || {
            Covered::signed(kind.number(), epoch, sender, &digest, &signature)
        });
        self.check_signature_over(arrival.mono_ns, payer, sender, &digest, &signature)?;
        Ok(payer)
    }

    /// Returns who pays for the signature of a frame: its sender, if this node's entry beside it is right.
    pub(crate) fn payer(
        &mut self,
        source: Source,
        frame: &Frame<'_, P::Kind>,
        covered: impl FnOnce() -> Covered,
    ) -> Payer {
        if !self.split().0.proves(frame, covered) {
            return Payer::Stranger(source);
        }
        match frame.sender {
            Principal::Replica(sender) => Payer::Sender(sender),
            Principal::Client(_) if self.may_check_signature(frame.sender) => Payer::Client,
            Principal::Client(_) => Payer::Stranger(source),
        }
    }

    /// Returns whether the next signature of a client may be looked at now.
    pub(crate) fn may_check_signature(&mut self, of: Principal) -> bool {
        self.exchange.may_check_signature(of)
    }

    /// Checks a signature of `sender` over `covered`, if `payer` may have it checked.
    pub(crate) fn check_signature_over(
        &mut self,
        mono_ns: u64,
        payer: Payer,
        sender: Principal,
        covered: &Digest,
        signature: &[u8; 64],
    ) -> Result<(), AuthError> {
        if self.checks.knows(covered, signature) {
            return Ok(());
        }
        if !self.checks.may(payer, mono_ns) {
            return Err(AuthError::TooManySignatures(sender));
        }
        if !self.verifier.verify(sender, covered, signature) {
            self.checks.note_wrong(payer, mono_ns);
            return Err(AuthError::NotAuthentic(sender));
        }
        self.checks.remember(covered, signature);
        Ok(())
    }

    /// Returns whether a signature is `signer`'s over `covered`. Not counted against anybody.
    pub(crate) fn verify(&self, signer: Principal, covered: &Digest, signature: &[u8; 64]) -> bool {
        self.verifier.verify(signer, covered, signature)
    }
}

/// Returns the signature of a frame.
pub(crate) fn signature_of<K: Kinds>(frame: &Frame<'_, K>) -> Result<[u8; 64], AuthError> {
    frame.auth.signature().copied().ok_or(AuthError::WrongSeal(frame.kind.name()))
}

/// Returns whether a kind of message may be authenticated in this form. With [`Kinds::seal`], the one
/// place that says so: no form is missing, none is left to chance (B27).
fn is_form_of(kind: impl Kinds, auth: Auth<'_>) -> bool {
    match (auth, kind.seal()) {
        (Auth::Mac { .. }, Seal::Mac)
        | (Auth::Authenticator { .. }, Seal::Authenticator)
        // What is signed may have MACs beside the signature (A5).
        | (Auth::Signature(_) | Auth::Both { .. }, Seal::Signature) => true,
        (Auth::Signature(_) | Auth::Both { .. }, _) => kind.may_be_signed(),
        (Auth::Mac { .. } | Auth::Authenticator { .. }, _) => false,
    }
}

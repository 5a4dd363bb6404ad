//! The authenticator: received bytes become [`Verified`] messages, and bodies become sealed frames (ADR 3).
//!
//! A received frame is authenticated, its body is decoded, and every digest is recomputed from its payload, so that
//! the digests of a [`Verified`] message are true (B35). Only then is it passed to the core. One exhaustive match
//! defines the authentication of each kind of message, so that no kind can be omitted (B27).
//!
//! A forwarded frame is verified by its own authentication: its forwarder proves nothing.

mod admit;
mod checks;
mod error;
mod macs;
pub mod recall;
mod register;
mod seal;

use alloc::vec::Vec;

use crate::batch::BatchPool;
use crate::cluster::Cluster;
use crate::codec::Writer;
use crate::digest::{ClusterId, Digest, Domains};
use crate::exchange::Exchange;
use crate::id::{ClientId, Principal, ViewNum};
use crate::memo::Memo;
use crate::message::{Kind, Message};
use crate::sign::{PublicKey, Signer, Verifier, request_digest};

use self::checks::Checks;

pub use self::checks::Source;
pub use self::error::DoorError;

/// Maximum number of batches whose memory the authenticator keeps for use again: the log's two windows and more.
const BATCHES_KEPT: usize = 1024;

/// A message whose sender has been authenticated.
///
/// Only [`Door::admit`] makes one. What the message *means* is checked by the protocol: a faulty
/// replica authenticates its lies correctly.
#[derive(Clone, Debug)]
pub struct Verified<M> {
    sender: Principal,
    message: M,
}

impl<M> Verified<M> {
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
pub enum Admitted<'a> {
    /// A message for the core.
    Message(Verified<Message<'a>>),
    /// A NEW-KEY, which the authenticator has dealt with. [`Door::take_outgoing`] may have an answer.
    Keys,
}

/// A node's authenticator. Owns its session keys; does no I/O and reads no clock.
#[derive(Debug)]
pub struct Door {
    own: Principal,
    cluster: Cluster,
    domains: Domains,
    epoch: u32,
    signer: Signer,
    verifier: Verifier,
    exchange: Exchange,
    last_hash: Memo,
    last_result: Memo,
    batches: BatchPool,
    checks: Checks,
    /// The replica's view: what is of an older one is not looked at.
    view: ViewNum,
}

impl Door {
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
        let batches = BatchPool::new(BATCHES_KEPT);
        Self {
            own,
            cluster,
            domains,
            epoch,
            signer,
            verifier,
            exchange,
            last_hash: Memo::default(),
            last_result: Memo::default(),
            batches,
            checks: Checks::new(cluster, &entropy),
            view: ViewNum(0),
        }
    }

    /// Returns the principal of this authenticator.
    pub fn own(&self) -> Principal {
        self.own
    }

    /// Returns how many signatures on what came in were looked at, right and wrong ones. Those that were
    /// right before are not looked at again.
    pub fn signatures_checked(&self) -> u64 {
        self.checks.made()
    }

    /// Tells the replica's view. What was signed for an older one is turned away before its signature is
    /// looked at: nothing can come of it.
    #[inline]
    pub fn enter_view(&mut self, view: ViewNum) {
        self.view = view;
    }

    /// Returns the domains of this cluster's digests.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Returns the configuration's epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
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

    /// Returns whether `signature` is `client`'s over the request with digest `request`, as it stands
    /// in the frame. Costs 30 us: call it outside of the step (`Action::CheckSignature`).
    pub fn check_signature(&self, client: ClientId, request: &Digest, signature: &[u8; 64]) -> bool {
        let client = Principal::from_wire(client.0);
        let covered = request_digest(&self.domains, self.epoch, client, request);
        self.verifier.verify(client, &covered, signature)
    }

    /// Tells the time. Call it once in a while, every 100 ms or so, and before
    /// [`Self::take_outgoing`].
    pub fn tick(&mut self, mono_ns: u64, _wall_ns: u64) {
        self.exchange.observe(mono_ns);
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

    /// Sends every other replica the current NEW-KEY again (CL-3). A new generation would do harm: requests
    /// under way are sealed with the one that is there.
    pub fn announce(&mut self) {
        self.exchange.announce();
    }

    /// Returns the next NEW-KEY to be sent: for whom, and the frame. A client is named by its
    /// lane 0, whichever lane it used.
    pub fn take_outgoing(&mut self) -> Option<(Principal, Vec<u8>)> {
        let (to, want) = self.exchange.take_letter()?;
        let (mut body, mut frame) = (Vec::new(), Vec::new());
        self.exchange.new_key(want).encode(&mut Writer::new(&mut body));
        self.signer.seal(&self.domains, Kind::NewKey, self.epoch, self.own, &body, &mut frame);
        if !self.exchange.has_share_of(to) {
            return Some((to, frame));
        }
        // It is known to come from here, also while others send NEW-KEYs in this name (A5).
        let mut escorted = Vec::new();
        self.escort(Some(to), &frame, &mut escorted);
        Some((to, escorted))
    }
}

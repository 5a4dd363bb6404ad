//! Signatures: for messages that are shown to third parties (VIEW-CHANGE, NEW-VIEW, SUSPECT, NEW-KEY, recovery
//! requests, and requests of clients on probation). All other messages have MACs.
//!
//! Ed25519 with the ZIP-215 rules, so that all replicas agree on what is valid (spec CR-6); or, in
//! simulations, a keyed hash that only the holder of the secret can make.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ed25519_zebra::{SigningKey, VerificationKey};

use crate::envelope::digest::{Digest, Domains};
use crate::envelope::frame::{self, Auth, Frame};
use crate::envelope::id::{Principal, ReplicaId};
use crate::envelope::keys::signature_hash;
use crate::envelope::seal::Kinds;

/// A node's own signing key.
#[derive(Clone)]
pub enum Signer {
    /// Ed25519.
    Ed25519(Arc<SigningKey>),
    /// For simulations: a keyed hash under this secret.
    Toy([u8; 32]),
}

impl core::fmt::Debug for Signer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Signer(..)") // never the secret
    }
}

impl Signer {
    /// Returns the Ed25519 signer with this seed.
    pub fn ed25519(seed: [u8; 32]) -> Self {
        Self::Ed25519(Arc::new(SigningKey::from(seed)))
    }

    /// Returns what others need to verify its signatures.
    pub fn public(&self) -> PublicKey {
        match self {
            Self::Ed25519(key) => PublicKey::Ed25519(VerificationKey::from(&**key).into()),
            Self::Toy(secret) => PublicKey::Toy(*secret),
        }
    }

    /// Signs a digest.
    pub fn sign(&self, digest: &Digest) -> [u8; 64] {
        match self {
            Self::Ed25519(key) => key.sign(&digest.0).into(),
            Self::Toy(secret) => toy(secret, digest),
        }
    }

    /// Appends a whole signed frame.
    pub fn seal(
        &self,
        domains: &Domains,
        kind: impl Kinds,
        epoch: u32,
        sender: Principal,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        self.seal_number(domains, kind.number(), epoch, sender, body, out);
    }

    /// The same for the number of any kind.
    pub(crate) fn seal_number(
        &self,
        domains: &Domains,
        kind: u8,
        epoch: u32,
        sender: Principal,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let signature = self.sign(&signature_hash(domains, kind, epoch, sender, body));
        frame::put_header(kind, epoch, sender, body.len(), out);
        out.extend_from_slice(body);
        frame::end_signed(&signature, out);
    }
}

/// Verifies nodes' signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// Ed25519.
    Ed25519([u8; 32]),
    /// For simulations: the secret itself, which simulated Byzantine replicas never get.
    Toy([u8; 32]),
}

/// Everyone's public keys, by key holder ([`Principal::key_holder`]).
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    keys: BTreeMap<u64, Verifying>,
}

#[derive(Clone, Debug)]
enum Verifying {
    Ed25519(Arc<VerificationKey>),
    Toy([u8; 32]),
}

impl Verifier {
    /// Adds or replaces a key. Returns whether it is a valid one.
    pub fn insert(&mut self, holder: Principal, key: &PublicKey) -> bool {
        let key = match key {
            PublicKey::Ed25519(bytes) => match VerificationKey::try_from(*bytes) {
                Ok(key) => Verifying::Ed25519(Arc::new(key)),
                Err(_) => return false,
            },
            PublicKey::Toy(secret) => Verifying::Toy(*secret),
        };
        self.keys.insert(holder.key_holder(), key);
        true
    }

    /// Forgets a key.
    pub fn remove(&mut self, holder: Principal) {
        self.keys.remove(&holder.key_holder());
    }

    /// Returns whether `holder` is known.
    pub fn knows(&self, holder: Principal) -> bool {
        self.keys.contains_key(&holder.key_holder())
    }

    /// Returns the clients that are known, each by its lane 0.
    pub fn clients(&self) -> impl Iterator<Item = Principal> {
        let clients = self.keys.range(u64::from(u16::MAX) + 1..);
        clients.map(|(holder, _)| Principal::from_wire(*holder))
    }

    /// Returns whether `signature` is `signer`'s over `digest`.
    pub fn verify(&self, signer: Principal, digest: &Digest, signature: &[u8; 64]) -> bool {
        match self.keys.get(&signer.key_holder()) {
            None => false,
            Some(Verifying::Ed25519(key)) => key.verify(&(*signature).into(), &digest.0).is_ok(),
            Some(Verifying::Toy(secret)) => crate::envelope::keys::equal(&toy(secret, digest), signature),
        }
    }
}

fn toy(secret: &[u8; 32], digest: &Digest) -> [u8; 64] {
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(blake3::keyed_hash(secret, &digest.0).as_bytes());
    signature
}

/// Returns what a signature over a frame covers: kind, epoch, sender and the whole body.
pub fn signed_digest(
    domains: &Domains,
    kind: impl Kinds,
    epoch: u32,
    sender: Principal,
    body: &[u8],
) -> Digest {
    signature_hash(domains, kind.number(), epoch, sender, body)
}

/// Evidence that may be passed on: a signed message with the frame that proves it, kept verbatim.
#[derive(Debug, PartialEq, Eq)]
pub struct Signed<M> {
    sender: ReplicaId,
    body: M,
    digest: Digest,
    frame: Vec<u8>,
}

impl<M> Signed<M> {
    /// Binds a body to its frame. The caller has verified the signature or has just made it, and
    /// `digest` is the domain-separated digest of the body. MACs beside the signature are not kept: they are
    /// nothing to a third party.
    pub(crate) fn new(sender: ReplicaId, body: M, digest: Digest, frame: &Frame<'_, impl Kinds>) -> Self {
        let mut bytes = Vec::new();
        if let Auth::Both { signature, .. } = frame.auth {
            frame::begin(frame.kind, frame.epoch, frame.sender, frame.body, &mut bytes);
            frame::end_signed(signature, &mut bytes);
        } else {
            bytes.extend_from_slice(frame.bytes);
        }
        Self { sender, body, digest, frame: bytes }
    }

    /// Returns who signed it.
    pub fn sender(&self) -> ReplicaId {
        self.sender
    }

    /// Returns the message.
    pub fn body(&self) -> &M {
        &self.body
    }

    /// Returns the digest of the body: `d_vc` for a VIEW-CHANGE.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the frame, to be forwarded as it is.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }
}

impl<M> Signed<M> {
    /// Takes up again a message from this node's own disk, where it was written after its signature was
    /// verified. None where the frame carries no signature or its sender is no replica.
    pub fn reread(domains: &Domains, frame: &Frame<'_, impl Kinds>, body: M) -> Option<Self> {
        let Principal::Replica(sender) = frame.sender else { return None };
        frame.auth.signature()?;
        Some(Self::new(sender, body, domains.view_change(frame.body), frame))
    }

    /// Signs a message of this node's own.
    pub fn sign(
        signer: &Signer,
        domains: &Domains,
        kind: impl Kinds,
        epoch: u32,
        sender: ReplicaId,
        message: M,
        body: &[u8],
    ) -> Self {
        let mut frame = Vec::new();
        signer.seal(domains, kind, epoch, sender.into(), body, &mut frame);
        Self { sender, body: message, digest: domains.view_change(body), frame }
    }
}

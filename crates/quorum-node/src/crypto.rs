//! The cryptography of a process: Ed25519, with what was right before remembered (§2.4).
//!
//! A certificate travels many times: a server that has signed a statement, or has seen its signature, need not look at it
//! again. What is remembered is the hash of statement, signer and signature, in a table of a fixed size.

use quorate_quorum::ObjectId;
use quorate_quorum::crypto::{Crypto, Signature, Statement, statement_digest};
use quorate_quorum::version::value_digest;
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClusterId, Digest, Principal};

/// Signatures that are remembered.
const KNOWN: usize = 4096;

/// What a process has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Signatures that it made.
    pub signed: u64,
    /// Signatures that it looked at, without those that it remembered.
    pub verified: u64,
}

/// The keys of a process.
pub struct Secrets {
    cluster: ClusterId,
    epoch: u32,
    own: Principal,
    signer: Signer,
    verifier: Verifier,
    /// Fresh and secret; with the count of what was drawn from it.
    random: ([u8; 32], u64),
    known: Vec<[u8; 16]>,
    /// Clients: the value that was digested last. A read gets the same one from every server.
    value: Vec<u8>,
    digest: Option<Digest>,
    spent: Spent,
}

impl core::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Secrets").field("own", &self.own).field("spent", &self.spent).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Returns the keys of `own`. `entropy` is fresh and secret.
    pub fn new(
        (cluster, epoch): (ClusterId, u32),
        own: Principal,
        signer: Signer,
        verifier: Verifier,
        entropy: [u8; 32],
    ) -> Self {
        let random = (blake3::derive_key("quorate/1/quorum/random", &entropy), 0);
        let known = vec![[0; 16]; KNOWN];
        let (value, digest, spent) = (Vec::new(), None, Spent::default());
        Self { cluster, epoch, own, signer, verifier, random, known, value, digest, spent }
    }

    /// Returns what it has spent.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Returns under what a signature is remembered, and where.
    fn key(signer: Principal, digest: &Digest, signature: &Signature) -> (usize, [u8; 16]) {
        let mut hash = blake3::Hasher::new();
        hash.update(&signer.key_holder().to_le_bytes()).update(&digest.0).update(signature);
        let hash = hash.finalize();
        let (place, key) = (hash.as_bytes(), hash.as_bytes().first_chunk().copied().unwrap_or_default());
        (usize::from(u16::from_le_bytes([place[30], place[31]])) % KNOWN, key)
    }
}

impl Crypto for Secrets {
    fn sign(&mut self, object: &ObjectId, statement: &Statement) -> Signature {
        let digest = statement_digest(self.cluster, self.epoch, object, statement);
        let signature = self.signer.sign(&digest);
        self.spent.signed += 1;
        let (place, key) = Self::key(self.own, &digest, &signature);
        self.known[place] = key;
        signature
    }

    fn verify(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool {
        let digest = statement_digest(self.cluster, self.epoch, object, statement);
        let (place, key) = Self::key(signer, &digest, signature);
        if self.known[place] == key {
            return true;
        }
        self.spent.verified += 1;
        let valid = self.verifier.verify(signer, &digest, signature);
        if valid {
            self.known[place] = key;
        }
        valid
    }

    fn digest(&mut self, value: &[u8]) -> Digest {
        if !matches!(self.own, Principal::Client(_)) {
            return value_digest(value);
        }
        if let Some(digest) = self.digest.filter(|_| self.value == value) {
            return digest;
        }
        let digest = value_digest(value);
        self.value.clear();
        self.value.extend_from_slice(value);
        self.digest = Some(digest);
        digest
    }

    fn random(&mut self) -> u128 {
        let (secret, count) = &mut self.random;
        *count += 1;
        let bytes = blake3::keyed_hash(secret, &count.to_le_bytes());
        u128::from_le_bytes(bytes.as_bytes().first_chunk().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_quorum::Version;
    use quorate_wire::{ClientId, ReplicaId};
    use std::collections::BTreeSet;

    fn secrets(of: u16) -> Secrets {
        let signer = |id: u16| Signer::ed25519([u8::try_from(id).unwrap() + 1; 32]);
        let mut verifier = Verifier::default();
        for id in 0..3 {
            verifier.insert(ReplicaId(id).into(), &signer(id).public());
        }
        Secrets::new((ClusterId([1; 32]), 1), ReplicaId(of).into(), signer(of), verifier, [7; 32])
    }

    /// What is remembered is this signature of this signer on this statement, and nothing else.
    #[test]
    fn a_signature_is_looked_at_once_and_never_taken_for_another() {
        let (mut a, mut b) = (secrets(0), secrets(1));
        let object = ObjectId([3; 32]);
        let said = |val| {
            let version = Version { val, client: ClientId::new(1, 0), ..Version::GENESIS };
            Statement::Stored(version)
        };
        let signature = a.sign(&object, &said(1));
        for _ in 0..3 {
            assert!(b.verify(ReplicaId(0).into(), &object, &said(1), &signature));
        }
        assert_eq!(b.spent(), Spent { signed: 0, verified: 1 });
        assert!(a.verify(ReplicaId(0).into(), &object, &said(1), &signature));
        assert_eq!(a.spent(), Spent { signed: 1, verified: 0 }, "its own");
        let mut other = signature;
        other[63] ^= 1;
        for _ in 0..2 {
            assert!(!b.verify(ReplicaId(1).into(), &object, &said(1), &signature), "another signer");
            assert!(!b.verify(ReplicaId(0).into(), &object, &said(2), &signature), "another statement");
            assert!(!b.verify(ReplicaId(0).into(), &ObjectId([4; 32]), &said(1), &signature));
            assert!(!b.verify(ReplicaId(0).into(), &object, &said(1), &other));
        }
        assert_eq!(b.spent().verified, 9, "a wrong one is checked each time");
        // Many more than there is room for.
        for val in 0..10_000 {
            let signature = [u8::try_from(val % 251).unwrap(); 64];
            assert!(!b.verify(ReplicaId(0).into(), &object, &said(val), &signature));
        }
        assert_eq!(b.known.len(), KNOWN);
    }

    /// What a client keeps of the last value is never taken for another value's digest.
    #[test]
    fn the_digest_of_a_value_is_its_own() {
        let client = Signer::ed25519([9; 32]);
        let own = Principal::Client(ClientId::new(1, 0));
        let mut client = Secrets::new((ClusterId([1; 32]), 1), own, client, Verifier::default(), [7; 32]);
        let mut server = secrets(0);
        let long = vec![5; 100_000];
        for value in [&b""[..], b"", b"a", b"ab", b"ab", b"a", &long, &long, &long[1..], b""] {
            assert_eq!(client.digest(value), value_digest(value));
            assert_eq!(server.digest(value), value_digest(value));
        }
        assert_eq!(server.value.len(), 0, "a server digests each value once");
    }

    #[test]
    fn what_is_drawn_differs() {
        let mut secrets = secrets(0);
        let drawn: BTreeSet<u128> = (0..1000).map(|_| secrets.random()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}

//! Signed statements and who makes and checks them (§2.2, §2.4).
//!
//! A process is given a [`Crypto`] with each step. [`Keys`] is Ed25519; a simulator has a table of
//! who signed what, or counts what each call would cost.

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClientId, ClusterId, Digest, Principal};

use alloc::vec::Vec;

use crate::version::{ObjectId, Version, value_digest};

/// A signature.
pub type Signature = [u8; 64];

/// Opens the lock of an optimistic certificate (§6.4).
pub type Key = [u8; 16];

/// What can be signed about an object. Each has its own number in the encoding, so that a signature
/// on one never passes for a signature on another (H4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// A writer: this version is mine (§3, §5).
    Written(Version),
    /// A server: this is the version that I hold or received (§5, `ts_evidence`).
    Answered(Version),
    /// A server: its client may write this version. With a lock it is optimistic (§6.1, §6.4).
    Prepared(Version, Option<Digest>),
    /// A server: I hold this version or a larger one (§6.1).
    Stored(Version),
    /// A client: I ask to prepare; the digest covers every field of the request (§6.5).
    AskPrepare(ClientId, Digest),
    /// A client: I ask to prepare optimistically.
    AskOptimistic(ClientId, Digest),
    /// An administrator: this access list is valid (§15).
    Access(Digest),
}

impl Statement {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Written(version) => {
                writer.u8(1);
                version.encode(writer);
            }
            Self::Answered(version) => {
                writer.u8(2);
                version.encode(writer);
            }
            Self::Prepared(version, None) => {
                writer.u8(3);
                version.encode(writer);
            }
            Self::Prepared(version, Some(lock)) => {
                writer.u8(4);
                version.encode(writer);
                writer.digest(lock);
            }
            Self::Stored(version) => {
                writer.u8(5);
                version.encode(writer);
            }
            Self::AskPrepare(client, digest) => {
                writer.u8(6);
                writer.u64(client.0);
                writer.digest(digest);
            }
            Self::AskOptimistic(client, digest) => {
                writer.u8(7);
                writer.u64(client.0);
                writer.digest(digest);
            }
            Self::Access(digest) => {
                writer.u8(8);
                writer.digest(digest);
            }
        }
    }
}

impl Statement {
    /// Reads a statement about a version.
    pub(crate) fn decode_version(reader: &mut Reader<'_>) -> Decoded<Self> {
        let number = reader.u8()?;
        let version = Version::decode(reader)?;
        Ok(match number {
            1 => Self::Written(version),
            2 => Self::Answered(version),
            3 => Self::Prepared(version, None),
            4 => Self::Prepared(version, Some(reader.digest()?)),
            5 => Self::Stored(version),
            _ => return Err(DecodeError::NotCanonical),
        })
    }
}

/// Returns the lock that `key` opens.
pub fn lock_of(key: &Key) -> Digest {
    Digest(blake3::derive_key("quorate/1/quorum/lock", key))
}

/// Returns the digest that a signature is over: domain, cluster, epoch, object, statement (§2.2).
pub fn statement_digest(cluster: ClusterId, epoch: u32, object: &ObjectId, statement: &Statement) -> Digest {
    let mut bytes = Vec::with_capacity(160);
    let mut writer = Writer::new(&mut bytes);
    writer.bytes(&cluster.0);
    writer.u32(epoch);
    writer.bytes(&object.0);
    statement.encode(&mut writer);
    Digest(blake3::derive_key("quorate/1/quorum/statement", &bytes))
}

/// What a step may ask of cryptography. Every call is a job that a latency layer can charge (§2.4).
pub trait Crypto {
    /// Signs as this process.
    fn sign(&mut self, object: &ObjectId, statement: &Statement) -> Signature;
    /// Says whether `signature` is `signer`'s.
    fn verify(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool;
    /// Returns the digest of a value.
    fn digest(&mut self, value: &[u8]) -> Digest {
        value_digest(value)
    }
    /// Returns a fresh secret.
    fn random(&mut self) -> u128;
}

/// Ed25519 with the keys of `wire`.
#[derive(Debug)]
pub struct Keys<R> {
    cluster: ClusterId,
    epoch: u32,
    signer: Signer,
    verifier: Verifier,
    random: R,
}

impl<R: FnMut() -> u128> Keys<R> {
    /// Returns the cryptography of the process that holds `signer`.
    pub fn new(cluster: ClusterId, epoch: u32, signer: Signer, verifier: Verifier, random: R) -> Self {
        Self { cluster, epoch, signer, verifier, random }
    }
}

impl<R: FnMut() -> u128> Crypto for Keys<R> {
    fn sign(&mut self, object: &ObjectId, statement: &Statement) -> Signature {
        self.signer.sign(&statement_digest(self.cluster, self.epoch, object, statement))
    }

    fn verify(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool {
        let digest = statement_digest(self.cluster, self.epoch, object, statement);
        self.verifier.verify(signer, &digest, signature)
    }

    fn random(&mut self) -> u128 {
        (self.random)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H4: object, epoch, cluster, kind and lock are all under the signature.
    #[test]
    fn statements_are_apart() {
        let (a, b) = (ObjectId::new(b"", b"a"), ObjectId::new(b"", b"b"));
        let version = Version::GENESIS;
        let cluster = ClusterId([1; 32]);
        let one = Statement::Prepared(version, None);
        let base = statement_digest(cluster, 1, &a, &one);
        let others = [
            statement_digest(ClusterId([2; 32]), 1, &a, &one),
            statement_digest(cluster, 2, &a, &one),
            statement_digest(cluster, 1, &b, &one),
            statement_digest(cluster, 1, &a, &Statement::Stored(version)),
            statement_digest(cluster, 1, &a, &Statement::Written(version)),
            statement_digest(cluster, 1, &a, &Statement::Answered(version)),
            statement_digest(cluster, 1, &a, &Statement::Prepared(version, Some(Digest::ZERO))),
            statement_digest(cluster, 1, &a, &Statement::Prepared(Version { val: 1, ..version }, None)),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(base, *other, "{index}");
            assert!(others[..index].iter().all(|one| one != other), "{index}");
        }
    }

    #[test]
    fn a_signature_is_its_signers_alone() {
        let signer = Signer::ed25519([7; 32]);
        let mut verifier = Verifier::default();
        let me = Principal::Client(ClientId::new(1, 0));
        let other = Principal::Client(ClientId::new(2, 0));
        assert!(verifier.insert(me, &signer.public()));
        assert!(verifier.insert(other, &Signer::ed25519([8; 32]).public()));
        let mut keys = Keys::new(ClusterId([1; 32]), 1, signer, verifier, || 0);
        let object = ObjectId::new(b"", b"a");
        let said = Statement::Written(Version::GENESIS);
        let signature = keys.sign(&object, &said);
        assert!(keys.verify(me, &object, &said, &signature));
        assert!(!keys.verify(other, &object, &said, &signature));
        assert!(!keys.verify(me, &ObjectId::new(b"", b"b"), &said, &signature));
    }
}

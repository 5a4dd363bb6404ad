//! Signatures in a simulation: a table of who signed what, Ed25519, keyed hashes, or a scheme of the owner's.
//!
//! In the table a signature is the number of an entry, valid if the entry is this signer's on this
//! statement: no liar can forge one, and none is computed.

use std::collections::{BTreeMap, HashMap};

use quorate_quorum::accusation::Signed;
use quorate_quorum::crypto::{Crypto, Signature, Statement, statement_digest};
use quorate_quorum::version::ObjectId;
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClusterId, Digest, Principal};

use crate::rng::Rng;

const CLUSTER: ClusterId = ClusterId([7; 32]);
const EPOCH: u32 = 1;

/// Everyone's keys.
#[derive(Debug)]
pub enum Keys {
    /// Who signed what.
    Table {
        /// The entries, by number.
        entries: Vec<(Principal, ObjectId, Statement)>,
        /// Their numbers, so that the same statement gives the same signature.
        numbers: HashMap<(Principal, ObjectId, Statement), u64>,
    },
    /// Real signatures, or keyed hashes, which only the holders of the secrets make.
    Keyed {
        /// By principal.
        signers: BTreeMap<u64, Signer>,
        /// All public keys.
        verifier: Verifier,
    },
    /// Another one.
    Scheme(Box<dyn Scheme + Send>),
}

/// Signatures that are not made here. It signs as anybody: its user asks for its own signatures alone.
pub trait Scheme: core::fmt::Debug {
    /// Signs as `signer`.
    fn sign(&mut self, signer: Principal, digest: &Digest) -> Signature;
    /// Says whether a signature is `signer`'s.
    fn verify(&self, signer: Principal, digest: &Digest, signature: &Signature) -> bool;
}

impl Keys {
    /// Returns an empty table.
    pub fn table() -> Self {
        Self::Table { entries: Vec::new(), numbers: HashMap::new() }
    }

    /// Returns real keys for these principals.
    pub fn ed25519(principals: impl Iterator<Item = Principal>, rng: &mut Rng) -> Self {
        Self::keyed(principals, rng, Signer::ed25519)
    }

    /// Returns keyed hashes for these principals: for processes that share no table.
    pub fn toy(principals: impl Iterator<Item = Principal>, rng: &mut Rng) -> Self {
        Self::keyed(principals, rng, Signer::Toy)
    }

    fn keyed(
        principals: impl Iterator<Item = Principal>,
        rng: &mut Rng,
        make: fn([u8; 32]) -> Signer,
    ) -> Self {
        let (mut signers, mut verifier) = (BTreeMap::new(), Verifier::default());
        for principal in principals {
            let mut seed = [0; 32];
            for chunk in seed.chunks_exact_mut(8) {
                chunk.copy_from_slice(&rng.bits().to_le_bytes());
            }
            let signer = make(seed);
            verifier.insert(principal, &signer.public());
            signers.insert(principal.to_wire(), signer);
        }
        Self::Keyed { signers, verifier }
    }

    /// Returns the signed statements in the table.
    pub(crate) fn signed(&self) -> impl Iterator<Item = (Principal, ObjectId, Signed)> {
        let entries = if let Self::Table { entries, .. } = self { &entries[..] } else { &[] };
        entries.iter().zip(1_u64..).map(|((signer, object, statement), number)| {
            let mut signature = [0; 64];
            signature[..8].copy_from_slice(&number.to_le_bytes());
            (*signer, *object, (*statement, signature))
        })
    }

    /// Signs as `signer`.
    pub fn sign(&mut self, signer: Principal, object: &ObjectId, statement: &Statement) -> Signature {
        match self {
            Self::Table { entries, numbers } => {
                let key = (signer, *object, *statement);
                let number = *numbers.entry(key).or_insert_with(|| {
                    entries.push(key);
                    u64::try_from(entries.len()).unwrap_or(0)
                });
                let mut signature = [0; 64];
                signature[..8].copy_from_slice(&number.to_le_bytes());
                signature
            }
            Self::Keyed { signers, .. } => signers
                .get(&signer.to_wire())
                .map_or([0; 64], |key| key.sign(&statement_digest(CLUSTER, EPOCH, object, statement))),
            Self::Scheme(scheme) => scheme.sign(signer, &statement_digest(CLUSTER, EPOCH, object, statement)),
        }
    }

    /// Says whether a signature is `signer`'s on this statement.
    pub fn verify(
        &self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool {
        match self {
            Self::Table { entries, .. } => {
                let (head, tail) = signature.split_at(8);
                let number = head.try_into().map_or(0, u64::from_le_bytes);
                let entry =
                    usize::try_from(number).ok().and_then(|number| entries.get(number.checked_sub(1)?));
                tail.iter().all(|byte| *byte == 0)
                    && entry.is_some_and(|(by, about, said)| {
                        *by == signer && about == object && said == statement
                    })
            }
            Self::Keyed { verifier, .. } => {
                verifier.verify(signer, &statement_digest(CLUSTER, EPOCH, object, statement), signature)
            }
            Self::Scheme(scheme) => {
                scheme.verify(signer, &statement_digest(CLUSTER, EPOCH, object, statement), signature)
            }
        }
    }
}

/// How often cryptography was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Signatures made.
    pub signs: u64,
    /// Signatures verified.
    pub verifies: u64,
}

/// The cryptography of one process during a step.
pub struct Wallet<'a> {
    /// Whose.
    pub me: Principal,
    /// Everyone's keys; it signs with its own alone.
    pub keys: &'a mut Keys,
    /// For nonces.
    pub rng: &'a mut Rng,
    /// What it has done.
    pub jobs: &'a mut Jobs,
}

impl core::fmt::Debug for Wallet<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Wallet({})", self.me)
    }
}

impl Crypto for Wallet<'_> {
    fn sign(&mut self, object: &ObjectId, statement: &Statement) -> Signature {
        self.jobs.signs += 1;
        self.keys.sign(self.me, object, statement)
    }

    fn verify(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool {
        self.jobs.verifies += 1;
        self.keys.verify(signer, object, statement, signature)
    }

    fn random(&mut self) -> u128 {
        (u128::from(self.rng.bits()) << 64) | u128::from(self.rng.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_quorum::version::Version;
    use quorate_wire::{ClientId, ReplicaId};

    #[test]
    fn a_signature_is_good_for_its_statement_alone() {
        let (a, b) = (Principal::Replica(ReplicaId(0)), Principal::Client(ClientId::new(1, 0)));
        let object = ObjectId::new(b"", b"x");
        let mut rng = Rng::new(1, 1);
        let all = [a, b].into_iter();
        for mut keys in [Keys::table(), Keys::ed25519(all.clone(), &mut rng), Keys::toy(all, &mut rng)] {
            let said = Statement::Stored(Version::GENESIS);
            let signature = keys.sign(a, &object, &said);
            assert_eq!(signature, keys.sign(a, &object, &said));
            assert!(keys.verify(a, &object, &said, &signature));
            assert!(!keys.verify(b, &object, &said, &signature));
            assert!(!keys.verify(a, &ObjectId::new(b"", b"y"), &said, &signature));
            assert!(!keys.verify(a, &object, &Statement::Written(Version::GENESIS), &signature));
            let mut forged = signature;
            forged[63] ^= 1;
            assert!(!keys.verify(a, &object, &said, &forged));
            assert!(!keys.verify(a, &object, &said, &[0; 64]));
        }
    }
}

//! Certificates: a quorum's signatures on one statement (§5 `ts_evidence`, §6).

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::{Digest, Principal, ReplicaId};

use crate::crypto::{Crypto, Key, Signature, Statement, lock_of};
use crate::mutants::Mutant;
use crate::settings::Settings;
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{ObjectId, Version};

/// The most signatures in a certificate: one for each server of the largest cluster.
pub const SIGNATURES_MAX: u16 = 64;

/// Signatures with their servers, in rising order of the servers.
pub type Signatures = Arc<[(ServerId, Signature)]>;

/// q servers approved that `version.client` may write exactly `version` (§6). GENESIS needs none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareCert {
    /// What may be written.
    pub version: Version,
    /// Opens the lock, if the certificate is optimistic (§6.4). All signatures are of one kind (H3).
    pub key: Option<Key>,
    /// Who approved.
    pub signatures: Signatures,
}

/// The write of `version` completed (§6). GENESIS needs no signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteCert {
    /// What was written.
    pub version: Version,
    /// Who stored it.
    pub signatures: Signatures,
}

/// q answers of distinct servers for one version: the predecessor of a write (§5, `ts_evidence`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Who answered what. The versions are equal.
    pub answers: Arc<[(ServerId, Version, Signature)]>,
}

impl PrepareCert {
    /// Returns the certificate of the initial version.
    pub fn genesis() -> Self {
        Self { version: Version::GENESIS, key: None, signatures: Arc::new([]) }
    }

    /// Says whether it is a certificate for `object`: one statement, q distinct servers, each
    /// signature valid.
    pub fn is_valid(&self, settings: &Settings, crypto: &mut dyn Crypto, object: &ObjectId) -> bool {
        if self.version.is_genesis() {
            return self.signatures.is_empty() && self.key.is_none();
        }
        let lock = self.key.as_ref().map(|key| lock_under(settings, key));
        let statements = [
            Statement::Prepared(self.version, lock),
            // Only the mutant looks at the second one.
            Statement::Prepared(self.version, None),
        ];
        let accepted = if settings.wrong(Mutant::Untagged) { &statements[..] } else { &statements[..1] };
        are_valid(settings, crypto, object, accepted, &self.signatures)
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        self.version.encode(writer);
        match &self.key {
            None => writer.u8(0),
            Some(key) => {
                writer.u8(1);
                writer.bytes(key);
            }
        }
        encode_signatures(&self.signatures, writer);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let version = Version::decode(reader)?;
        let key = if reader.bool()? { Some(reader.array()?) } else { None };
        Ok(Self { version, key, signatures: decode_signatures(reader)? })
    }
}

/// Returns the lock that an optimistic statement is under.
pub(crate) fn lock_under(settings: &Settings, key: &Key) -> Digest {
    if settings.wrong(Mutant::NoLock) { Digest::ZERO } else { lock_of(key) }
}

impl WriteCert {
    /// Says whether it is a certificate for `object`.
    pub fn is_valid(&self, settings: &Settings, crypto: &mut dyn Crypto, object: &ObjectId) -> bool {
        if self.version.is_genesis() {
            return self.signatures.is_empty();
        }
        are_valid(settings, crypto, object, &[Statement::Stored(self.version)], &self.signatures)
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        self.version.encode(writer);
        encode_signatures(&self.signatures, writer);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { version: Version::decode(reader)?, signatures: decode_signatures(reader)? })
    }
}

impl Evidence {
    /// Returns the version that q distinct servers answered with. One equal version is needed: a
    /// single colluding server could sign any maximum.
    pub fn predecessor(
        &self,
        settings: &Settings,
        crypto: &mut dyn Crypto,
        object: &ObjectId,
    ) -> Option<Version> {
        let largest = self.answers.iter().map(|(_, version, _)| *version).max()?;
        let equal = self.answers.iter().all(|(_, version, _)| *version == largest);
        let distinct = distinct(settings, self.answers.iter().map(|(server, ..)| *server));
        let valid = self.answers.iter().all(|(server, version, signature)| {
            version.is_genesis()
                || crypto.verify((*server).into(), object, &Statement::Answered(*version), signature)
        });
        let fine = distinct && valid && (equal || settings.wrong(Mutant::EvidenceMaximum));
        fine.then_some(largest)
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        writer.count16(self.answers.len());
        for (server, version, signature) in self.answers.iter() {
            writer.u16(server.0);
            version.encode(writer);
            writer.bytes(signature);
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let count = reader.count16(SIGNATURES_MAX)?;
        let mut answers: Vec<(ServerId, Version, Signature)> = Vec::with_capacity(count);
        for _ in 0..count {
            let server = ReplicaId(reader.u16()?);
            if answers.last().is_some_and(|(before, ..)| *before >= server) {
                return Err(DecodeError::NotCanonical);
            }
            answers.push((server, Version::decode(reader)?, reader.array()?));
        }
        Ok(Self { answers: answers.into() })
    }
}

/// Says whether these are q or more distinct servers of the cluster.
fn distinct(settings: &Settings, servers: impl Iterator<Item = ServerId>) -> bool {
    let mut seen = ServerSet::default();
    let mut count = 0;
    for server in servers {
        let new = seen.insert(server);
        if !settings.thresholds.contains(server) || !(new || settings.wrong(Mutant::DuplicateSigners)) {
            return false;
        }
        count += 1;
    }
    count >= settings.thresholds.q()
}

fn are_valid(
    settings: &Settings,
    crypto: &mut dyn Crypto,
    object: &ObjectId,
    statements: &[Statement],
    signatures: &[(ServerId, Signature)],
) -> bool {
    let mut other = ObjectId(object.0);
    other.0[0] ^= 1;
    let objects = [*object, other];
    let objects = if settings.wrong(Mutant::OtherObject) { &objects[..] } else { &objects[..1] };
    distinct(settings, signatures.iter().map(|(server, _)| *server))
        && signatures.iter().all(|(server, signature)| {
            statements.iter().any(|statement| {
                objects
                    .iter()
                    .any(|object| crypto.verify(Principal::Replica(*server), object, statement, signature))
            })
        })
}

fn encode_signatures(signatures: &[(ServerId, Signature)], writer: &mut Writer<'_>) {
    writer.count16(signatures.len());
    for (server, signature) in signatures {
        writer.u16(server.0);
        writer.bytes(signature);
    }
}

fn decode_signatures(reader: &mut Reader<'_>) -> Decoded<Signatures> {
    let count = reader.count16(SIGNATURES_MAX)?;
    let mut signatures: Vec<(ServerId, Signature)> = Vec::with_capacity(count);
    for _ in 0..count {
        let server = ReplicaId(reader.u16()?);
        if signatures.last().is_some_and(|(before, _)| *before >= server) {
            return Err(DecodeError::NotCanonical);
        }
        signatures.push((server, reader.array()?));
    }
    Ok(signatures.into())
}

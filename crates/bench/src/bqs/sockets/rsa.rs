//! RSA signatures, for experiments alone. Crate `rsa` has an open advisory (RUSTSEC-2023-0071: the time of a signature
//! tells of the key), so no server and no node uses it; here every key is made from a public seed.
//!
//! A message has room for 64 bytes. An RSA signature is longer, so the message has its digest in that place, marked, and
//! the frame has the signatures behind the message, in the order of their digests.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};

use quorate_quorum::crypto::Signature;
use quorate_quorum_sim::keys::Scheme;
use quorate_wire::{Digest, Principal};
use rsa::pkcs1v15::{Signature as RsaSignature, SigningKey, VerifyingKey};
use rsa::rand_core::{TryCryptoRng, TryRng};
use rsa::sha2::Sha256;
use rsa::signature::{SignatureEncoding, Signer, Verifier};
use rsa::{PrivateKey, PublicKey};

use super::clock::lock;

/// What begins the digest of a long signature.
const MARK: [u8; 8] = *b"\xffrsa-sig";

/// Randomness of a seed. Keys of experiments are the same in every run, and secret to nobody.
struct Seeded(blake3::OutputReader);

impl TryRng for Seeded {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Seeded {}

/// A principal's key.
#[derive(Clone)]
struct Key {
    signing: SigningKey<Sha256>,
    verifying: VerifyingKey<Sha256>,
}

/// By bits and principal.
type Made = BTreeMap<(usize, u64), Arc<Key>>;

/// Keys take long to make: each is made once for a process.
static MADE: OnceLock<Mutex<Made>> = OnceLock::new();

fn key(bits: usize, of: Principal) -> Option<Arc<Key>> {
    let mut made = lock(MADE.get_or_init(Mutex::default));
    let name = (bits, of.to_wire());
    if let Some(key) = made.get(&name) {
        return Some(Arc::clone(key));
    }
    let mut hasher = blake3::Hasher::new_derive_key("quorate/1/bench/rsa");
    hasher.update(&name.0.to_le_bytes()).update(&name.1.to_le_bytes());
    let private = PrivateKey::new(&mut Seeded(hasher.finalize_xof()), bits).ok()?;
    let verifying = VerifyingKey::new(PublicKey::from(&private));
    let key = Arc::new(Key { signing: SigningKey::new(private), verifying });
    made.insert(name, Arc::clone(&key));
    Some(key)
}

/// The long signatures that a process has made or received, by their digests.
#[derive(Clone, Debug)]
pub(in crate::bqs) struct Long {
    bits: usize,
    known: Arc<Mutex<HashMap<Signature, Vec<u8>>>>,
}

fn digest_of(signature: &[u8]) -> Signature {
    let mut digest = [0; 64];
    digest[..8].copy_from_slice(&MARK);
    blake3::Hasher::new().update(signature).finalize_xof().fill(&mut digest[8..]);
    digest
}

/// Returns the digests of long signatures in a message.
fn digests(message: &[u8]) -> impl Iterator<Item = Signature> {
    let at = message.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    at.filter_map(|(at, _)| message.get(at..)?.first_chunk().copied())
}

impl Long {
    pub(in crate::bqs) fn new(bits: usize) -> Self {
        Self { bits, known: Arc::default() }
    }

    /// Appends the signatures of a frame's message to it. One that is not known is as long, and wrong.
    pub(super) fn append(&self, frame: &mut Vec<u8>) {
        let known = lock(&self.known);
        let unknown = vec![0; self.bits / 8];
        let all: Vec<u8> =
            digests(frame).flat_map(|one| known.get(&one).unwrap_or(&unknown).clone()).collect();
        drop(known);
        frame.extend_from_slice(&all);
    }

    /// Takes the signatures behind a message.
    pub(super) fn learn(&self, message: &[u8], behind: &[u8]) {
        let mut known = lock(&self.known);
        for (digest, signature) in digests(message).zip(behind.chunks_exact(self.bits / 8)) {
            if digest_of(signature) == digest {
                known.insert(digest, signature.to_vec());
            }
        }
    }

    /// Makes the keys of these principals, before any time is measured.
    pub(in crate::bqs) fn prepare(&self, all: impl Iterator<Item = Principal>) {
        all.for_each(|one| _ = key(self.bits, one));
    }

    /// Signs, and returns the signature as it is sent.
    fn sign_long(&self, signer: Principal, digest: &Digest) -> Option<Vec<u8>> {
        let signature = key(self.bits, signer)?.signing.try_sign(&digest.0).ok()?;
        Some(signature.to_vec())
    }
}

impl Scheme for Long {
    fn sign(&mut self, signer: Principal, digest: &Digest) -> Signature {
        let Some(signature) = self.sign_long(signer, digest) else { return [0; 64] };
        let short = digest_of(&signature);
        lock(&self.known).insert(short, signature);
        short
    }

    fn verify(&self, signer: Principal, digest: &Digest, signature: &Signature) -> bool {
        let Some(long) = lock(&self.known).get(signature).cloned() else { return false };
        let (Some(key), Ok(long)) = (key(self.bits, signer), RsaSignature::try_from(long.as_slice())) else {
            return false;
        };
        key.verifying.verify(&digest.0, &long).is_ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use quorate_wire::ReplicaId;

    /// A signature reaches another process through a frame, and is its signer's on its digest alone.
    #[test]
    fn a_long_signature_travels_behind_its_message() {
        let (mut here, there) = (Long::new(1024), Long::new(1024));
        let [one, two] = [0, 1].map(|id| Principal::Replica(ReplicaId(id)));
        let said = Digest([3; 32]);
        let signature = here.sign(one, &said);
        assert!(here.verify(one, &said, &signature) && !there.verify(one, &said, &signature));
        let message = [&[1; 7][..], &signature, &[2; 9]].concat();
        let mut frame = message.clone();
        here.append(&mut frame);
        assert_eq!(frame.len(), message.len() + 128);
        let mut wrong = frame.clone();
        *wrong.last_mut().unwrap() ^= 1;
        there.learn(&message, &wrong[message.len()..]);
        assert!(!there.verify(one, &said, &signature));
        there.learn(&message, &frame[message.len()..]);
        assert!(there.verify(one, &said, &signature));
        assert!(!there.verify(two, &said, &signature) && !there.verify(one, &Digest([4; 32]), &signature));
    }
}

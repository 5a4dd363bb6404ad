//! Objects, values and versions (§2.1).
//!
//! A version's third part is the digest of its value: a writer that gives two servers different
//! values under one counter has made two versions, which are ordered, and a value that does not
//! hash to its version is refused without any agreement.

use alloc::sync::Arc;

use quorate_wire::codec::{Decoded, Reader, Writer};
use quorate_wire::{ClientId, Digest};

/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1 << 20;

/// The domains of digests, as keys of BLAKE3: a short value costs one compression.
const OBJECT_KEY: &[u8; 32] = b"quorate/1/quorum/object         ";
const NAMESPACE_KEY: &[u8; 32] = b"quorate/1/quorum/namespace      ";
const VALUE_KEY: &[u8; 32] = b"quorate/1/quorum/value          ";

/// What stands in an object's name for its namespace: the first bytes of the namespace's own digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(pub [u8; 8]);

impl Namespace {
    /// Returns the namespace with this name.
    pub fn new(name: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(NAMESPACE_KEY);
        hasher.update(name);
        Self(hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default())
    }
}

/// The name of a register: 24 bytes of a digest of namespace and key, and 8 for the namespace alone, so that
/// a server that is told neither can apply the rules of a namespace (§15).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 32]);

impl ObjectId {
    /// Returns the object with this key in this namespace.
    pub fn new(namespace: &[u8], key: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(OBJECT_KEY);
        hasher.update(&u64::try_from(namespace.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(namespace);
        hasher.update(key);
        let mut name = *hasher.finalize().as_bytes();
        name[24..].copy_from_slice(&Namespace::new(namespace).0);
        Self(name)
    }

    /// Returns the namespace that it is in.
    pub fn namespace(&self) -> Namespace {
        Namespace(self.0.last_chunk().copied().unwrap_or_default())
    }
}

impl core::fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "o{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// A value, shared between the messages that carry it.
pub type Value = Arc<[u8]>;

/// Returns the digest of a value: domain separated, and covering its length.
pub fn value_digest(value: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new_keyed(VALUE_KEY);
    hasher.update(&u64::try_from(value.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(value);
    Digest(*hasher.finalize().as_bytes())
}

/// A version of an object. The order is lexicographic: counter, client, digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Rises with each write.
    pub val: u64,
    /// The writer.
    pub client: ClientId,
    /// The digest of the value.
    pub digest: Digest,
}

/// What [`value_digest`] gives for the empty value; a test compares them.
const EMPTY: Digest = Digest([
    0xd5, 0xec, 0x1c, 0x83, 0xd4, 0x01, 0x6d, 0x61, 0x5b, 0x16, 0x0b, 0x33, 0xea, 0x83, 0x22, 0x0b, 0x8a,
    0x80, 0xf0, 0x77, 0x3f, 0x03, 0xb0, 0x54, 0x9e, 0x36, 0x54, 0x0d, 0x10, 0x37, 0xfb, 0x2f,
]);

impl Version {
    /// Every object starts here, with the empty value. Valid without any signature.
    pub const GENESIS: Self = Self { val: 0, client: ClientId(0), digest: EMPTY };

    /// Returns the next version by `client`, or `None` where the counter would overflow: that is an
    /// error and never a wrap (§2.1).
    pub fn next(self, client: ClientId, digest: Digest) -> Option<Self> {
        Some(Self { val: self.val.checked_add(1)?, client, digest })
    }

    /// Says whether this is the initial version.
    pub fn is_genesis(self) -> bool {
        self == Self::GENESIS
    }

    pub(crate) fn encode(self, writer: &mut Writer<'_>) {
        writer.u64(self.val);
        writer.u64(self.client.0);
        writer.digest(&self.digest);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { val: reader.u64()?, client: ClientId(reader.u64()?), digest: reader.digest()? })
    }
}

impl core::fmt::Debug for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{}", self.val, self.client, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn genesis_has_the_digest_of_the_empty_value() {
        assert_eq!(Version::GENESIS.digest, value_digest(b""), "{:02x?}", value_digest(b"").0);
    }

    #[test]
    fn versions_order_by_counter_client_digest() {
        let v = |val, client, digest| Version { val, client: ClientId(client), digest: Digest([digest; 32]) };
        assert!(v(1, 9, 9) < v(2, 1, 1) && v(1, 1, 9) < v(1, 2, 1) && v(1, 1, 1) < v(1, 1, 2));
        assert_eq!(v(u64::MAX, 1, 1).next(ClientId(1), Digest::ZERO), None, "no wrap");
    }

    #[test]
    fn objects_and_values_are_apart() {
        assert_ne!(ObjectId::new(b"a", b"bc"), ObjectId::new(b"ab", b"c"));
        assert_ne!(value_digest(b"").0, ObjectId::new(b"", b"").0);
        let in_a = [ObjectId::new(b"a", b"x"), ObjectId::new(b"a", b"y")];
        assert!(in_a.iter().all(|object| object.namespace() == Namespace::new(b"a")));
        assert_ne!(in_a[0].namespace(), ObjectId::new(b"b", b"x").namespace());
    }
}

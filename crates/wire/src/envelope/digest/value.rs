//! A digest, as a value.

/// Bytes of a reply's digest that are of its result.
const RESULT_BYTES: usize = 24;

/// Bytes of a reply's digest that are of the request that it answers.
const TAG_BYTES: usize = 32 - RESULT_BYTES;

/// A collision-resistant digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// All zeros: used where a field has no digest.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns this digest of a result as that of the reply to `request`: its last bytes are the first of the
    /// request's digest (`Domains::reply`).
    #[inline]
    #[must_use]
    pub fn answering(mut self, request: &Self) -> Self {
        self.0[RESULT_BYTES..].copy_from_slice(&request.0[..TAG_BYTES]);
        self
    }

    /// Says whether this digest of a reply is one of a reply to `request`.
    #[inline]
    pub fn answers(&self, request: &Self) -> bool {
        self.0[RESULT_BYTES..] == request.0[..TAG_BYTES]
    }

    /// Says whether two digests of replies are of replies to the same request, whatever the results.
    #[inline]
    pub fn answers_as(&self, other: &Self) -> bool {
        self.0[RESULT_BYTES..] == other.0[RESULT_BYTES..]
    }

    /// Says whether two digests of replies are of the same result, whatever the requests.
    #[inline]
    pub fn is_of_result(&self, other: &Self) -> bool {
        self.0[..RESULT_BYTES] == other.0[..RESULT_BYTES]
    }

    /// Returns this digest of a result as that of a reply to the request that the reply with `other` answers.
    #[must_use]
    pub fn answering_like(mut self, other: &Self) -> Self {
        self.0[RESULT_BYTES..].copy_from_slice(&other.0[RESULT_BYTES..]);
        self
    }

    /// Returns the first two bytes as they are shown in traces.
    pub fn short(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
}

impl core::fmt::Debug for Digest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self}")
    }
}

/// Shows the first two bytes, which is enough to tell digests apart in a trace.
impl core::fmt::Display for Digest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:04x}", self.short())
    }
}

//! Canonical encoding: little-endian fixed-width integers, counts before items, nothing implicit.
//!
//! Decoding is total and bounded (B36, N9): it never panics, checks every count against a stated limit before use,
//! and refuses bytes that the encoder would not have written.

use alloc::vec::Vec;

use crate::envelope::digest::Digest;

/// Why bytes are not the encoding of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the value does.
    Truncated,
    /// Bytes follow after the value's end.
    Trailing,
    /// A count or length is above its bound.
    TooMany {
        /// The value in the bytes.
        count: u64,
        /// The largest that is admitted.
        max: u64,
    },
    /// A field has a value that no encoder writes (a flag that does not exist, an order that is
    /// not increasing).
    NotCanonical,
    /// No message has this number.
    UnknownKind(u8),
    /// A frame of another version of the format.
    OtherVersion(u8),
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end too early"),
            Self::Trailing => f.write_str("bytes follow after the end"),
            Self::TooMany { count, max } => write!(f, "a count or length of {count}, at most {max}"),
            Self::NotCanonical => f.write_str("a field has a value that no encoder writes"),
            Self::UnknownKind(kind) => write!(f, "no message has the number {kind}"),
            Self::OtherVersion(version) => write!(f, "a frame of version {version} of the format"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Result of decoding.
pub type Decoded<T> = Result<T, DecodeError>;

/// Reads values from the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns how many bytes are left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Decoded<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Takes the next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        Ok(*self.chunk()?)
    }

    /// Takes the next `N` bytes, where they are. (In a result, the bytes themselves would share their place with an error,
    /// and be copied piece by piece.)
    #[inline]
    pub fn chunk<const N: usize>(&mut self) -> Decoded<&'a [u8; N]> {
        let (head, tail) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Takes one byte.
    #[inline]
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.chunk::<1>()?[0])
    }

    /// Takes a `u16`.
    #[inline]
    pub fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(*self.chunk()?))
    }

    /// Takes a `u32`.
    #[inline]
    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(*self.chunk()?))
    }

    /// Takes a `u64`.
    #[inline]
    pub fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(*self.chunk()?))
    }

    /// Takes a digest.
    #[inline]
    pub fn digest(&mut self) -> Decoded<Digest> {
        Ok(Digest(*self.chunk()?))
    }

    /// Takes a one-byte truth value, 0 or 1.
    pub fn bool(&mut self) -> Decoded<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::NotCanonical),
        }
    }

    /// Takes a one-byte count of at most `max`.
    #[inline]
    pub fn count8(&mut self, max: u8) -> Decoded<usize> {
        let count = self.u8()?;
        bounded(u64::from(count), u64::from(max))
    }

    /// Takes a two-byte count of at most `max`.
    #[inline]
    pub fn count16(&mut self, max: u16) -> Decoded<usize> {
        let count = self.u16()?;
        bounded(u64::from(count), u64::from(max))
    }

    /// Takes a four-byte length of at most `max`.
    #[inline]
    pub fn count32(&mut self, max: usize) -> Decoded<usize> {
        let len = self.u32()?;
        bounded(u64::from(len), u64::try_from(max).unwrap_or(u64::MAX))
    }

    /// Takes a four-byte length of at most `max` and that many bytes.
    #[inline]
    pub fn blob(&mut self, max: usize) -> Decoded<&'a [u8]> {
        let len = self.count32(max)?;
        self.bytes(len)
    }

    /// Checks that nothing is left.
    #[inline]
    pub fn end(&self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

#[inline]
fn bounded(count: u64, max: u64) -> Decoded<usize> {
    if count > max {
        return Err(DecodeError::TooMany { count, max });
    }
    usize::try_from(count).map_err(|_| DecodeError::TooMany { count, max })
}

/// Appends values to a byte vector. The vector is the caller's, so that it can be reused.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Returns a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends one byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Appends a `u16`.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends a `u32`.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends a `u64`.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends a digest.
    #[inline]
    pub fn digest(&mut self, digest: &Digest) {
        self.bytes(&digest.0);
    }

    /// Appends a one-byte count. The caller keeps the bound that the decoder checks.
    pub fn count8(&mut self, count: usize) {
        let Ok(count) = u8::try_from(count) else { unreachable!("the writer keeps the decoder's bounds") };
        self.u8(count);
    }

    /// Appends a two-byte count. The caller keeps the bound that the decoder checks.
    pub fn count16(&mut self, count: usize) {
        let Ok(count) = u16::try_from(count) else { unreachable!("the writer keeps the decoder's bounds") };
        self.u16(count);
    }

    /// Appends a four-byte length and the bytes.
    pub fn blob(&mut self, bytes: &[u8]) {
        let Ok(len) = u32::try_from(bytes.len()) else {
            unreachable!("the writer keeps the decoder's bounds")
        };
        self.u32(len);
        self.bytes(bytes);
    }
}

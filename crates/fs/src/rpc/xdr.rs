//! External Data Representation: the encoding of RPC and NFS [RFC 4506].
//!
//! Everything is a multiple of four bytes, big-endian. Decoding is total and bounded: a length is compared with its
//! limit and with the rest of the input first. It is also canonical: padding is zero, a boolean is 0 or 1, nothing
//! follows the last field. So a decoded value encodes to the same bytes.

use alloc::vec::Vec;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdrError {
    /// They are too short.
    Short,
    /// A length is above its limit.
    TooLong,
    /// A discriminant, boolean or padding byte has an invalid value.
    Invalid,
    /// There are extra bytes.
    Trailing,
}

/// The result of decoding.
pub type Decoded<T> = Result<T, XdrError>;

/// A value with an encoding. `'a` is the buffer that opaque parts borrow from.
pub trait Xdr<'a>: Sized {
    /// Decodes the value.
    ///
    /// # Errors
    ///
    /// The bytes are not such a value.
    fn decode(r: &mut Reader<'a>) -> Decoded<Self>;

    /// Appends the value.
    fn encode(&self, out: &mut Vec<u8>);
}

/// Decodes a value from all of `bytes`.
///
/// # Errors
///
/// The bytes are not such a value, or there are extra bytes.
pub fn decode<'a, T: Xdr<'a>>(bytes: &'a [u8]) -> Decoded<T> {
    let mut r = Reader::new(bytes);
    let value = T::decode(&mut r)?;
    r.end()?;
    Ok(value)
}

/// Returns the encoding of a value.
pub fn encode<'a>(value: &impl Xdr<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// Reads values from the front of a buffer.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the rest of the buffer.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that everything has been read.
    ///
    /// # Errors
    ///
    /// There are extra bytes.
    pub fn end(&self) -> Decoded<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(XdrError::Trailing) }
    }

    /// Reads `N` bytes, a multiple of four.
    ///
    /// # Errors
    ///
    /// Fewer are left.
    pub fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk().ok_or(XdrError::Short)?;
        self.bytes = rest;
        Ok(*head)
    }

    /// Reads an unsigned integer.
    ///
    /// # Errors
    ///
    /// Fewer than four bytes are left.
    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Reads variable-length opaque data of at most `max` bytes, with its padding.
    ///
    /// # Errors
    ///
    /// It is longer, extends beyond the end, or its padding is not zero.
    pub fn opaque(&mut self, max: usize) -> Decoded<&'a [u8]> {
        let len = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if len > max {
            return Err(XdrError::TooLong);
        }
        let padded = len.checked_next_multiple_of(4).ok_or(XdrError::TooLong)?;
        let (data, rest) = self.bytes.split_at_checked(padded).ok_or(XdrError::Short)?;
        let (data, padding) = data.split_at(len);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(XdrError::Invalid);
        }
        self.bytes = rest;
        Ok(data)
    }
}

/// Appends variable-length opaque data with its padding. The caller keeps it below 2^32 bytes.
pub fn put_opaque(out: &mut Vec<u8>, data: &[u8]) {
    put_len(out, data.len());
    out.extend_from_slice(data);
    pad(out, data.len());
}

/// Appends a length.
pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    u32::try_from(len).unwrap_or(u32::MAX).encode(out);
}

/// Appends the padding of `len` bytes.
pub(crate) fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&[0; 3][..len.next_multiple_of(4) - len]);
}

/// Opaque data of at most `MAX` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opaque<'a, const MAX: usize>(pub &'a [u8]);

impl<'a, const MAX: usize> Xdr<'a> for Opaque<'a, MAX> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        r.opaque(MAX).map(Self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_opaque(out, self.0);
    }
}

impl Xdr<'_> for u32 {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.u32()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl Xdr<'_> for u64 {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self::from_be_bytes(r.array()?))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl Xdr<'_> for bool {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        match r.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::Invalid),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode(out);
    }
}

impl<const N: usize> Xdr<'_> for [u8; N] {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        const { assert!(N.is_multiple_of(4), "fixed opaque data has no padding here") };
        r.array()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<'a, T: Xdr<'a>> Xdr<'a> for Option<T> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        if bool::decode(r)? { T::decode(r).map(Some) } else { Ok(None) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

/// A list: `true` before each element, and `false` at the end. The buffer bounds it: an element takes more than four
/// bytes.
impl<'a, T: Xdr<'a>> Xdr<'a> for Vec<T> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let mut list = Self::new();
        while bool::decode(r)? {
            list.push(T::decode(r)?);
        }
        Ok(list)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for element in self {
            true.encode(out);
            element.encode(out);
        }
        false.encode(out);
    }
}

impl Xdr<'_> for () {
    fn decode(_: &mut Reader<'_>) -> Decoded<Self> {
        Ok(())
    }

    fn encode(&self, _: &mut Vec<u8>) {}
}

/// Declares structures whose encoding is that of their fields, in order.
macro_rules! xdr_struct {
    ($($(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$field_meta])* pub $field: $type,)* }

        $crate::rpc::xdr::xdr_struct!(@impl $name $(<$life>)?, $($field: $type,)*);
    )*};
    (@impl $name:ident, $($field:ident: $type:ty,)*) => {
        impl<'a> $crate::rpc::xdr::Xdr<'a> for $name {
            fn decode(r: &mut $crate::rpc::xdr::Reader<'a>) -> $crate::rpc::xdr::Decoded<Self> {
                Ok(Self { $($field: <$type>::decode(r)?,)* })
            }

            fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                $(self.$field.encode(out);)*
            }
        }
    };
    (@impl $name:ident <$life:lifetime>, $($field:ident: $type:ty,)*) => {
        impl<$life> $crate::rpc::xdr::Xdr<$life> for $name<$life> {
            fn decode(r: &mut $crate::rpc::xdr::Reader<$life>) -> $crate::rpc::xdr::Decoded<Self> {
                Ok(Self { $($field: <$type>::decode(r)?,)* })
            }

            fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                $(self.$field.encode(out);)*
            }
        }
    };
}

/// Declares enumerations of numbers.
macro_rules! xdr_enum {
    ($($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $value:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_meta])* $variant = $value,)* }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the value of this number.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl $crate::rpc::xdr::Xdr<'_> for $name {
            fn decode(r: &mut $crate::rpc::xdr::Reader<'_>) -> $crate::rpc::xdr::Decoded<Self> {
                Self::from_number(r.u32()?).ok_or($crate::rpc::xdr::XdrError::Invalid)
            }

            fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                (*self as u32).encode(out);
            }
        }
    )*};
}

pub(crate) use {xdr_enum, xdr_struct};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_data_is_padded_to_four() {
        let value = Opaque::<8>(b"abcde");
        assert_eq!(encode(&value), [0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0]);
        assert_eq!(decode(&encode(&value)), Ok(value));
    }

    /// A length from an attacker is checked before it is used.
    #[test]
    fn lengths_are_bounded() {
        assert_eq!(decode::<Opaque<'_, 4>>(&[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0]), Err(XdrError::TooLong));
        assert_eq!(decode::<Opaque<'_, { usize::MAX }>>(&[0xff, 0xff, 0xff, 0xff, 1]), Err(XdrError::Short));
        assert_eq!(decode::<Opaque<'_, 8>>(&[0, 0, 0, 5, 1, 2, 3, 4, 5]), Err(XdrError::Short));
    }

    #[test]
    fn there_is_one_encoding() {
        assert_eq!(decode::<Opaque<'_, 8>>(&[0, 0, 0, 1, 1, 0, 0, 1]), Err(XdrError::Invalid));
        assert_eq!(decode::<bool>(&[0, 0, 0, 2]), Err(XdrError::Invalid));
        assert_eq!(decode::<u32>(&[0, 0, 0, 2, 0]), Err(XdrError::Trailing));
        assert_eq!(decode::<Vec<u64>>(&[0, 0, 0, 0]), Ok(Vec::new()));
    }
}

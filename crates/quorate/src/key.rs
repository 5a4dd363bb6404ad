//! Keys of maps and tables: values whose encodings have the order of the values.
//!
//! | Key | Order |
//! |---|---|
//! | whole numbers, `bool` | that of the numbers; false first |
//! | `String` | that of its characters |
//! | `Vec<u8>`, `[u8; N]` | that of its bytes, from the first on |
//! | `Option` | `None` first |
//! | tuples of two to four keys, structs | that of the first part, then of the second, ... |
//! | enums | that of the variants, then of the fields |
//!
//! Structs and enums get it by `#[derive(Key)]`.

/// A value that can be a key of a [`Map`](crate::Map): the order of the encodings is that of the values.
///
/// A key has two encodings. The one of a whole key may end where the key ends. The one of a part, which is followed by
/// other parts, has to show its end: it is never the beginning of another value's encoding.
pub trait Key: Sized {
    /// Appends the encoding of a whole key.
    fn encode_key(&self, out: &mut Vec<u8>);

    /// Decodes all of `bytes`.
    fn decode_key(bytes: &[u8]) -> Option<Self>;

    /// Appends the encoding of a part.
    fn encode_part(&self, out: &mut Vec<u8>);

    /// Decodes a part from the beginning of `bytes`, and advances `bytes` past it.
    fn decode_part(bytes: &mut &[u8]) -> Option<Self>;
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head)
}

/// Decodes a part that has to be all of `bytes`.
fn whole<K: Key>(mut bytes: &[u8]) -> Option<K> {
    let key = K::decode_part(&mut bytes)?;
    bytes.is_empty().then_some(key)
}

/// The functions of a key whose encoding as a part serves for the whole key.
macro_rules! same_as_part {
    () => {
        fn encode_key(&self, out: &mut Vec<u8>) {
            self.encode_part(out);
        }

        fn decode_key(bytes: &[u8]) -> Option<Self> {
            whole(bytes)
        }
    };
}

macro_rules! numbers {
    ($($type:ident)*) => { $(
        impl Key for $type {
            same_as_part!();

            fn encode_part(&self, out: &mut Vec<u8>) {
                // The sign comes first, the other way round, so that the order is that of numbers.
                let mut bytes = self.to_be_bytes();
                if Self::MIN != 0 {
                    bytes[0] ^= 0x80;
                }
                out.extend_from_slice(&bytes);
            }

            fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
                let mut bytes: [u8; size_of::<Self>()] = take(bytes, size_of::<Self>())?.try_into().ok()?;
                if Self::MIN != 0 {
                    bytes[0] ^= 0x80;
                }
                Some(Self::from_be_bytes(bytes))
            }
        }
    )* };
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 }

impl Key for bool {
    same_as_part!();

    fn encode_part(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes, 1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl<const N: usize> Key for [u8; N] {
    same_as_part!();

    fn encode_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes, N)?.try_into().ok()
    }
}

/// What stands in a part for a zero byte, and for its end. The end comes first, so a shorter text is less.
const ZERO: [u8; 2] = [0, 0xff];
const END: [u8; 2] = [0, 0];

impl Key for Vec<u8> {
    fn encode_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode_key(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        encode_text(self, out);
    }

    fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
        decode_text(bytes)
    }
}

impl Key for String {
    fn encode_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn decode_key(bytes: &[u8]) -> Option<Self> {
        Some(std::str::from_utf8(bytes).ok()?.to_owned())
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        encode_text(self.as_bytes(), out);
    }

    fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(decode_text(bytes)?).ok()
    }
}

fn encode_text(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            0 => out.extend_from_slice(&ZERO),
            byte => out.push(*byte),
        }
    }
    out.extend_from_slice(&END);
}

fn decode_text(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        match (take(bytes, 1)?[0], bytes.first()) {
            (0, Some(0)) => {
                take(bytes, 1)?;
                return Some(text);
            }
            (0, Some(0xff)) => {
                take(bytes, 1)?;
                text.push(0);
            }
            (0, _) => return None,
            (byte, _) => text.push(byte),
        }
    }
}

impl<K: Key> Key for Option<K> {
    fn encode_key(&self, out: &mut Vec<u8>) {
        self.is_some().encode_part(out);
        if let Some(key) = self {
            key.encode_key(out);
        }
    }

    fn decode_key(mut bytes: &[u8]) -> Option<Self> {
        if bool::decode_part(&mut bytes)? {
            K::decode_key(bytes).map(Some)
        } else {
            bytes.is_empty().then_some(None)
        }
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        self.is_some().encode_part(out);
        if let Some(key) = self {
            key.encode_part(out);
        }
    }

    fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
        if bool::decode_part(bytes)? { K::decode_part(bytes).map(Some) } else { Some(None) }
    }
}

macro_rules! tuples {
    ($(($($part:ident $at:tt)* , $last:ident $end:tt))*) => { $(
        impl<$($part: Key,)* $last: Key> Key for ($($part,)* $last) {
            fn encode_key(&self, out: &mut Vec<u8>) {
                $(self.$at.encode_part(out);)*
                self.$end.encode_key(out);
            }

            fn decode_key(mut bytes: &[u8]) -> Option<Self> {
                Some(($($part::decode_part(&mut bytes)?,)* $last::decode_key(bytes)?))
            }

            fn encode_part(&self, out: &mut Vec<u8>) {
                $(self.$at.encode_part(out);)*
                self.$end.encode_part(out);
            }

            fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode_part(bytes)?,)* $last::decode_part(bytes)?))
            }
        }
    )* };
}

tuples! { (A 0, B 1) (A 0 B 1, C 2) (A 0 B 1 C 2, D 3) }

/// The beginning of keys of type `K`, for [`Map::prefix`](crate::Map::prefix): a text for keys that are texts, the first
/// part or parts for tuples.
pub trait Prefix<K: Key> {
    /// Appends the bytes with which the encodings of these keys begin.
    fn encode_prefix(&self, out: &mut Vec<u8>);
}

impl Prefix<String> for str {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Prefix<Vec<u8>> for [u8] {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<A: Key, B: Key> Prefix<(A, B)> for A {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        self.encode_part(out);
    }
}

impl<A: Key, B: Key, C: Key> Prefix<(A, B, C)> for A {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        self.encode_part(out);
    }
}

impl<A: Key, B: Key, C: Key> Prefix<(A, B, C)> for (A, B) {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        self.encode_part(out);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::value::{Dice, Value};

    /// The encodings of some values are decoded again, and have the order of the values.
    fn ordered<K: Key + Ord + Debug>(mut keys: Vec<K>) {
        keys.sort();
        for encode in [K::encode_key, K::encode_part] {
            let encoded: Vec<Vec<u8>> = keys
                .iter()
                .map(|key| {
                    let mut bytes = Vec::new();
                    encode(key, &mut bytes);
                    bytes
                })
                .collect();
            assert!(encoded.is_sorted(), "{keys:?}");
        }
        for key in &keys {
            let (mut whole, mut part) = (Vec::new(), Vec::new());
            key.encode_key(&mut whole);
            assert_eq!(K::decode_key(&whole).as_ref(), Some(key));
            key.encode_part(&mut part);
            // A part ends where it says, whatever follows.
            for rest in [&[][..], &[0], &[0xff, 1]] {
                let bytes = [&part[..], rest].concat();
                let mut left = &bytes[..];
                assert_eq!(K::decode_part(&mut left).as_ref(), Some(key));
                assert_eq!(left, rest);
            }
            for cut in 0..part.len() {
                assert!(K::decode_part(&mut &part[..cut]).is_none(), "{key:?} cut after {cut} bytes");
            }
        }
    }

    fn drawn<T: Value>(seed: u64) -> Vec<T> {
        let mut dice = Dice::new(seed);
        (0..300).map(|_| T::draw(&mut dice)).collect()
    }

    #[test]
    fn encodings_have_the_order_of_the_keys() {
        ordered(vec![i32::MIN, -256, -1, 0, 1, 255, 256, i32::MAX]);
        ordered(vec![0_u64, 1, 255, 256, u64::MAX]);
        ordered(["", "a", "a\0", "a\0b", "ab", "b", "\u{10ffff}"].map(str::to_owned).to_vec());
        ordered(vec![
            vec![],
            vec![0],
            vec![0, 0],
            vec![0, 1],
            vec![0, 0xff],
            vec![1],
            vec![0xff],
            vec![0xff, 0xff],
        ]);
        ordered(drawn::<(String, i64)>(1));
        ordered(drawn::<(bool, String, u8)>(2));
        ordered(drawn::<(String, String, String, [u8; 2])>(3));
        ordered(drawn::<Option<(Option<String>, i8)>>(4));
        ordered(drawn::<((String, u8), Option<bool>)>(5));
    }

    #[test]
    fn bytes_that_no_key_has_are_refused() {
        assert_eq!(bool::decode_key(&[2]), None);
        assert_eq!(u16::decode_key(&[0]), None);
        assert_eq!(u16::decode_key(&[0, 0, 0]), None);
        assert_eq!(
            <(String, u8)>::decode_key(&[b'a', 0, 7, 1]),
            None,
            "a zero is followed by what it stands for"
        );
        assert_eq!(Option::<u8>::decode_key(&[0, 1]), None);
    }
}

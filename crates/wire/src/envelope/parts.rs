//! Parts that several bodies contain.

use alloc::vec::Vec;

use crate::envelope::codec::{DecodeError, Decoded, Reader};

#[inline]
pub(crate) fn whole<'a, T>(body: &'a [u8], read: impl FnOnce(&mut Reader<'a>) -> Decoded<T>) -> Decoded<T> {
    let mut reader = Reader::new(body);
    let value = read(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads `count` items. Room is made as they come, so that a count alone cannot claim memory (B36).
pub(crate) fn take_list<T>(count: usize, mut item: impl FnMut() -> Decoded<T>) -> Decoded<Vec<T>> {
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(item()?);
    }
    Ok(list)
}

pub(crate) fn increasing<T: Ord>(keys: impl Iterator<Item = T>) -> Decoded<()> {
    if keys.is_sorted_by(|a, b| a < b) { Ok(()) } else { Err(DecodeError::NotCanonical) }
}

pub(crate) fn check_len(len: usize, max: usize) -> Decoded<()> {
    if len <= max {
        return Ok(());
    }
    let (count, max) = (u64::try_from(len).unwrap_or(u64::MAX), u64::try_from(max).unwrap_or(u64::MAX));
    Err(DecodeError::TooMany { count, max })
}

/// Declares a message of fixed-width fields: its struct, `encode` and `decode`.
macro_rules! plain_message {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $put:expr, $take:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl $name {
            /// Appends the body.
            pub fn encode(&self, out: &mut $crate::envelope::codec::Writer<'_>) {
                $( { let put: fn(&mut $crate::envelope::codec::Writer<'_>, $type) = $put; put(out, self.$field); } )*
            }

            /// Reads a whole body.
            pub fn decode(body: &[u8]) -> $crate::envelope::codec::Decoded<Self> {
                $crate::envelope::parts::whole(body, |r| {
                    $( let $field: $type = { let take: fn(&mut $crate::envelope::codec::Reader<'_>) -> $crate::envelope::codec::Decoded<$type> = $take; take(r)? }; )*
                    Ok(Self { $($field),* })
                })
            }
        }
    };
}
pub(crate) use plain_message;

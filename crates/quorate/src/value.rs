//! The values in operations, replies and state. Each has exactly one encoding, so there are no floats and no unordered
//! maps.

mod level;

pub use serde_json::Value as Json;
use serde_json::{Map, json};

pub use self::level::{DEPTH_MAX, Level};

/// A value with exactly one encoding: equal values have equal bytes, and decoding reads all of its bytes or fails.
/// Derived for structs and enums whose fields are values.
///
/// A value that is nested more deeply than [`DEPTH_MAX`] does not decode. A call with such an operation or reply, or that
/// stores such a value, is refused and undone.
pub trait Value: Sized {
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes a value from the beginning of `bytes`, and advances `bytes` past it.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;

    /// Returns the value as JSON.
    fn to_json(&self) -> Json;

    /// Parses a value from JSON.
    ///
    /// # Errors
    ///
    /// The JSON is not of this type: a sentence with the expected form.
    fn from_json(json: &Json) -> Result<Self, String>;

    /// Draws a value for the simulator: small, and one of few, so that operations conflict.
    fn draw(dice: &mut Dice) -> Self;

    /// Returns whether the reply is a refusal, which undoes all writes of the call.
    fn is_refusal(&self) -> bool {
        false
    }
}

/// A pseudo-random number generator with a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`, which is at least 1. Steele's splitmix.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound.max(1)
    }
}

/// Decodes all of `bytes`.
pub fn decode_all<T: Value>(mut bytes: &[u8]) -> Option<T> {
    let value = T::decode(&mut bytes)?;
    bytes.is_empty().then_some(value)
}

/// Returns the encoding.
pub fn encode<T: Value>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// Appends the encoding. Returns whether it can be decoded: the value is not nested too deeply.
pub(crate) fn encode_within<T: Value>(value: &T, out: &mut Vec<u8>) -> bool {
    level::all_within(|| value.encode(out))
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head)
}

fn take_len(bytes: &mut &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?);
    // Each item has a byte or more, but those without any: a length beyond what is there is not one.
    usize::try_from(len).ok()
}

fn put_len(len: usize, out: &mut Vec<u8>) {
    // What is longer does not fit in an operation, a reply or a page, and is refused there.
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

macro_rules! numbers {
    ($($type:ident)*) => { $(
        impl Value for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(take(bytes, size_of::<Self>())?.try_into().ok()?))
            }

            fn to_json(&self) -> Json {
                json!(self)
            }

            fn from_json(json: &Json) -> Result<Self, String> {
                let signed = json.as_i64().and_then(|number| Self::try_from(number).ok());
                let number = signed.or_else(|| json.as_u64().and_then(|number| Self::try_from(number).ok()));
                number.ok_or_else(|| {
                    format!("{json}: expected a whole number from {} to {}", Self::MIN, Self::MAX)
                })
            }

            fn draw(dice: &mut Dice) -> Self {
                let extreme = [Self::MIN, Self::MAX, 0];
                match dice.below(16) {
                    at @ 0..3 => extreme[usize::try_from(at).unwrap_or(0)],
                    _ => Self::try_from(dice.below(10)).unwrap_or(0),
                }
            }
        }
    )* };
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 }

impl Value for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes, 1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn to_json(&self) -> Json {
        json!(self)
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        json.as_bool().ok_or_else(|| format!("{json}: expected true or false"))
    }

    fn draw(dice: &mut Dice) -> Self {
        dice.below(2) == 1
    }
}

impl Value for String {
    fn encode(&self, out: &mut Vec<u8>) {
        put_len(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let len = take_len(bytes)?;
        Some(std::str::from_utf8(take(bytes, len)?).ok()?.to_owned())
    }

    fn to_json(&self) -> Json {
        json!(self)
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        json.as_str().map(str::to_owned).ok_or_else(|| format!("{json}: expected a string"))
    }

    fn draw(dice: &mut Dice) -> Self {
        const NAMES: [&str; 5] = ["ann", "bob", "cleo", "dan", ""];
        NAMES[usize::try_from(dice.below(40) % 9 % 5).unwrap_or(0)].to_owned()
    }
}

impl Value for () {
    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(_bytes: &mut &[u8]) -> Option<Self> {
        Some(())
    }

    fn to_json(&self) -> Json {
        Json::Null
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        if json.is_null() { Ok(()) } else { Err(format!("{json}: expected null")) }
    }

    fn draw(_dice: &mut Dice) -> Self {}
}

impl<T: Value> Value for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        let _level = Level::encode();
        put_len(self.len(), out);
        for item in self {
            item.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let _level = Level::decode()?;
        let len = take_len(bytes)?;
        let mut items = Self::new();
        for _ in 0..len {
            let before = bytes.len();
            items.push(T::decode(bytes)?);
            if bytes.len() == before && !Level::has_room_for_empty() {
                return None;
            }
        }
        Some(items)
    }

    fn to_json(&self) -> Json {
        self.iter().map(T::to_json).collect()
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        let items = json.as_array().ok_or_else(|| format!("{json}: expected a list"))?;
        items.iter().map(T::from_json).collect()
    }

    fn draw(dice: &mut Dice) -> Self {
        (0..dice.below(4)).map(|_| T::draw(dice)).collect()
    }
}

impl<T: Value> Value for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        if bool::decode(bytes)? { T::decode(bytes).map(Some) } else { Some(None) }
    }

    fn to_json(&self) -> Json {
        self.as_ref().map_or(Json::Null, T::to_json)
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        if json.is_null() { Ok(None) } else { T::from_json(json).map(Some) }
    }

    fn draw(dice: &mut Dice) -> Self {
        bool::draw(dice).then(|| T::draw(dice))
    }
}

impl<T: Value, E: Value> Value for Result<T, E> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_err().encode(out);
        match self {
            Ok(value) => value.encode(out),
            Err(error) => error.encode(out),
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        if bool::decode(bytes)? { E::decode(bytes).map(Err) } else { T::decode(bytes).map(Ok) }
    }

    fn to_json(&self) -> Json {
        match self {
            Ok(value) => json!({ "Ok": value.to_json() }),
            Err(error) => json!({ "Err": error.to_json() }),
        }
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        match (json.get("Ok"), json.get("Err")) {
            (Some(value), None) => T::from_json(value).map(Ok),
            (None, Some(error)) => E::from_json(error).map(Err),
            _ => Err(format!("{json}: expected {{\"Ok\": ...}} or {{\"Err\": ...}}")),
        }
    }

    fn draw(dice: &mut Dice) -> Self {
        if bool::draw(dice) { Ok(T::draw(dice)) } else { Err(E::draw(dice)) }
    }

    fn is_refusal(&self) -> bool {
        self.is_err()
    }
}

macro_rules! tuples {
    ($(($count:literal $($part:ident $at:tt)+))*) => { $(
        impl<$($part: Value),+> Value for ($($part,)+) {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$at.encode(out);)+
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode(bytes)?,)+))
            }

            fn to_json(&self) -> Json {
                Json::Array(vec![$(self.$at.to_json()),+])
            }

            fn from_json(json: &Json) -> Result<Self, String> {
                match json.as_array().map(Vec::as_slice) {
                    Some(parts) if parts.len() == $count => Ok(($($part::from_json(&parts[$at])?,)+)),
                    _ => Err(format!("{json}: expected a list of {}", $count)),
                }
            }

            fn draw(dice: &mut Dice) -> Self {
                ($($part::draw(dice),)+)
            }
        }
    )* };
}

tuples! { (2 A 0 B 1) (3 A 0 B 1 C 2) (4 A 0 B 1 C 2 D 3) }

impl<const N: usize> Value for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes, N)?.try_into().ok()
    }

    fn to_json(&self) -> Json {
        json!(self.as_slice())
    }

    fn from_json(json: &Json) -> Result<Self, String> {
        let bytes: Vec<u8> = Vec::from_json(json)?;
        bytes.try_into().map_err(|_| format!("{json}: expected a list of {N} bytes"))
    }

    fn draw(dice: &mut Dice) -> Self {
        std::array::from_fn(|_| u8::try_from(dice.below(3)).unwrap_or(0))
    }
}

/// Returns the JSON of a struct or a variant with these fields. For the derives.
#[doc(hidden)]
pub fn named(fields: Vec<(&str, Json)>) -> Json {
    Json::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// Returns the JSON of a variant. For the derives.
#[doc(hidden)]
pub fn tagged(name: &str, fields: Vec<(&str, Json)>) -> Json {
    if fields.is_empty() { json!(name) } else { named(vec![(name, named(fields))]) }
}

/// Splits the JSON of a variant into its name and its fields. For the derives.
#[doc(hidden)]
pub fn untagged<'a>(json: &'a Json, names: &[&str]) -> Result<(&'a str, &'a Json), String> {
    let alone = json.as_str().map(|name| (name, &Json::Null));
    let one = json.as_object().filter(|map| map.len() == 1);
    let found = alone.or_else(|| one?.iter().next().map(|(name, body)| (name.as_str(), body)));
    found
        .filter(|(name, _)| names.contains(name))
        .ok_or_else(|| format!("{json}: expected one of {}", names.join(", ")))
}

/// Reads a field. For the derives.
#[doc(hidden)]
pub fn field<T: Value>(json: &Json, name: &str) -> Result<T, String> {
    let value = json.get(name).ok_or_else(|| format!("{json}: the field {name} is missing"))?;
    T::from_json(value).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn there_and_back<T: Value + PartialEq + Debug>(seed: u64) {
        let mut dice = Dice::new(seed);
        for _ in 0..200 {
            let value = T::draw(&mut dice);
            let bytes = encode(&value);
            assert_eq!(decode_all::<T>(&bytes).as_ref(), Some(&value));
            assert_eq!(T::from_json(&value.to_json()).as_ref(), Ok(&value));
            // What is cut off, or has something behind it, is not a value.
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(decode_all::<T>(&longer), None);
            if !bytes.is_empty() {
                assert!(decode_all::<T>(&bytes[..bytes.len() - 1]).is_none());
            }
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        there_and_back::<u64>(1);
        there_and_back::<i16>(2);
        there_and_back::<bool>(3);
        there_and_back::<String>(4);
        there_and_back::<()>(5);
        there_and_back::<Vec<(String, u8)>>(6);
        there_and_back::<Option<Vec<bool>>>(7);
        there_and_back::<Result<i64, String>>(8);
        there_and_back::<(u8, String, bool)>(9);
        there_and_back::<[u8; 3]>(10);
    }

    /// A type that contains itself.
    #[derive(Debug, PartialEq, crate::Value)]
    enum Doc {
        Null {},
        List { items: Vec<Self> },
    }

    /// L83: a value that is nested deeply does not overflow the stack.
    #[test]
    fn l83_a_deep_value_does_not_decode() {
        let nested = |depth: usize| [&[1, 1, 0, 0, 0].repeat(depth)[..], &[0]].concat();
        assert_eq!(decode_all::<Doc>(&nested(1 << 18)), None);
        // A list in a list is two levels: the variant, and its field. The innermost value is another one.
        let most = usize::try_from(DEPTH_MAX).unwrap() / 2;
        assert_eq!(decode_all::<Doc>(&nested(most)), None);
        let doc = decode_all::<Doc>(&nested(most - 1)).unwrap();
        let mut bytes = Vec::new();
        assert!(encode_within(&doc, &mut bytes) && bytes == nested(most - 1));
        assert_eq!(Doc::from_json(&doc.to_json()).as_ref(), Ok(&doc));
        let deeper = Doc::List { items: vec![doc] };
        bytes.clear();
        assert!(!encode_within(&deeper, &mut bytes) && bytes == nested(most));
        // The next one is counted from the beginning.
        assert!(encode_within(&Doc::Null {}, &mut bytes));
        assert_eq!(decode_all::<Vec<Doc>>(&[2, 0, 0, 0, 0, 0]), Some(vec![Doc::Null {}, Doc::Null {}]));
    }

    /// A length beyond the end of the input takes neither memory nor time.
    #[test]
    fn a_length_is_not_believed() {
        assert_eq!(decode_all::<Vec<u64>>(&[0xff; 4]), None);
        assert_eq!(decode_all::<Vec<()>>(&[0xff; 4]), None);
        assert_eq!(decode_all::<String>(&[0xff, 0xff, 0, 0, b'x']), None);
        // Nor do many lengths, each of which would be allowed alone.
        let lists = |count: u8| [&[count, 0, 0, 0][..], &[0xff, 0xff, 0, 0].repeat(count.into())].concat();
        assert!(decode_all::<Vec<Vec<()>>>(&lists(1)).is_some());
        assert_eq!(decode_all::<Vec<Vec<()>>>(&lists(2)), None);
        assert!(decode_all::<Vec<Vec<()>>>(&lists(1)).is_some(), "each value is counted from the beginning");
    }
}

//! A key-value service.
//!
//! Operations and answers are values with an encoding, so that a text protocol and a RESP door are
//! only parsers on top of them.

use alloc::vec::Vec;

use quorate_wire::codec::Decoded;

use crate::service::{Context, Service, Stop};
use crate::view::View;

/// A key-value store. Keys and values are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kv;

/// What can be asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The value of a key. Read-only.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Sets the value of a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Removes a key.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// Sets the value of a key if it has the expected one.
    Cas {
        /// The key.
        key: &'a [u8],
        /// What it has to be; none: absent.
        expected: Option<&'a [u8]>,
        /// What it becomes.
        value: &'a [u8],
    },
    /// Adds to the decimal number that is the value of a key; an absent one counts as 0.
    Incr {
        /// The key.
        key: &'a [u8],
        /// How much to add.
        by: i64,
    },
    /// Appends to the value of a key; an absent one counts as empty.
    Append {
        /// The key.
        key: &'a [u8],
        /// What is appended.
        suffix: &'a [u8],
    },
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Done.
    Done,
    /// The value asked for; for `Incr` the new number in decimal; for `Append` the new length in
    /// decimal.
    Value(&'a [u8]),
    /// There is no such key.
    Nil,
    /// Nothing was changed.
    Failed(Failure),
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The operation cannot be decoded.
    Malformed,
    /// The key is longer than the store takes.
    KeyTooLong,
    /// The value is longer than the store takes.
    ValueTooLong,
    /// `Cas`: the value is another.
    Mismatch,
    /// `Incr`: the value is no decimal number of 64 bits.
    NotANumber,
    /// `Incr`: the sum does not fit in 64 bits.
    Overflow,
    /// The store is full.
    Full,
}

impl<'a> Operation<'a> {
    /// Appends the encoding.
    pub fn encode(&self, _out: &mut Vec<u8>) {
        todo!()
    }

    /// Decodes all of `bytes`.
    pub fn decode(_bytes: &'a [u8]) -> Decoded<Self> {
        todo!()
    }
}

impl<'a> Answer<'a> {
    /// Appends the encoding.
    pub fn encode(&self, _out: &mut Vec<u8>) {
        todo!()
    }

    /// Decodes all of `bytes`.
    pub fn decode(_bytes: &'a [u8]) -> Decoded<Self> {
        todo!()
    }
}

impl Service for Kv {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        matches!(Operation::decode(operation), Ok(Operation::Get { .. }))
    }

    fn execute(
        &self,
        _cx: Context,
        _operation: &[u8],
        _state: &mut View<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        todo!()
    }
}

//! What a run on cells leaves to settling (PX-B): changes of pages, and answers that depend on what every call writes.
//!
//! A run knows neither which pages are free nor how much each user owns, because all calls change that. It takes the
//! answers from the settled state, and changes no page of data. When the call settles, each answer is computed again. If
//! one differs, the call is executed on pages.
//!
//! ```text
//! kind 1 | six numbers, 8 each | bytes
//! ```

use alloc::vec::Vec;

use quorate_service::{Stop, View};

use crate::volume::bytes::le64;

/// Bytes before those of the change itself.
const HEAD_BYTES: usize = 1 + 6 * 8;

/// What is left to settling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaterKind {
    /// The time of the call is later than any before, and the reply cache does not have the call.
    Begin,
    /// The reply goes into the reply cache.
    Keep,
    /// The time of the call is used.
    Tick,
    /// A user owns more or less: user, pages, inodes, links.
    Charge,
    /// Data goes to the pages of a file: inode, user, pages before and after, offset.
    Write,
    /// The pages of a file from a block on are freed: inode, user, pages before and after, block.
    Free,
    /// The last page of a file is cleared behind its end: inode, size.
    Clear,
    /// Whether a page is available.
    Space,
    /// Whether another inode is allowed.
    Inodes,
    /// Whether a user may own more: user, pages, inodes.
    Quota,
    /// How many bytes of a write there is space for: inode, offset, length.
    Room,
    /// How many bytes of a write its owner may add: inode, offset, length.
    QuotaRoom,
}

/// A change that was left to settling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later<'a> {
    pub(crate) kind: LaterKind,
    pub(crate) numbers: [u64; 6],
    pub(crate) bytes: &'a [u8],
}

impl LaterKind {
    const ALL: [Self; 12] = [
        Self::Begin,
        Self::Keep,
        Self::Tick,
        Self::Charge,
        Self::Write,
        Self::Free,
        Self::Clear,
        Self::Space,
        Self::Inodes,
        Self::Quota,
        Self::Room,
        Self::QuotaRoom,
    ];
}

impl<'a> Later<'a> {
    /// Returns the change in `bytes`.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Stop> {
        let kind = bytes.first().and_then(|kind| LaterKind::ALL.get(usize::from(*kind)));
        let mut numbers = [0; 6];
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = le64(bytes, 1 + 8 * at)?;
        }
        let bytes = bytes.get(HEAD_BYTES..).ok_or(Stop::Corrupt)?;
        Ok(Self { kind: *kind.ok_or(Stop::Corrupt)?, numbers, bytes })
    }

    fn encode(kind: LaterKind, numbers: &[u64], parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + parts.iter().map(|part| part.len()).sum::<usize>());
        bytes.push(kind as u8);
        for at in 0..6 {
            bytes.extend_from_slice(&numbers.get(at).copied().unwrap_or(0).to_le_bytes());
        }
        for part in parts {
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// Leaves a change to settling, if this is a run on cells. Returns whether it is. `parts` are the bytes.
pub(crate) fn postpone(view: &mut View<'_>, kind: LaterKind, numbers: &[u64], parts: &[&[u8]]) -> bool {
    view.postpone(|| Later::encode(kind, numbers, parts))
}

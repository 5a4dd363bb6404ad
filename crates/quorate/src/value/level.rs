//! Bounds on a value while it is encoded or decoded: how deeply lists and derived types are nested, and how many items
//! without bytes there are.

use std::cell::Cell;

/// How deeply lists and derived types may be nested in each other. Code that walks through a value is recursive, so a
/// deeper one could overflow the stack of every replica.
pub const DEPTH_MAX: u32 = 128;

/// Maximum number of list items without bytes in a value. A few bytes can say that there are very many.
const EMPTY_MAX: u32 = 1 << 16;

thread_local! {
    /// The lists and derived types that are being encoded or decoded, one in the other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The items without bytes that were decoded since the outermost list or derived type began.
    static EMPTY: Cell<u32> = const { Cell::new(0) };
    /// Whether a value was encoded that is nested too deeply.
    static TOO_DEEP: Cell<bool> = const { Cell::new(false) };
}

/// A list or a derived type, while it is encoded or decoded. For the derives.
#[doc(hidden)]
#[derive(Debug)]
pub struct Level(());

impl Level {
    /// Begins to decode one. None: it is nested too deeply.
    pub fn decode() -> Option<Self> {
        let level = Self::enter();
        if DEPTH.get() == 1 {
            EMPTY.set(0);
        }
        (DEPTH.get() <= DEPTH_MAX).then_some(level)
    }

    /// Begins to encode one.
    pub fn encode() -> Self {
        let level = Self::enter();
        if DEPTH.get() > DEPTH_MAX {
            TOO_DEEP.set(true);
        }
        level
    }

    /// Counts an item without bytes. Returns whether there may be one more.
    pub(super) fn has_room_for_empty() -> bool {
        EMPTY.set(EMPTY.get() + 1);
        EMPTY.get() <= EMPTY_MAX
    }

    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Encodes something, and returns whether it can be decoded: nothing in it is nested too deeply.
pub(super) fn all_within(encode: impl FnOnce()) -> bool {
    TOO_DEEP.set(false);
    encode();
    !TOO_DEEP.get()
}

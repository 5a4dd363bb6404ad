//! The seeded bugs of this crate. Their numbers and what they are stand in the list of agreement's.

use core::sync::atomic::{AtomicU32, Ordering};

/// A request is executed again under the timestamp of its lane's last one.
pub const SAME_TIMESTAMP_AGAIN: u32 = 75;

/// The active bug, or 0.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Turns on the bug with this number, or none of them. For the whole process.
pub fn activate(id: Option<u32>) {
    ACTIVE.store(id.unwrap_or(0), Ordering::Relaxed);
}

/// Says whether the bug with this number is on.
pub fn is_active(id: u32) -> bool {
    ACTIVE.load(Ordering::Relaxed) == id
}

//! Counts allocations by account.
//!
//! The system's allocator with a counter in front of it, which is off by default.
#![allow(unsafe_code, reason = "an allocator is unsafe by its trait; this one hands everything on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of accounts.
pub const ACCOUNTS: usize = 16;

/// The account that is charged, plus 1; 0: none.
static CHARGED: AtomicUsize = AtomicUsize::new(0);
static COUNTS: [AtomicU64; ACCOUNTS] = [const { AtomicU64::new(0) }; ACCOUNTS];

/// The allocator. See the module.
#[derive(Debug)]
pub struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Charges all allocations from now on, by any thread, to `account`; with none, they are not counted.
#[inline]
pub fn charge(account: Option<usize>) {
    CHARGED.store(account.map_or(0, |account| account + 1), Ordering::Relaxed);
}

/// Returns how often an account was charged: allocations, and reallocations that grow or shrink.
pub fn count(account: usize) -> u64 {
    COUNTS.get(account).map_or(0, |count| count.load(Ordering::Relaxed))
}

#[inline]
fn note() {
    let charged = CHARGED.load(Ordering::Relaxed);
    if charged != 0
        && let Some(count) = COUNTS.get(charged - 1)
    {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as the caller's.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_charged_to_the_account_that_is_open() {
        let before = count(ACCOUNTS - 1);
        charge(Some(ACCOUNTS - 1));
        let boxed = std::hint::black_box(Box::new(7_u64));
        charge(None);
        let other = std::hint::black_box(Box::new(8_u64));
        // Other tests may have allocated in that time, which is counted too.
        assert!(count(ACCOUNTS - 1) > before);
        assert_eq!(*boxed + *other, 15);
    }
}

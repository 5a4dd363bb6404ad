//! An allocator that counts: how much memory one execution of a target takes at its peak.
#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static NOW: Cell<usize> = const { Cell::new(0) };
    /// The most that was, since [`begin`].
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sets what this thread has allocated. A thread that is ending is not counted any more.
fn count(change: impl FnOnce(usize) -> usize) {
    _ = NOW.try_with(|now| {
        now.set(change(now.get()));
        PEAK.try_with(|peak| peak.set(peak.get().max(now.get())))
    });
}

// SAFETY: every call is handed on to the system's allocator as it came; counting touches no memory
// of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|now| now + layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // What another thread has allocated is not counted here.
        count(|now| now.saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Begins to watch this thread's peak from here, and returns how much it has allocated, in bytes.
pub(crate) fn begin() -> usize {
    let now = NOW.get();
    PEAK.set(now);
    now
}

/// Returns the most that this thread had allocated since [`begin`], in bytes.
pub(crate) fn peak() -> usize {
    PEAK.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_an_allocation_is_seen() {
        let before = begin();
        drop(std::hint::black_box(vec![1_u8; 1 << 20]));
        assert!(peak() >= before + (1 << 20));
    }
}

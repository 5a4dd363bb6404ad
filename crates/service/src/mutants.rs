//! The seeded bugs of this crate. Agreement's list has their numbers, and what they are.
//!
//! `mutant!(M75, right, wrong)` is `right`. Only with the feature `mutants`, and only while bug 75 is active, is it
//! `wrong`.

/// A request is executed again under the timestamp of its lane's last one.
pub const M75: u32 = 75;
/// One client may have every lane.
pub const M101: u32 = 101;
/// A lane that goes gives two places back.
pub const M102: u32 = 102;
/// A fetched page is not compared with its digest.
pub const M103: u32 = 103;
/// A fetched node is not compared with its digest.
pub const M104: u32 = 104;
/// A change of the client registry survives its undo.
pub const M106: u32 = 106;
/// The agreed time may go back.
pub const M107: u32 = 107;
/// A lane that goes leaves no trace.
pub const M108: u32 = 108;
/// The tables in memory are those of the state before a transfer.
pub const M109: u32 = 109;
/// A question with a large number ends all others.
pub const M110: u32 = 110;
/// A read does not wait for unsettled requests on which it depends.
pub const M167: u32 = 167;
/// A replica may begin lives as often as it likes.
pub const M192: u32 = 192;

#[cfg(feature = "mutants")]
mod switch {
    use core::sync::atomic::{AtomicU32, Ordering};

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
}

#[cfg(feature = "mutants")]
pub use switch::{activate, is_active};

/// Says that no bug is on: this build has none.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a constant, so that both debug and release drop the branch")]
pub const fn is_active(_id: u32) -> bool {
    false
}

/// Is the second argument, or the third while the bug named first is active.
macro_rules! mutant {
    ($id:ident, $right:expr, $wrong:expr) => {
        if $crate::mutants::is_active($crate::mutants::$id) { $wrong } else { $right }
    };
}

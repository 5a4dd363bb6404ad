//! Non-determinism: the primary chooses, the backups check, the service reads [OSDI99 §4.6], spec §7.
//!
//! The choice is the primary's time of day, eight bytes, little-endian nanoseconds since 1970. A null
//! batch has an empty choice.

use crate::step::{Now, Reject};

/// Returns the primary's choice: its clock, and never below what was agreed before.
pub fn propose(now: Now, last: u64) -> [u8; 8] {
    now.wall_ns.max(last.saturating_add(1)).to_le_bytes()
}

/// Returns the time that a choice names, in nanoseconds.
pub fn decode(choice: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(choice.try_into().ok()?))
}

/// The soft check of ND-2: within `skew` nanoseconds of this replica's clock, and not below the last
/// agreed value. Failing it means "do not prepare": it can cost a view change, never divergence.
pub fn check(now: Now, choice: &[u8], last: u64, skew: u64) -> Result<(), Reject> {
    let Some(chosen) = decode(choice) else { return Err(Reject::BadChoice) };
    // What was agreed may be ahead of this clock already; then the next value may be too.
    let latest = now.wall_ns.saturating_add(skew).max(last.saturating_add(skew));
    let earliest = now.wall_ns.saturating_sub(skew);
    let near = chosen <= latest && (chosen >= earliest || chosen > last);
    if near && chosen >= last { Ok(()) } else { Err(Reject::BadChoice) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKEW: u64 = 2_000_000_000;
    const NOW: Now = Now { mono_ns: 0, wall_ns: 1_000_000_000_000 };

    /// ND-2: a clock within the skew is good, one beyond it is not.
    #[test]
    fn the_primarys_clock_must_be_near_ours() {
        let at = |wall: u64| wall.to_le_bytes();
        assert_eq!(check(NOW, &at(NOW.wall_ns), 0, SKEW), Ok(()));
        assert_eq!(check(NOW, &at(NOW.wall_ns + SKEW), 0, SKEW), Ok(()));
        assert_eq!(check(NOW, &at(NOW.wall_ns + SKEW + 1), 0, SKEW), Err(Reject::BadChoice));
    }

    /// ND-2: "not below the last agreed value".
    #[test]
    fn time_never_goes_back() {
        assert_eq!(check(NOW, &(NOW.wall_ns - 1).to_le_bytes(), NOW.wall_ns, SKEW), Err(Reject::BadChoice));
        assert_eq!(propose(NOW, NOW.wall_ns + 5), (NOW.wall_ns + 6).to_le_bytes());
    }

    #[test]
    fn a_choice_has_eight_bytes() {
        assert_eq!(check(NOW, &[], 0, SKEW), Err(Reject::BadChoice));
        assert_eq!(check(NOW, &[0; 9], 0, SKEW), Err(Reject::BadChoice));
    }
}

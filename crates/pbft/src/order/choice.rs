//! Non-determinism: the primary chooses, the backups check, the service reads [OSDI99 §4.6], spec §7.
//!
//! The choice is the primary's time of day, eight bytes, little-endian nanoseconds since 1970. It is part of the
//! batch and of its digest, so a faulty primary cannot send different values to different replicas. A null batch has
//! an empty choice.

use crate::io::step::{Now, Reject};

/// Returns the primary's choice (ND-1): its clock, and never below `last`, what was agreed last, in
/// nanoseconds. Where the clock stands behind that, time is paused: the service moves on by itself,
/// `time = max(nd.time, last_time + 1)` (ND-2).
pub fn propose(now: Now, last: u64) -> [u8; 8] {
    now.wall_ns.max(last).to_le_bytes()
}

/// Returns the time that a choice names, in nanoseconds.
pub fn decode(choice: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(choice.try_into().ok()?))
}

/// The soft check of ND-2: at most `behind` nanoseconds before this replica's clock and `ahead` after it, and not below
/// `last`, what was agreed last. At most the agreed time `latest` where all clocks have been set back.
///
/// "a faulty primary might send the same, incorrect, value to all replicas. Therefore, replicas must
/// be able to decide [...] whether the value is correct" [OSDI99 §4.6]. The paper wants that decided
/// from the state alone; here the clock helps, and failing the check means only "do not prepare": it
/// can cost a view change, never divergence. Of what a NEW-VIEW takes over nothing is checked (ND-3).
///
/// # Errors
///
/// [`Reject::BadChoice`].
pub fn check(
    now: Now,
    choice: &[u8],
    (last, latest): (u64, u64),
    (behind, ahead): (u64, u64),
) -> Result<(), Reject> {
    let Some(chosen) = decode(choice) else { return Err(Reject::BadChoice) };
    // "not below the last agreed value".
    let in_order = chosen >= last;
    // "clock within ND_SKEW". When all clocks have been set back, the last value may be repeated, or
    // nothing could be agreed until they have caught up (H8); and a primary that has begun with a state names the
    // time of it (L133). That may not be exceeded: a primary could walk into the future by a skew a batch (P13).
    let latest = now.wall_ns.saturating_add(ahead).max(latest);
    let near = now.wall_ns.saturating_sub(behind) <= chosen && chosen <= latest;
    if in_order && near { Ok(()) } else { Err(Reject::BadChoice) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKEW: u64 = 2_000_000_000;
    const WALL: u64 = 1_000_000_000_000;
    const NOW: Now = Now { mono_ns: 0, wall_ns: WALL };

    fn at(chosen: u64, last: u64) -> bool {
        check(NOW, &chosen.to_le_bytes(), (last, last), (SKEW, SKEW)).is_ok()
    }

    /// ND-2: a clock within the skew is good on either side, one beyond it is not.
    #[test]
    fn the_primarys_clock_must_be_near_ours() {
        assert!(at(WALL, 0) && at(WALL + SKEW, 0) && at(WALL - SKEW, 0));
        assert!(!at(WALL + SKEW + 1, 0));
        assert!(!at(WALL - SKEW - 1, 0));
    }

    /// ND-2: "not below the last agreed value"; several batches may name the same moment.
    #[test]
    fn time_never_goes_back() {
        assert!(at(WALL, WALL) && at(WALL + 1, WALL));
        assert!(!at(WALL - 1, WALL));
    }

    /// P13: a faulty primary that always takes as much as it may gets no further than one skew.
    #[test]
    fn a_primary_cannot_walk_into_the_future() {
        let mut last = 0;
        for _ in 0..10 {
            let most = (0..=3).map(|k| last.max(WALL) + k * SKEW).filter(|t| at(*t, last)).max().unwrap();
            last = most;
        }
        assert_eq!(last, WALL + SKEW);
    }

    /// H8: all clocks have been set back by an hour. What a correct primary proposes is still accepted.
    #[test]
    fn clocks_that_were_set_back_do_not_stop_the_group() {
        let last = WALL + 3_600_000_000_000;
        let proposed = propose(NOW, last);
        assert_eq!(decode(&proposed), Some(last));
        assert_eq!(check(NOW, &proposed, (last, last), (SKEW, SKEW)), Ok(()));
        assert!(!at(last + 1, last));
    }

    #[test]
    fn a_correct_primarys_choice_is_its_clock() {
        assert_eq!(decode(&propose(NOW, 5)), Some(WALL));
        assert_eq!(check(NOW, &propose(NOW, 5), (5, 5), (SKEW, SKEW)), Ok(()));
    }

    #[test]
    fn a_choice_has_eight_bytes() {
        assert_eq!(check(NOW, &[], (0, 0), (SKEW, SKEW)), Err(Reject::BadChoice));
        assert_eq!(check(NOW, &[0; 9], (0, 0), (SKEW, SKEW)), Err(Reject::BadChoice));
        assert!(
            check(NOW, &u64::MAX.to_le_bytes(), (0, 0), (u64::MAX, u64::MAX)).is_ok(),
            "no arithmetic overflows"
        );
    }
}

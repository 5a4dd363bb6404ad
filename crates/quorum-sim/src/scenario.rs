//! The named scenarios (§17): schedules written out by hand, for what random ones find too rarely.
//! Each passes with the rule and fails with its bug. n = 4, f = 1; server 3 lies unless said otherwise.

mod bftbc;
mod late;
mod minimal;
mod named;
mod phalanx;
mod rights;
mod rogue;
mod strong;

pub use self::named::Scenario;

/// Every scenario.
pub const ALL: &[Scenario] = &[
    bftbc::SLOW_READERS,
    bftbc::OPTIMISTIC_REPLAY,
    bftbc::UNTAGGED_THREE,
    bftbc::TWO_AHEAD,
    bftbc::TWO_PREPARED,
    bftbc::WIPED_LISTS,
    bftbc::PRE_SIGNED,
    bftbc::OTHER_OBJECT,
    late::LATE_SIGNATURES,
    strong::CHAIN,
    strong::TIME_BOMB,
    strong::NAMED_BOMB,
    minimal::LOST_STORE,
    minimal::STOPPED_WRITER,
    minimal::REFUSED_WRITER,
    minimal::EVIDENCE_MAXIMUM,
    minimal::LOST_RELAY,
    minimal::RESTARTED_RELAY,
    phalanx::LATE_WRITE_BACK,
    rights::PHALANX,
    rights::MINIMAL_C,
    rights::MINIMAL_C_READER,
    rights::MINIMAL_F,
    rights::BFT_BC,
    rights::FORMER_WRITER,
    rights::LOST_RIGHT,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_passes_with_the_rule() {
        for scenario in ALL {
            assert_eq!(scenario.run(None), Ok(()), "{}", scenario.name);
        }
    }

    #[test]
    fn every_scenario_fails_with_its_mutants() {
        for scenario in ALL {
            for mutant in scenario.mutants {
                assert!(scenario.run(Some(*mutant)).is_err(), "{} with {}", scenario.name, mutant.name());
            }
        }
    }
}

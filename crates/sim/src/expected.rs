//! Faults that are known and not mended yet: each with what shows it. A test runs every entry and demands that it
//! still fails: who mends a fault takes its entry out, and from then on nothing may break that rule. In the end the
//! list is empty.

/// What shows a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// A named scenario at this size, from this seed.
    Scenario(&'static str, usize, u64),
    /// A liar of the roster that is cleaned, by its name ([`crate::scenario::healed`]).
    Healed(&'static str),
    /// A seed of the swarm.
    Seed {
        /// What the replicas run: `kv` or `fs`.
        service: &'static str,
        /// Replicas.
        n: u16,
        /// The seed.
        seed: u64,
        /// Settings that do not follow from the seed, as `--set` takes them.
        set: &'static [&'static str],
        /// It is one of the plain swarm's.
        plain: bool,
    },
}

/// A fault that is not mended yet.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its key in `docs/faults.md`.
    pub finding: &'static str,
    /// What shows it.
    pub shows: Shows,
    /// The name of the rule that is broken: that of the checker's violation, or `stuck`, `panic` or `scenario`.
    pub rule: &'static str,
}

/// Every fault that is not mended yet.
pub const OPEN: &[Open] = &[
    scenario("S1", "s1_old_view_change_after_a_rejoin", 4, "every new view (I4)"),
    scenario("S1", "s1_old_view_change_after_a_rejoin", 7, "every new view (I4)"),
    scenario("S3", "s3_clock_of_a_client_goes_back", 4, "scenario"),
    scenario("S3", "s3_clock_of_a_client_goes_back", 7, "scenario"),
    scenario("D1", "d1_fetched_state_on_no_disk", 4, "checkpoint (D5)"),
    scenario("D1", "d1_fetched_state_on_no_disk", 7, "checkpoint (D5)"),
    scenario("L1", "l1_lanes_of_one_client", 4, "stuck"),
    scenario("L1", "l1_lanes_of_one_client", 7, "stuck"),
    scenario("L3", "l3_clock_of_the_new_primary_behind", 4, "scenario"),
    scenario("L3", "l3_clock_of_the_new_primary_behind", 7, "scenario"),
    scenario("L4", "l4_primary_discredits_clients", 7, "scenario"),
    scenario("L6", "l6_queue_of_one_client", 4, "scenario"),
    scenario("L6", "l6_queue_of_one_client", 7, "scenario"),
    scenario("L17", "l17_questions_far_ahead", 4, "stuck"),
    scenario("L17", "l17_questions_far_ahead", 7, "stuck"),
    scenario("L18", "l18_incarnation_far_ahead", 4, "scenario"),
    scenario("L18", "l18_incarnation_far_ahead", 7, "scenario"),
    Open { finding: "L17", shows: Shows::Healed("mutate-much"), rule: "stuck" },
    Open {
        finding: "L5",
        shows: Shows::Seed { service: "kv", n: 4, seed: 37, set: &[], plain: false },
        rule: "in time (I23)",
    },
    Open {
        finding: "L5",
        shows: Shows::Seed { service: "kv", n: 4, seed: 47, set: &[], plain: false },
        rule: "few views (I23)",
    },
    plain("S2", "kv", 9_003_684, &[], "reads (RO-4)"),
    plain("L13", "kv", 9_003_684, &[], "stuck"),
    plain("L13", "kv", 9_003_699, &["durability=sync"], "evidence"),
    plain("L14", "fs", 9_600_552, SMALL, "stuck"),
    plain("L15", "fs", 9_601_684, SMALL, "stuck"),
    plain("L16", "fs", 9_003_793, SMALL, "panic"),
    plain("L1", "kv", 9_001_082, &["clients_max=16"], "stuck"),
];

/// Small windows, and nothing on a disk.
const SMALL: &[&str] = &["durability=memory", "checkpoint_interval=4", "window=16", "pipeline=4"];

const fn plain(
    finding: &'static str,
    service: &'static str,
    seed: u64,
    set: &'static [&'static str],
    rule: &'static str,
) -> Open {
    Open { finding, shows: Shows::Seed { service, n: 4, seed, set, plain: true }, rule }
}

const fn scenario(finding: &'static str, name: &'static str, n: usize, rule: &'static str) -> Open {
    Open { finding, shows: Shows::Scenario(name, n, 1), rule }
}

/// Rules that are broken so often that nothing else would be seen: where they are broken is counted, and is no
/// failure, but in the runs that stand in [`OPEN`] for them. When the last of these goes, the rule goes from here.
pub const COUNTED: &[&str] =
    &["checkpoint (D5)", "reads (RO-4)", "every new view (I4)", "in time (I23)", "few views (I23)"];

/// Says whether a scenario is expected to fail at a size.
pub fn is_open(name: &str, n: usize) -> bool {
    OPEN.iter().any(|open| matches!(open.shows, Shows::Scenario(of, at, _) if (of, at) == (name, n)))
}

/// Says whether breaking a rule is no more than counted.
pub(crate) fn is_counted(rule: &str) -> bool {
    COUNTED.contains(&rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is no more than counted stands in the list, with a run in which it is a failure.
    #[test]
    fn every_rule_that_is_counted_is_open() {
        for rule in COUNTED {
            assert!(OPEN.iter().any(|open| open.rule == *rule), "{rule} is counted, and nothing shows it");
        }
    }

    #[test]
    fn every_scenario_named_is_there() {
        for open in OPEN {
            if let Shows::Scenario(name, n, _) = open.shows {
                let sizes = crate::scenario::find(name).map(|scenario| scenario.sizes);
                assert!(sizes.is_some_and(|sizes| sizes.contains(&n)), "{name} at n = {n}");
            }
        }
    }
}

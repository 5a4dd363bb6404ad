//! Faults that are known and not mended yet: each with what shows it. A test runs every entry and demands that it
//! still fails: a change that mends a fault takes its entry out, and from then on nothing may break that rule. The list
//! is empty now.

/// What shows a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// A named scenario at this size, from this seed.
    Scenario(&'static str, usize, u64),
    /// A liar of the roster that is cleaned, by its name ([`crate::scenario::cleansed`]).
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
    /// Its key.
    pub finding: &'static str,
    /// What shows it.
    pub shows: Shows,
    /// The name of the rule that is broken: that of the checker's violation, or `stuck`, `panic` or `scenario`.
    pub rule: &'static str,
}

/// Every fault that is not mended yet.
pub const OPEN: &[Open] = &[];

/// Says whether a scenario is expected to fail at a size.
pub fn is_open(name: &str, n: usize) -> bool {
    OPEN.iter().any(|open| matches!(open.shows, Shows::Scenario(of, at, _) if (of, at) == (name, n)))
}

#[cfg(test)]
mod tests {
    use super::*;

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

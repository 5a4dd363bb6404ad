//! `match` over `Action` occurs once in each driver and nowhere else, without `_ =>`: a new kind of
//! action must break the place that has to perform it (`ARCHITECTURE.md`, invariant 4).

use super::Finding;
use crate::rust::{Match, Source, matches};
use crate::tree::Tree;

/// The drivers: of replicas the process that simulator and node share, of registers the three worlds of their
/// simulator and their node. `true`: it has to be there.
const DRIVERS: &[(&str, bool)] = &[
    ("crates/process/src/process/perform.rs", true),
    ("crates/quorum-sim/src/world.rs", false),
    ("crates/quorum-sim/src/hand.rs", false),
    ("crates/quorum-sim/src/lab.rs", false),
    ("crates/quorum-node/src/drive.rs", false),
];

/// Finds matches over `Action` outside of the drivers, second ones inside, and wildcards.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.sources() {
        let mut over_action = matches(&Source::new(text).product()).into_iter().filter(is_over_action);
        if DRIVERS.iter().any(|(driver, _)| *driver == path) {
            match over_action.next() {
                None => found.push(Finding::new(
                    path,
                    0,
                    "a driver performs every action in one match: there is none",
                )),
                Some(first) if first.patterns.iter().any(|pattern| is_wildcard(pattern)) => {
                    found.push(Finding::new(path, first.line, "the match over Action has a wildcard arm"));
                }
                Some(_) => {}
            }
        }
        for other in over_action {
            found.push(Finding::new(path, other.line, "a match over Action outside of the drivers' own"));
        }
    }
    for (driver, required) in DRIVERS {
        if *required && !tree.has(driver) {
            found.push(Finding::new(driver, 0, "the driver is not there"));
        }
    }
    found
}

fn is_over_action(found: &Match) -> bool {
    found.patterns.iter().any(|pattern| pattern.starts_with("Action::") || pattern.contains("&Action::"))
}

/// `_`, `_ if ..`, or a bare name, which takes everything as well.
fn is_wildcard(pattern: &str) -> bool {
    pattern.split(" if ").next().is_some_and(|bare| {
        let bare = bare.trim();
        !bare.is_empty() && bare.chars().all(|c| c.is_lowercase() || c == '_' || c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "crates/process/src/process/perform.rs";
    const FINE: &str =
        "fn perform(a: &Action) { match a { Action::Send { to, .. } => 1, Action::Report(m) => 2 } }";

    #[test]
    fn one_match_in_a_driver_is_fine() {
        assert!(check(&Tree::of(&[(DRIVER, FINE)])).is_empty());
    }

    #[test]
    fn a_wildcard_is_found() {
        for arm in ["_ => 3", "other => 3", "_ if x => 3"] {
            let text = format!("fn f(a: &Action) {{ match a {{ Action::Send {{ .. }} => 1, {arm} }} }}");
            assert_eq!(check(&Tree::of(&[(DRIVER, &text)])).len(), 1, "{arm}");
        }
    }

    #[test]
    fn a_match_elsewhere_a_second_one_and_a_missing_driver_are_found() {
        let tree = Tree::of(&[(DRIVER, FINE), ("crates/sim/src/lanes.rs", FINE)]);
        assert_eq!(check(&tree)[0].path, "crates/sim/src/lanes.rs");
        let twice = format!("{FINE}\n{FINE}");
        assert_eq!(
            check(&Tree::of(&[(DRIVER, &twice)])),
            [Finding::new(DRIVER, 2, "a match over Action outside of the drivers' own")]
        );
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        assert_eq!(check(&Tree::of(&[(DRIVER, "")])).len(), 1);
    }

    #[test]
    fn tests_may_pick_the_actions_that_they_look_for() {
        let text = format!("#[cfg(test)]\nmod tests {{ {FINE} }}");
        assert!(check(&Tree::of(&[(DRIVER, FINE), ("crates/pbft/src/a.rs", &text)])).is_empty());
    }
}

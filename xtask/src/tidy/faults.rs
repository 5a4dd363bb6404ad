//! Every fault in the registry `docs/faults.md` has a scenario or a test whose name starts with its
//! key, or a line in `docs/deviations.md` that says why it does not apply yet.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, markdown};
use crate::rust::{Source, words};
use crate::tree::Tree;

/// The registry. The last column of its tables is written by `cargo xtask tidy --bless`.
pub(super) const REGISTRY: &str = "docs/faults.md";
const DEVIATIONS: &str = "docs/deviations.md";
/// The last column of a fault whose reason is in `docs/deviations.md`.
const EXCUSED: &str = "[not yet](deviations.md#faults-that-do-not-apply-yet)";
/// The heading there under which the reasons stand.
const HEADING: &str = "## Faults that do not apply yet";

/// Finds faults without a scenario, test or reason, reasons for faults that are covered, names
/// that start with no known key, and a last column that is out of date.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(registry) = tree.get(REGISTRY) else { return vec![Finding::new(REGISTRY, 0, "not there")] };
    let covered = covered(tree);
    let excused = excused(tree);
    let mut found = Vec::new();
    let mut keys = BTreeSet::new();
    for (line, cells) in markdown::rows(registry) {
        let Some(key) = cells.first().copied().filter(|cell| is_key(cell)) else { continue };
        keys.insert(key.to_owned());
        match (covered.of(key), excused.contains(key)) {
            (None, false) => found.push(Finding::new(REGISTRY, line, missing(key))),
            (Some(_), true) => {
                found.push(Finding::new(DEVIATIONS, 0, format!("{key} is covered: its reason has to go")));
            }
            _ => {}
        }
        if cells.last() != Some(&coverage_cell(key, &covered, &excused).as_str()) {
            let says = format!("{key}: the last column is out of date: cargo xtask tidy --bless");
            found.push(Finding::new(REGISTRY, line, says));
        }
    }
    for (key, names) in covered.scenarios.iter().chain(&covered.tests) {
        if !keys.contains(key) {
            found.push(Finding::new(REGISTRY, 0, format!("{key} of {names:?} is not in the registry")));
        }
    }
    if keys.is_empty() {
        found.push(Finding::new(REGISTRY, 0, "no fault is listed"));
    }
    found
}

/// Returns the registry with its last column as it should be.
pub(super) fn blessed(tree: &Tree) -> Option<String> {
    let registry = tree.get(REGISTRY)?;
    let (covered, excused) = (covered(tree), excused(tree));
    let line = |line: &str| match markdown::rows(line).next() {
        Some((_, cells)) if is_key(cells[0]) => {
            let kept = cells[..cells.len() - 1].join(" | ");
            format!("| {kept} | {} |\n", coverage_cell(cells[0], &covered, &excused))
        }
        _ => format!("{line}\n"),
    };
    Some(registry.lines().map(line).collect())
}

fn missing(key: &str) -> String {
    if key.starts_with(['B', 'S', 'D', 'L']) {
        format!("{key} has no scenario, test or reason")
    } else {
        format!("{key} has no scenario and no reason")
    }
}

fn coverage_cell(key: &str, covered: &Coverage, excused: &BTreeSet<String>) -> String {
    match covered.of(key) {
        Some(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        None if excused.contains(key) => EXCUSED.to_owned(),
        None => String::new(),
    }
}

/// The keys in the first column under the heading of the reasons.
fn excused(tree: &Tree) -> BTreeSet<String> {
    let text = tree.get(DEVIATIONS).unwrap_or_default();
    let part =
        text.split_once(HEADING).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or_default());
    markdown::rows(part)
        .filter_map(|(_, cells)| cells.first().copied())
        .flat_map(|cell| cell.split([' ', ',']))
        .filter(|key| is_key(key))
        .map(str::to_owned)
        .collect()
}

/// The names of scenarios (in `crates/sim/src/scenario*`, each followed by its keys in quotes) and of
/// tests (`fn b1_...`, `fn n1_n2_...`), by the keys that they cover.
fn covered(tree: &Tree) -> Coverage {
    let mut found = Coverage::default();
    for (path, text) in tree.with_extension("rs").filter(|(path, _)| path.starts_with("crates/")) {
        let code = Source::new(text).code;
        for at in words(&code, "fn") {
            let name = code[at + 2..].trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            if code[..at].trim_end().ends_with("#[test]") {
                for key in keys_of(&name[..end]) {
                    found.tests.entry(key).or_default().insert(name[..end].to_owned());
                }
            }
        }
        if path.starts_with("crates/sim/src/scenario") {
            let mut scenario = None;
            for literal in text.split('"').skip(1).step_by(2) {
                if !keys_of(literal).is_empty() && !is_key(literal) {
                    scenario = Some(literal);
                }
                if let Some(name) = scenario
                    && is_key(literal)
                {
                    found.scenarios.entry(literal.to_owned()).or_default().insert(name.to_owned());
                }
            }
        }
    }
    found
}

/// Scenarios and tests by the keys that they cover.
#[derive(Default)]
struct Coverage {
    scenarios: BTreeMap<String, BTreeSet<String>>,
    tests: BTreeMap<String, BTreeSet<String>>,
}

impl Coverage {
    /// The scenarios of `key`; for a bug of others or of this code, which needs none, and for a fault of the registers,
    /// which have a simulator of their own, its tests as well.
    fn of(&self, key: &str) -> Option<BTreeSet<&String>> {
        let scenarios = self.scenarios.get(key).into_iter().flatten();
        let has_tests = key.starts_with(['B', 'Q', 'S', 'D', 'L']);
        let tests = self.tests.get(key).filter(|_| has_tests).into_iter().flatten();
        Some(scenarios.chain(tests).collect()).filter(|names: &BTreeSet<_>| !names.is_empty())
    }
}

/// The keys with which a name in small letters begins.
fn keys_of(name: &str) -> Vec<String> {
    let is_name =
        name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let keys = name.split('_').map(str::to_uppercase).take_while(|word| is_key(word));
    if is_name { keys.collect() } else { Vec::new() }
}

/// A letter and a number: `B17`, `P3`.
fn is_key(word: &str) -> bool {
    word.strip_prefix(['B', 'P', 'K', 'C', 'N', 'H', 'Q', 'X', 'S', 'D', 'L'])
        .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "| Key | What | Where |\n|---|---|---|\n| P1 | equivocates | `p1_equivocates` |\n| Q1 | stale | [not yet](deviations.md#faults-that-do-not-apply-yet) |\n";
    const REASONS: &str = "# D\n\n## Faults that do not apply yet\n\n| Key | Reason |\n|---|---|\n| Q1 | no registers |\n\n## Other\n\n| P1 | no |\n";
    const SCENARIO: &str = "Scenario::new(\"p1_equivocates\", &[\"P1\"], \"The primary equivocates\")";

    fn tree<'a>(list: &'a str, reasons: &'a str, scenario: &'a str) -> Tree {
        Tree::of(&[(REGISTRY, list), (DEVIATIONS, reasons), ("crates/sim/src/scenario/a.rs", scenario)])
    }

    #[test]
    fn a_full_registry_is_fine() {
        assert_eq!(check(&tree(LIST, REASONS, SCENARIO)), []);
    }

    #[test]
    fn a_fault_without_scenario_and_one_with_both_are_found() {
        assert!(check(&tree(LIST, REASONS, "")).iter().any(|f| f.says.starts_with("P1 has no scenario")));
        assert!(check(&tree(LIST, "", SCENARIO)).iter().any(|f| f.says.starts_with("Q1 has no scenario")));
        let both = "\"q1_stale\" \"Q1\" \"p1_equivocates\" \"P1\"";
        assert!(
            check(&tree(LIST, REASONS, both)).iter().any(|f| f.says == "Q1 is covered: its reason has to go")
        );
        assert!(
            check(&tree(LIST, REASONS, "\"p1_equivocates\" \"P1\" \"P99\""))
                .iter()
                .any(|f| f.says.starts_with("P99"))
        );
        assert_eq!(check(&tree("", "", "")).len(), 1);
    }

    #[test]
    fn the_last_column_is_checked_and_written() {
        let stale = LIST.replace("`p1_equivocates`", "");
        let stale = tree(&stale, REASONS, SCENARIO);
        assert!(check(&stale).iter().any(|f| f.says.contains("out of date")));
        assert_eq!(blessed(&stale).as_deref(), Some(LIST));
    }
}

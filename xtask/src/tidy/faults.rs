//! Every fault in the registry `docs/faults.md` has a scenario or a test whose name starts with its
//! key, or a line in `docs/deviations.md` that says why it does not apply yet.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, markdown};
use crate::rust::{Source, words};
use crate::tree::Tree;

/// The registry. The last column of its tables is written by `cargo xtask tidy --bless`.
pub(super) const REGISTRY: &str = "docs/faults.md";
const DEVIATIONS: &str = "docs/deviations.md";
/// What the last column says where a reason stands in `docs/deviations.md`.
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
        match (covered.get(key), excused.contains(key)) {
            (None, false) => {
                found.push(Finding::new(REGISTRY, line, format!("{key} has no scenario, test or reason")));
            }
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
    for (key, names) in &covered {
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

fn coverage_cell(
    key: &str,
    covered: &BTreeMap<String, BTreeSet<String>>,
    excused: &BTreeSet<String>,
) -> String {
    match covered.get(key) {
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

/// The names of scenarios (`"p1_equivocates"` in `crates/sim/src/scenario*`) and tests
/// (`fn b1_...`), by the key that they start with.
fn covered(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut note = |name: &str| {
        if name.contains('_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        {
            let keys = name.split('_').map(str::to_uppercase).take_while(|word| is_key(word));
            keys.for_each(|key| _ = found.entry(key).or_default().insert(name.to_owned()));
        }
    };
    for (path, text) in tree.with_extension("rs").filter(|(path, _)| path.starts_with("crates/")) {
        let code = Source::new(text).code;
        for at in words(&code, "fn") {
            let name = code[at + 2..].trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            if code[..at].trim_end().ends_with("#[test]") {
                note(&name[..end]);
            }
        }
        if path.starts_with("crates/sim/src/scenario") {
            text.split('"').skip(1).step_by(2).for_each(&mut note);
        }
    }
    found
}

/// A letter and a number: `B17`, `P3`.
fn is_key(word: &str) -> bool {
    word.strip_prefix(['B', 'P', 'K', 'C', 'N', 'H', 'Q', 'X'])
        .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "| Key | What | Where |\n|---|---|---|\n| P1 | equivocates | `p1_equivocates` |\n| Q1 | stale | [not yet](deviations.md#faults-that-do-not-apply-yet) |\n";
    const REASONS: &str = "# D\n\n## Faults that do not apply yet\n\n| Key | Reason |\n|---|---|\n| Q1 | no registers |\n\n## Other\n\n| P1 | no |\n";
    const SCENARIO: &str = "const A: Scenario = Scenario { name: \"p1_equivocates\" };";

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
        let both = "#[test]\nfn q1_stale() {}\n\"p1_equivocates\"";
        assert!(
            check(&tree(LIST, REASONS, both)).iter().any(|f| f.says == "Q1 is covered: its reason has to go")
        );
        assert!(
            check(&tree(LIST, REASONS, "\"p1_equivocates\" \"p99_new\""))
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

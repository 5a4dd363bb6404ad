//! Everything that a replica can report occurs in a golden trace or in a named scenario: what is
//! never seen is not tested.

use super::Finding;
use crate::rust::{Source, variants};
use crate::tree::{Tree, extension};

/// Where `Milestone` and `Reject` are declared.
const STEP: &str = "crates/pbft/src/step.rs";

/// Finds milestones and reasons of rejection that nothing shows.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(step) = tree.get(STEP) else { return vec![Finding::new(STEP, 0, "not there")] };
    let traces: Vec<&str> =
        tree.files().filter(|(path, _)| path.starts_with("traces/")).map(|(_, text)| text).collect();
    let scenarios: Vec<String> = tree
        .sources()
        .filter(|(path, _)| path.starts_with("crates/sim/src/scenario"))
        .map(|(_, text)| Source::new(text).code)
        .collect();
    let mut found = Vec::new();
    let milestones = variants(step, "Milestone").into_iter().filter(|variant| variant != "Rejected");
    for variant in milestones {
        shown(&traces, &scenarios, "Milestone", &variant, &kebab(&variant), &mut found);
    }
    for (variant, name) in rejects(step) {
        shown(&traces, &scenarios, "Reject", &variant, &name, &mut found);
    }
    found
}

fn shown(
    traces: &[&str],
    scenarios: &[String],
    of: &str,
    variant: &str,
    name: &str,
    found: &mut Vec<Finding>,
) {
    let in_trace = traces.iter().any(|trace| has_word(trace, name));
    let path = format!("{of}::{variant}");
    let in_scenario = scenarios.iter().any(|scenario| has_word(scenario, &path));
    if !in_trace && !in_scenario {
        found.push(Finding::new(STEP, 0, format!("{path} ({name}) occurs in no trace and no scenario")));
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// Returns `Variant = "name"` of each line of the list that declares `Reject`.
fn rejects(step: &str) -> Vec<(String, String)> {
    let list =
        step.rsplit_once("rejects! {").map_or("", |(_, list)| list.split("\n}").next().unwrap_or_default());
    list.lines()
        .filter_map(|line| {
            let (variant, name) = line.trim().strip_suffix("\",")?.split_once(" = \"")?;
            Some((variant.to_owned(), name.to_owned()))
        })
        .collect()
}

/// `ViewChangeStarted` is `view-change-started` in a trace.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(c.to_lowercase());
    }
    name
}

/// Finds traces that do not open with a comment that says what is shown, and from where.
pub(super) fn headings(tree: &Tree) -> Vec<Finding> {
    tree.files()
        .filter(|(path, _)| path.starts_with("traces/") && extension(path) == "txt")
        .filter(|(_, text)| !text.starts_with("# ["))
        .map(|(path, _)| Finding::new(path, 1, "the first line is not `# [KEY §x] what is shown`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &str = "pub enum Milestone {\n    PrePrepared { seq: u8 },\n    Rejected(Reject),\n}\nmacro_rules! rejects { () => {} }\nrejects! {\n    /// Why.\n    OtherView = \"other-view\",\n    TooSoon = \"too-soon\",\n}\n";

    #[test]
    fn what_nothing_shows_is_found() {
        let tree = Tree::of(&[
            (STEP, DECLARED),
            ("traces/4.2/a.txt", "# [OSDI99] A.\nr1 . pre-prepared n=1\nr1 . rejected other-views\n"),
            ("crates/sim/src/scenario.rs", "let must = Reject::TooSoon; // Reject::OtherView\n"),
        ]);
        assert_eq!(
            check(&tree),
            [Finding::new(STEP, 0, "Reject::OtherView (other-view) occurs in no trace and no scenario")]
        );
    }

    #[test]
    fn a_trace_without_a_heading_is_found() {
        let tree = Tree::of(&[("traces/a.txt", "cluster f=1\n"), ("traces/b.txt", "# [OSDI99 §4.1] B.\n")]);
        assert_eq!(headings(&tree).len(), 1);
    }
}

//! Everything that a replica can report occurs in a golden trace or in a named scenario: what is
//! never seen is not tested.

use super::Finding;
use crate::rust::{Source, variants};
use crate::tree::{Tree, extension};

/// Where `Milestone` and `Reject` are declared.
const DECLARED: &str = "crates/pbft/src/io/milestone.rs";
/// Where a milestone is put in the words of a trace.
const WORDS: &str = "crates/sim/src/describe.rs";

/// Finds milestones and reasons of rejection that nothing shows.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(declared) = tree.get(DECLARED) else { return vec![Finding::new(DECLARED, 0, "not there")] };
    let words = tree.get(WORDS).unwrap_or_default();
    let shown = Shown::of(tree);
    let mut found = Vec::new();
    for variant in variants(declared, "Milestone").into_iter().filter(|variant| variant != "Rejected") {
        let Some(pieces) = pieces(words, &variant) else {
            found.push(Finding::new(WORDS, 0, format!("Milestone::{variant} has no words")));
            continue;
        };
        if !shown.in_trace(&pieces) && !shown.in_scenario(&format!("Milestone::{variant}")) {
            let says = format!("Milestone::{variant} occurs in no trace and no scenario");
            found.push(Finding::new(DECLARED, 0, says));
        }
    }
    for (variant, name) in rejects(declared) {
        let pieces = ["rejected: ".to_owned(), name];
        if !shown.in_trace(&pieces) && !shown.in_scenario(&format!("Reject::{variant}")) {
            let says = format!("Reject::{variant} ({}) occurs in no trace and no scenario", pieces[1]);
            found.push(Finding::new(DECLARED, 0, says));
        }
    }
    found
}

/// What traces and scenarios show.
struct Shown<'a> {
    /// The milestones in traces: what stands behind the dot, or the mark of what was executed.
    milestones: Vec<&'a str>,
    /// The code of scenarios.
    scenarios: Vec<String>,
}

impl<'a> Shown<'a> {
    fn of(tree: &'a Tree) -> Self {
        let traces = tree.files().filter(|(path, _)| path.starts_with("traces/"));
        let lines = traces.flat_map(|(_, text)| text.lines());
        let told = |line: &'a str| line.split_once(" .    ").or_else(|| line.split_once(" !    "));
        let milestones = lines.filter_map(told).map(|(_, milestone)| milestone).collect();
        let in_scenarios = tree.sources().filter(|(path, _)| path.starts_with("crates/sim/src/scenario"));
        Self { milestones, scenarios: in_scenarios.map(|(_, text)| Source::new(text).code).collect() }
    }

    /// Says whether a milestone has these pieces in this order: the first one at its beginning, unless
    /// that is a value, and nothing that goes on like a name behind the last.
    fn in_trace(&self, pieces: &[String]) -> bool {
        self.milestones.iter().any(|milestone| {
            let Some(mut rest) = milestone.strip_prefix(pieces[0].as_str()) else { return false };
            let in_order = pieces[1..].iter().all(|piece| match rest.split_once(piece.as_str()) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            });
            in_order && !rest.starts_with(is_part)
        })
    }

    fn in_scenario(&self, path: &str) -> bool {
        self.scenarios
            .iter()
            .any(|code| code.match_indices(path).any(|(at, _)| !code[at + path.len()..].starts_with(is_part)))
    }
}

fn is_part(c: char) -> bool {
    c.is_alphabetic() || c == '-' || c == '_'
}

/// Returns what stands between the values in the words for a milestone: `M::Variant .. => format!("..")`.
/// The first is empty if it begins with a value.
fn pieces(words: &str, variant: &str) -> Option<Vec<String>> {
    let arm = format!("M::{variant} ");
    let (_, rest) = words.split_once(&arm)?;
    let (_, rest) = rest.split_once("format!(\"")?;
    let (text, _) = rest.split_once('"')?;
    let (first, others) = text.split_once('{').unwrap_or((text, ""));
    let others = others.split('{').map(|part| part.split_once('}').map_or("", |(_, after)| after).trim());
    Some([first].into_iter().chain(others.filter(|piece| !piece.is_empty())).map(str::to_owned).collect())
}

/// Returns `Variant = "name"` of each line of the list that declares `Reject`.
fn rejects(declared: &str) -> Vec<(String, String)> {
    let list = declared
        .rsplit_once("rejects! {")
        .map_or("", |(_, list)| list.split("\n}").next().unwrap_or_default());
    list.lines()
        .filter_map(|line| {
            let (variant, name) = line.trim().strip_suffix("\",")?.split_once(" = \"")?;
            Some((variant.to_owned(), name.to_owned()))
        })
        .collect()
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

    const LIST: &str = "pub enum Milestone {\n    PrePrepared { seq: u8 },\n    Prepared { seq: u8 },\n    OnProbation { client: u8 },\n    RolledBack { seq: u8 },\n    Rejected(Reject),\n}\nmacro_rules! rejects { () => {} }\nrejects! {\n    /// Why.\n    OtherView = \"other-view\",\n    TooSoon = \"too-soon\",\n}\n";
    const SAID: &str = "M::PrePrepared { seq, .. } => format!(\"pre-prepared n={}\", seq.0),\nM::Prepared { seq, .. } => format!(\"prepared n={}\", seq.0),\nM::OnProbation { client } => format!(\"{client} is on probation\"),\nM::RolledBack { seq } => format!(\"rolled back n={}\", seq.0),";

    #[test]
    fn what_nothing_shows_is_found() {
        let tree = Tree::of(&[
            (DECLARED, LIST),
            (WORDS, SAID),
            (
                "traces/4.2/a.txt",
                "# [OSDI99] A rolled back n=1.\nr1  .    pre-prepared n=1\nr1  .    c0 is on probation\nr1  .    rejected: other-views\n",
            ),
            ("crates/sim/src/scenario.rs", "let must = Reject::TooSoon; // Reject::OtherView\n"),
        ]);
        let says: Vec<String> = check(&tree).into_iter().map(|finding| finding.says).collect();
        assert_eq!(
            says,
            [
                "Milestone::Prepared occurs in no trace and no scenario",
                "Milestone::RolledBack occurs in no trace and no scenario",
                "Reject::OtherView (other-view) occurs in no trace and no scenario"
            ]
        );
    }

    #[test]
    fn a_trace_without_a_heading_is_found() {
        let tree = Tree::of(&[("traces/a.txt", "cluster f=1\n"), ("traces/b.txt", "# [OSDI99 §4.1] B.\n")]);
        assert_eq!(headings(&tree).len(), 1);
    }
}

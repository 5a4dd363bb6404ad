//! Documents speak of files and commands that exist.

use std::collections::BTreeSet;

use super::{Finding, line_of, markdown};
use crate::task_names;
use crate::tree::{Tree, extension};

/// Says that a file will come; when it has, the word has to go.
const LATER: &str = " (later)";

/// Ends of names that are looked for when they stand in a code span.
const ENDS: &[&str] = &["rs", "md", "txt", "toml"];

/// Finds links that lead nowhere, and files and tests that are not there.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let functions = functions(tree);
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("md") {
        for (line, target) in markdown::links(text) {
            if !target.contains("://")
                && !target.starts_with("mailto:")
                && !leads_somewhere(tree, path, target)
            {
                found.push(Finding::new(path, line, format!("the link {target} leads nowhere")));
            }
        }
        for (line, span, after) in markdown::spans(text) {
            if looks_like_a_test(span) && !functions.contains(span) {
                found.push(Finding::new(path, line, format!("there is no test {span}")));
            }
            if !looks_like_a_file(span) {
                continue;
            }
            match (is_there(tree, path, span), after.starts_with(LATER)) {
                (false, false) => found.push(Finding::new(path, line, format!("there is no file {span}"))),
                (true, true) => {
                    found.push(Finding::new(path, line, format!("{span} is there: drop the{LATER}")));
                }
                _ => {}
            }
        }
    }
    found
}

/// Finds `cargo xtask` commands that do not exist, and a README or `.ci/run` that does not say
/// the test command.
pub(super) fn commands(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let tasks: BTreeSet<&str> = task_names().into_iter().collect();
    for (path, text) in tree.files().filter(|(path, _)| extension(path) == "md" || path.starts_with(".ci/")) {
        for (index, line) in text.lines().enumerate() {
            for (at, command) in line.match_indices("cargo xtask ") {
                let rest = &line[at + command.len()..];
                let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
                let is_example = rest.starts_with(['T', '.', '<']);
                if !is_example && !tasks.contains(&rest[..end]) {
                    found.push(Finding::new(path, index + 1, format!("there is no task `{}`", &rest[..end])));
                }
            }
        }
    }
    for path in ["README.md", ".ci/run"] {
        if !tree.get(path).unwrap_or_default().contains("cargo xtask ci") {
            found.push(Finding::new(path, 0, "the test command `cargo xtask ci` is not in it"));
        }
    }
    found
}

/// Finds Rust in README that no example contains as it stands.
pub(super) fn excerpts(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let text = tree.get("README.md").unwrap_or_default();
    for (at, fence) in text.match_indices("```rust\n") {
        let excerpt = text[at + fence.len()..].split("```").next().unwrap_or_default();
        let mut examples = tree.with_extension("rs").filter(|(path, _)| path.contains("/examples/"));
        if !examples.any(|(_, example)| example.contains(excerpt)) {
            found.push(Finding::new("README.md", line_of(text, at), "no example contains this Rust"));
        }
    }
    found
}

fn leads_somewhere(tree: &Tree, from: &str, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { from.to_owned() } else { join(from, file) };
    let known = anchor.is_none_or(|anchor| {
        tree.get(&path).is_some_and(|text| markdown::anchors(text).iter().any(|known| known == anchor))
    });
    tree.has(&path) && known
}

/// A path with a slash and a known end, without blanks or wildcards.
fn looks_like_a_file(span: &str) -> bool {
    ENDS.contains(&extension(span))
        && span.contains('/')
        && !span.contains([' ', '*', '{', '<', '$', '…'])
        && !span.starts_with('/')
}

/// A sentence in small letters: three blanks or more.
fn looks_like_a_test(span: &str) -> bool {
    span.matches('_').count() >= 3
        && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The names of all functions in Rust sources, and what stands in strings there: names of scenarios.
fn functions(tree: &Tree) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tree.with_extension("rs")
        .flat_map(|(_, text)| text.split(move |c| !is_part(c)))
        .filter(|word| looks_like_a_test(word))
        .collect()
}

/// From the root, from the document, or in short: `pbft/normal.rs` is `crates/pbft/src/normal.rs`.
fn is_there(tree: &Tree, from: &str, span: &str) -> bool {
    let short = span.split_once('/').map(|(room, rest)| format!("crates/{room}/src/{rest}"));
    let long = span.split_once('/').map(|(room, rest)| format!("crates/{room}/{rest}"));
    tree.has(span)
        || tree.has(&join(from, span))
        || short.is_some_and(|path| tree.has(&path))
        || long.is_some_and(|path| tree.has(&path))
}

/// Returns `target` as seen from the file `from`.
pub(super) fn join(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "# One\n[a](../b.md) [b](#one) [c](#two) [d](gone.md) [e](https://example.org)\n";
        let found = check(&Tree::of(&[("docs/a.md", text), ("b.md", "")]));
        let says: Vec<&str> = found.iter().map(|finding| finding.says.as_str()).collect();
        assert_eq!(says, ["the link #two leads nowhere", "the link gone.md leads nowhere"]);
    }

    #[test]
    fn a_file_that_is_named_and_not_there_is_found() {
        let text = "`pbft/normal.rs` `pbft/gone.rs` `node/drive.rs` (later) `pbft/log.rs` (later) `a.b`\n";
        let tree =
            Tree::of(&[("A.md", text), ("crates/pbft/src/normal.rs", ""), ("crates/pbft/src/log.rs", "")]);
        let found = check(&tree);
        let says: Vec<&str> = found.iter().map(|finding| finding.says.as_str()).collect();
        assert_eq!(says, ["there is no file pbft/gone.rs", "pbft/log.rs is there: drop the (later)"]);
    }

    #[test]
    fn a_test_that_is_named_and_not_there_is_found() {
        let tree = Tree::of(&[
            ("A.md", "`it_does_what_it_says` `it_does_not_at_all`"),
            ("a.rs", "fn it_does_what_it_says() {}"),
        ]);
        assert_eq!(check(&tree), [Finding::new("A.md", 1, "there is no test it_does_not_at_all")]);
    }

    #[test]
    fn a_task_that_does_not_exist_and_a_missing_test_command_are_found() {
        let fine = [
            ("README.md", "`cargo xtask ci`"),
            (".ci/run", "cargo xtask ci\n"),
            ("a.md", "cargo xtask TASK"),
        ];
        assert!(commands(&Tree::of(&fine)).is_empty());
        let broken = [("README.md", "cargo xtask ci, cargo xtask polish"), (".ci/run", "cargo test")];
        assert_eq!(commands(&Tree::of(&broken)).len(), 2);
    }

    #[test]
    fn rust_in_readme_that_is_not_an_example_is_found() {
        let example = ("crates/a/examples/b.rs", "fn one() {}\nfn two() {}\n");
        let check = |text| excerpts(&Tree::of(&[("README.md", text), example])).len();
        assert_eq!(check("```rust\nfn two() {}\n```\n"), 0);
        assert_eq!(check("# A\n\n```rust\nfn three() {}\n```\n"), 1);
    }
}

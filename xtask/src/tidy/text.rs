//! Nothing that was left open, and nothing that is true on one machine only.

use super::{Finding, line_of};
use crate::rust::{Source, words};
use crate::tree::{Tree, extension};

/// Words that mean that something is left open, in code or comments.
const OPEN: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];

/// Pieces of code that mean it.
const OPEN_CODE: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

/// Beginnings of paths that exist on one machine only.
const PATHS: &[&str] =
    &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Finds all of it, and blanks at the end of a line.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| *path != "Cargo.lock") {
        for needle in PATHS {
            for (at, _) in text.match_indices(needle) {
                found.push(Finding::new(path, line_of(text, at), format!("a path of one machine: {needle}")));
            }
        }
        if extension(path) == "rs" {
            open_ends(path, text, &mut found);
        }
        if matches!(extension(path), "rs" | "md" | "toml") {
            for (index, line) in text.lines().enumerate() {
                if line.ends_with([' ', '\t']) {
                    found.push(Finding::new(path, index + 1, "blanks at the end of the line"));
                }
            }
        }
    }
    found
}

fn open_ends(path: &str, text: &str, found: &mut Vec<Finding>) {
    let source = Source::new(text);
    for part in [&source.code, &source.comments] {
        for word in OPEN {
            for at in words(part, word) {
                found.push(Finding::new(path, line_of(part, at), format!("left open: {word}")));
            }
        }
    }
    for piece in OPEN_CODE {
        for (at, _) in source.code.match_indices(piece) {
            found.push(Finding::new(path, line_of(&source.code, at), format!("left open: {piece}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_open_is_found() {
        for line in [
            concat!("// FIX", "ME later"),
            "    todo!()",
            "dbg!(x)",
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "unimplemented!()",
        ] {
            let tree = Tree::of(&[("crates/a/src/b.rs", line)]);
            assert_eq!(check(&tree).len(), 1, "{line}");
        }
        assert!(check(&Tree::of(&[("a.rs", "let s = \"todo!()\"; // ignore what follows")])).is_empty());
    }

    #[test]
    fn a_path_of_one_machine_is_found_in_any_file() {
        let text = concat!("see /ho", "me/someone/x");
        assert_eq!(check(&Tree::of(&[("docs/a.md", text)])).len(), 1);
    }

    #[test]
    fn blanks_at_the_end_of_a_line_are_found() {
        assert_eq!(check(&Tree::of(&[("docs/a.md", "one \ntwo\n")])).len(), 1);
    }
}

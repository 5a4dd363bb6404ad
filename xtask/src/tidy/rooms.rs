//! Rules for the inside of a crate: `no_std` below the drivers, `unsafe` only where it is listed, and
//! no file that holds two sections of a paper.

use super::{Finding, line_of};
use crate::rust::{Source, words};
use crate::tree::Tree;

/// The crates that may know neither the time nor a network.
const NO_STD: &[&str] = &["wire", "pbft", "service", "process", "quorum", "fs"];

/// Modules that may use `unsafe`, each with what it pays for.
const UNSAFE: &[(&str, &str)] = &[
    ("crates/bench/src/allocations.rs", "counts what a replica allocates"),
    ("crates/wire/tests/allocations.rs", "counts what the authenticator allocates"),
    ("crates/service/tests/allocations.rs", "counts what executing allocates"),
    ("fuzz/src/alloc.rs", "counts what an execution allocates"),
];

/// The longest source file, in lines.
const LINES_MAX: usize = 500;

/// Finds protocol rooms that could reach the standard library outside of their tests.
pub(super) fn no_std(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for room in NO_STD {
        let path = format!("crates/{room}/src/lib.rs");
        let Some(text) = tree.get(&path) else { continue };
        if !text.lines().any(|line| line.trim() == "#![no_std]") {
            found.push(Finding::new(&path, 0, "#![no_std] is missing"));
        }
        let sources = format!("crates/{room}/src/");
        for (path, text) in tree.with_extension("rs").filter(|(path, _)| path.starts_with(&sources)) {
            let code = Source::new(text).product();
            if let Some(at) = code.find("extern crate std") {
                found.push(Finding::new(path, line_of(&code, at), "std outside of tests"));
            }
        }
    }
    found
}

/// Finds `unsafe` outside of the listed modules, and there without its reason.
pub(super) fn no_unsafe(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let source = Source::new(text);
        let listed = UNSAFE.iter().any(|(module, _)| *module == path);
        for at in words(&source.code, "unsafe") {
            if !listed {
                found.push(Finding::new(
                    path,
                    line_of(&source.code, at),
                    "unsafe in a module that is not listed",
                ));
            } else if !source.comments.contains("SAFETY") {
                found.push(Finding::new(path, line_of(&source.code, at), "unsafe without a SAFETY comment"));
            }
        }
    }
    found
}

/// Finds source files that are too long.
pub(super) fn size(tree: &Tree) -> Vec<Finding> {
    tree.sources()
        .filter_map(|(path, text)| {
            let lines = text.lines().count();
            (lines > LINES_MAX)
                .then(|| Finding::new(path, lines, format!("{lines} lines, {LINES_MAX} are the most")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_that_is_not_no_std_is_found() {
        let fine = "#![no_std]\nextern crate alloc;\n#[cfg(test)]\nextern crate std;\n";
        assert!(no_std(&Tree::of(&[("crates/wire/src/lib.rs", fine)])).is_empty());
        let sometimes = "#![cfg_attr(not(test), no_std)]\n";
        assert_eq!(no_std(&Tree::of(&[("crates/wire/src/lib.rs", sometimes)])).len(), 1);
        let around = [("crates/wire/src/lib.rs", fine), ("crates/wire/src/a.rs", "extern crate std;\n")];
        assert_eq!(no_std(&Tree::of(&around)).len(), 1);
    }

    #[test]
    fn unsafe_is_found_in_code_only() {
        let tree =
            Tree::of(&[("crates/a/src/b.rs", "// unsafe is a word\nlet s = \"unsafe\";\nunsafe { f() }\n")]);
        assert_eq!(
            no_unsafe(&tree),
            [Finding::new("crates/a/src/b.rs", 3, "unsafe in a module that is not listed")]
        );
    }

    #[test]
    fn a_long_file_is_found() {
        let long = "x\n".repeat(LINES_MAX + 1);
        assert_eq!(size(&Tree::of(&[("crates/a/src/b.rs", &long)])).len(), 1);
        assert!(size(&Tree::of(&[("crates/a/tests/b.rs", &long)])).is_empty());
    }
}

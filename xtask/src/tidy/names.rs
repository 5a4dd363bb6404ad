//! Names that once meant several things: of the public types of the workspace, one alone may have each of them. The others
//! say what they are of: `ReplyOutcome`, `FileEntry`.

use super::{Finding, line_of};
use crate::rust::{Source, words};
use crate::tree::Tree;

/// The names, each with the crates whose public type may have it: the first for good, the others until they are renamed.
const ONE_EACH: &[(&str, &[&str])] = &[
    ("Outcome", &["sim", "quorum"]),
    ("Entry", &["quorum-node", "sim"]),
    ("Trouble", &["node", "sim"]),
    ("Found", &["sim", "quorum-sim"]),
    ("Run", &["sim", "quorum-sim"]),
    ("Options", &["service", "quorum-node", "sim"]),
    ("Kind", &["wire", "node", "quorum-sim"]),
    ("Log", &[]),
];

/// Finds public types with a name that is another's.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.sources() {
        let room = path.trim_start_matches("crates/").split('/').next().unwrap_or_default();
        let code = Source::new(text).product();
        for (name, rooms) in ONE_EACH {
            let public = words(&code, name).filter(|at| is_public_type(&code[..*at]));
            found.extend(public.filter(|_| !rooms.contains(&room)).map(|at| {
                let says = format!("a public type called {name}: say what it is of, as in ReplyOutcome");
                Finding::new(path, line_of(&code, at), says)
            }));
        }
    }
    found
}

/// Says whether a name that follows is that of a public type.
fn is_public_type(before: &str) -> bool {
    let mut words = before.split_whitespace().rev();
    matches!(words.next(), Some("struct" | "enum" | "type" | "trait" | "union"))
        && words.next() == Some("pub")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_public_type_of_a_name_is_found() {
        let says = |path, text| check(&Tree::of(&[(path, text)])).len();
        assert_eq!(says("crates/fs/src/a.rs", "pub struct Entry;\n"), 1);
        assert_eq!(says("crates/fs/src/a.rs", "pub type Entry<'a> = &'a str;\npub enum Kind { A }\n"), 2);
        let fine = "pub struct FileEntry;\nstruct Entry;\npub(crate) struct Run;\nfn f(_: Kind) {}\npub use a::Found;\n";
        assert_eq!(says("crates/fs/src/a.rs", fine), 0);
        assert_eq!(says("crates/wire/src/a.rs", "pub enum Kind { A }\n"), 0);
    }
}

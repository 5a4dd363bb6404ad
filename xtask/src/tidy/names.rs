//! Names that once meant several things: one type of the workspace alone may have each of them, private ones and those of tests
//! included. The others say what they are of: `ReplyOutcome`, `FileEntry`. Types of a trait, such as `Model::Outcome`, are
//! qualified already.

use super::{Finding, line_of};
use crate::rust::{Source, words};
use crate::tree::Tree;

/// The names, each with the file whose type has it, if any.
const ONE_EACH: &[(&str, Option<&str>)] = &[
    ("Outcome", Some("crates/quorum/src/step.rs")),
    ("Entry", None),
    ("Trouble", None),
    ("Found", Some("crates/sim/src/hunt.rs")),
    ("Run", Some("crates/sim/src/swarm.rs")),
    ("Options", Some("crates/service/src/options.rs")),
    ("Kind", Some("crates/wire/src/protocol/kinds.rs")),
    ("Log", Some("crates/pbft/src/order/log.rs")),
];

/// Finds types with a name that is another's.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let code = Source::new(text).code;
        for (name, owner) in ONE_EACH.iter().filter(|(_, owner)| *owner != Some(path)) {
            let types = words(&code, name).filter(|at| is_type(&code[..*at]));
            found.extend(types.map(|at| {
                let owner = owner.map_or(String::new(), |owner| format!(", which is the type of {owner}"));
                let says = format!("a type called {name}{owner}: say what it is of, as in ReplyOutcome");
                Finding::new(path, line_of(&code, at), says)
            }));
        }
    }
    found
}

/// Says whether a name that follows is that of a type, and not of one in a trait.
fn is_type(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    match before.split_whitespace().next_back() {
        Some("struct" | "enum" | "trait" | "union") => true,
        Some("type") => !line.starts_with(' '),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_type_of_a_name_is_found() {
        let says = |path, text| check(&Tree::of(&[(path, text)])).len();
        assert_eq!(says("crates/fs/src/a.rs", "pub struct Entry;\nmod tests {\n    struct Entry;\n}\n"), 2);
        assert_eq!(
            says("crates/fs/src/a.rs", "pub(crate) type Entry<'a> = &'a str;\npub enum Kind { A }\n"),
            2
        );
        assert_eq!(says("crates/fs/tests/a.rs", "trait Log {}\nunion Run {}\n"), 2);
        let fine = "struct FileEntry;\nenum Past { Log }\ntrait Model {\n    type Outcome;\n}\nfn f(_: Kind) {}\npub use a::Found;\n";
        assert_eq!(says("crates/fs/src/a.rs", fine), 0);
        assert_eq!(says("crates/wire/src/protocol/kinds.rs", "pub enum Kind { A }\n"), 0);
        assert_eq!(says("crates/wire/src/protocol/auth.rs", "pub enum Kind { A }\n"), 1);
    }
}

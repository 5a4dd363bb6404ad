//! Lists of verbs that cross files: a struct's own file names them, in one table, and the table is what the code says.

use std::collections::BTreeMap;

use super::Structure;
use crate::tidy::Finding;
use crate::tree::Tree;

/// The structs that have a list: the crate, the struct, and the file with the table, below `src/`.
const LISTS: [(&str, &str, &str); 1] = [("pbft", "Replica", "replica.rs")];

/// Compares each list with the verbs that cross files.
pub(super) fn check(tree: &Tree, crates: &[Structure]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, owner, file) in LISTS {
        let path = format!("crates/{name}/src/{file}");
        let (Some(one), Some(text)) = (crates.iter().find(|one| one.name == name), tree.get(&path)) else {
            found.push(Finding::new(&path, 0, format!("there is no such file with the verbs of {owner}")));
            continue;
        };
        found.extend(compare(&path, text, owner, one));
    }
    found
}

fn compare(path: &str, text: &str, owner: &str, one: &Structure) -> Vec<Finding> {
    let folder = path.rsplit_once("/src/").map_or("", |(_, file)| file.trim_end_matches(".rs"));
    let mut rows: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(row) = row(line)
            && rows.insert(row, index + 1).is_some()
        {
            found.push(Finding::new(path, index + 1, format!("{} is listed twice", row.0)));
        }
    }
    for (verb, file) in &one.owners.verbs {
        let Some(verb) = verb.strip_prefix(owner).and_then(|verb| verb.strip_prefix('.')) else { continue };
        let below = file.strip_prefix(folder).map_or(file.as_str(), |file| file.trim_start_matches('/'));
        let file = below.trim_end_matches(".rs");
        if rows.remove(&(verb, file)).is_none() {
            let says = format!("{owner}.{verb} of {file} is called in other files: it is not in this list");
            found.push(Finding::new(path, 0, says));
        }
    }
    found.extend(rows.into_iter().map(|((verb, file), line)| {
        Finding::new(path, line, format!("no other file calls {owner}.{verb} of {file} any more"))
    }));
    found
}

/// Returns the verb and the file of a row: ``//! | `verb` | `file` | what it does |``.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("//! |")?.trim_end().strip_suffix('|')?.split('|');
    let mut name = || cells.next()?.trim().strip_prefix('`')?.strip_suffix('`');
    Some((name()?, name()?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::planted;
    use super::*;

    const LIST: &str = "//! | Verb | File | Does |\n//! |---|---|---|\n//! | `advance` | `b` | goes on |\n";

    /// Returns what is found with these lists, where the struct is in `a.rs` and the handlers are in `b.rs` and `c.rs`.
    fn with(list: &str, caller: &str) -> Vec<String> {
        let whole = "pub struct A { n: u64 } impl A { pub fn step(&mut self) { self.advance(); } }";
        let handler = "use crate::a::A; impl A { fn advance(&mut self) {} fn rest(&mut self) {} }";
        let one = planted(whole, handler, caller);
        compare("crates/planted/src/a.rs", list, "A", &one).into_iter().map(|found| found.says).collect()
    }

    const CALLS: &str = "use crate::a::A; impl A { fn other(&mut self) { self.advance(); } }";

    #[test]
    fn a_list_that_is_what_the_code_says_is_fine() {
        assert_eq!(with(LIST, CALLS), Vec::<String>::new());
    }

    #[test]
    fn a_verb_that_is_not_in_the_list_is_found() {
        let more = CALLS.replace("self.advance();", "self.advance(); self.rest();");
        assert_eq!(with(LIST, &more), ["A.rest of b is called in other files: it is not in this list"]);
    }

    #[test]
    fn a_verb_that_nobody_calls_any_more_is_found() {
        let less = CALLS.replace("self.advance();", "");
        assert_eq!(with(LIST, &less), ["no other file calls A.advance of b any more"]);
    }

    #[test]
    fn a_verb_that_has_moved_and_one_that_is_listed_twice_are_found() {
        let moved = LIST.replace("`b`", "`c`");
        assert_eq!(with(&moved, CALLS).len(), 2);
        assert_eq!(with(&format!("{LIST}{LIST}"), CALLS), ["advance is listed twice"]);
    }
}

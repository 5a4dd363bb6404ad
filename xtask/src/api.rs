//! Changes of the public API: the lines that declare public items, now and at a commit.
//!
//! It reads declarations, not types: a `pub` item in a private module is listed as well. That is
//! enough to see what a reviewer has to look at, and needs no nightly compiler.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::rust::Source;
use crate::tree::Tree;
use xtask::{read, root};

/// Words after `pub` that begin a declaration.
const KINDS: &[&str] =
    &["fn", "struct", "enum", "trait", "const", "type", "mod", "use", "static", "unsafe", "async"];

/// Prints the public items that came and went since `args[0]`, or since the last tag.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let now: BTreeSet<String> =
        Tree::read(&root())?.sources().flat_map(|(path, text)| items(path, text)).collect();
    let base = match args.first() {
        Some(commit) => Some(commit.clone()),
        None => git(&["describe", "--tags", "--abbrev=0"]).ok().map(|tag| tag.trim().to_owned()),
    };
    let Some(base) = base else {
        println!("api: {} public items; no release to compare with yet", now.len());
        return Ok(());
    };
    let then = at(&base)?;
    for gone in then.difference(&now) {
        println!("- {gone}");
    }
    for new in now.difference(&then) {
        println!("+ {new}");
    }
    println!("api: {} public items, {} at {base}", now.len(), then.len());
    Ok(())
}

fn git(args: &[&str]) -> Result<String> {
    read(Command::new("git").arg("-C").arg(root()).args(args))
}

fn at(commit: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for path in git(&["ls-tree", "-r", "--name-only", commit, "crates"])?.lines() {
        if path.contains("/src/") && Path::new(path).extension().is_some_and(|end| end == "rs") {
            found.extend(items(path, &git(&["show", &format!("{commit}:{path}")])?));
        }
    }
    Ok(found)
}

/// Returns the public declarations of a file, each on one line.
fn items(path: &str, text: &str) -> Vec<String> {
    let code = Source::new(text).product();
    let mut found = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let rest = line.trim_start();
        if let Some(declared) = rest.strip_prefix("pub ")
            && declared.split([' ', '<', '(']).next().is_some_and(|word| KINDS.contains(&word))
        {
            let from = at + (line.len() - rest.len());
            let end = code[from..].find(['{', ';', '=']).map_or(code.len(), |length| from + length);
            let words: Vec<&str> = code[from..end].split_whitespace().collect();
            found.push(format!("{path}: {}", words.join(" ")));
        }
        at += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_declarations_are_listed_on_one_line_each() {
        let text = "/// Doc.\npub struct A {\n    pub field: u8,\n}\nimpl A {\n    pub fn new(\n        x: u8,\n    ) -> Self {}\n    pub(crate) fn hidden() {}\n}\n#[cfg(test)]\nmod t { pub fn no() {} }\n";
        assert_eq!(items("p", text), ["p: pub struct A", "p: pub fn new( x: u8, ) -> Self"]);
    }
}

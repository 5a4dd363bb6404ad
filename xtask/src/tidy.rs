//! The project rules that no compiler checks. Each is a function from the files to what breaks it,
//! and each has a test that hands it a tree that does.

mod actions;
mod citations;
mod coverage;
mod faults;
mod layers;
mod links;
mod markdown;
mod names;
mod open;
mod prose;
mod rooms;
pub(crate) mod site;
pub(crate) mod structure;
mod text;
mod words;

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::tree::Tree;
use xtask::root;

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// From 1; 0 for the file as a whole.
    line: usize,
    says: String,
}

impl Finding {
    fn new(path: &str, line: usize, says: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, says: says.into() }
    }
}

/// A rule and its description.
struct Rule {
    says: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule { says: "crates depend only downwards", check: layers::check },
    Rule { says: "every crate takes the workspace's lints", check: layers::lints },
    Rule { says: "one match over Action in each driver, without a wildcard", check: actions::check },
    Rule { says: "the protocol's crates are no_std", check: rooms::no_std },
    Rule { says: "unsafe only where it is listed", check: rooms::no_unsafe },
    Rule { says: "one public type for each name that once meant several", check: names::check },
    Rule { says: "no source file over 500 lines", check: rooms::size },
    Rule { says: "nothing left open, no path of a machine", check: text::check },
    Rule { says: "citations have their key and section in docs/papers.md", check: citations::papers },
    Rule { says: "rules that are cited stand in docs/rules.md or below docs/rules", check: citations::rules },
    Rule { says: "links and file names in documents resolve", check: links::check },
    Rule { says: "every document is a page of the site", check: site::check },
    Rule { says: "commands in documents exist", check: links::commands },
    Rule { says: "Rust in README is a part of an example", check: links::excerpts },
    Rule { says: "plain English, see xtask/src/tidy/words.rs", check: words::check },
    Rule { says: "short sentences in README and in help texts", check: words::sentences },
    Rule { says: "a trace opens by saying what it shows", check: coverage::headings },
    Rule { says: "every Reject and Milestone occurs in a trace or scenario", check: coverage::check },
    Rule {
        says: "every fault has its scenario or test, or a reason in docs/deviations.md",
        check: faults::check,
    },
];

/// Checks every rule; with `--bless` first rewrites the generated tables.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut tree = Tree::read(&root())?;
    match args {
        [] => {}
        [bless] if bless == "--bless" => {
            if let Some(text) = faults::blessed(&tree) {
                let path = root().join(faults::REGISTRY);
                fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                println!("tidy: wrote {}", faults::REGISTRY);
                tree = Tree::read(&root())?;
            }
            if let Some(text) = structure::blessed(&tree) {
                let path = root().join(structure::TABLE);
                fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                println!("tidy: wrote {}", structure::TABLE);
                tree = Tree::read(&root())?;
            }
        }
        _ => bail!("tidy takes --bless or nothing"),
    }
    let mut open = open::Open::of(&tree);
    let mut broken = 0;
    for rule in RULES {
        for finding in (rule.check)(&tree) {
            if !open.lists(&finding) {
                eprintln!("{}:{}: {} ({})", finding.path, finding.line, finding.says, rule.says);
                broken += 1;
            }
        }
    }
    let crates = structure::measure(&tree);
    println!("{}", structure::page(&crates));
    for finding in structure::check(&tree, &crates) {
        eprintln!("{}:{}: {}", finding.path, finding.line, finding.says);
        broken += 1;
    }
    for says in open.closed() {
        eprintln!("{}: \"{says}\" is closed: take it off the list", open::LIST);
        broken += 1;
    }
    if broken > 0 {
        bail!("{broken} findings break the project rules");
    }
    println!("tidy: {} rules hold, {} gaps in what is tested are on record", RULES.len(), open.len());
    Ok(())
}

/// Returns the line, from 1, in which the byte `at` of `text` stands.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

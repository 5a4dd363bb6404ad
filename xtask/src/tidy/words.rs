//! Plain English: words and idioms that a reader stumbles over, and sentences that are too long.

use std::collections::BTreeSet;

use super::Finding;
use super::prose::{self, Block, Word};
use crate::tree::{Tree, extension};

/// Whether the crates are checked as well: their comments, help texts, errors and pages.
const CRATES: bool = true;

/// The most words of a sentence in README and in help texts.
const SENTENCE_MAX: usize = 35;

/// Kinds of files with prose.
const ENDS: &[&str] = &["md", "rs", "toml", "html", "yml"];

/// What is not written, in lower case, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("whoever", "name who: the client, the replica"),
    ("whomever", "name who"),
    ("befall", "happens to; the injected fault"),
    ("befalls", "happens to; the injected fault"),
    ("befell", "happened to"),
    ("befallen", "happened to"),
    ("anew", "again"),
    ("besides", "also, in addition to"),
    ("for ever", "forever, permanently"),
    ("in earnest", "in production"),
    ("seldom", "rarely"),
    ("meanwhile", "during the run, in that time"),
    ("see to it", "ensure"),
    ("sees to it", "ensures"),
    ("saw to it", "ensured"),
    ("so many", "N, this many"),
    ("is none of", "is not a"),
    ("as chance would have it", "randomly"),
    ("as good as new", "fully recovered"),
    ("of before", "previous"),
    ("has a word for", "is named"),
    ("whether or not to", "whether"),
    ("speaks against", "is evidence of misbehaviour by"),
    ("speak against", "are evidence of misbehaviour by"),
    ("guests", "clients"),
    ("attic", "leftover pages"),
    ("door", "gateway (RESP, NFS, HTTP) or authenticator (frames)"),
    ("doors", "gateways"),
];

/// A place where a word of the list is right.
struct Allowed {
    path: &'static str,
    word: &'static str,
    /// Why it is right there.
    why: &'static str,
}

const ALLOWED: &[Allowed] =
    &[Allowed { path: "xtask/src/tidy/words.rs", word: "*", why: "this list, and what its tests plant" }];

/// Finds what is not written, and entries of the list of exceptions that have no use or no reason.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    find(tree, CRATES, ALLOWED)
}

fn find(tree: &Tree, crates: bool, allowed: &[Allowed]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for (path, text) in tree.files().filter(|(path, _)| is_checked(path, crates)) {
        for block in prose::blocks(path, text) {
            for (line, word, instead) in matches(&block) {
                let is_exception =
                    |entry: &Allowed| entry.path == path && matches!(entry.word, w if w == "*" || w == word);
                if let Some(index) = allowed.iter().position(is_exception) {
                    used.insert(index);
                } else {
                    found.push(Finding::new(path, line, format!("\"{word}\": write {instead}")));
                }
            }
        }
    }
    for (index, entry) in allowed.iter().enumerate() {
        if tree.has(entry.path) && !used.contains(&index) {
            found.push(Finding::new(
                entry.path,
                0,
                format!("\"{}\" is not there: it needs no exception", entry.word),
            ));
        }
        if entry.why.is_empty() {
            found.push(Finding::new(
                entry.path,
                0,
                format!("the exception for \"{}\" has no reason", entry.word),
            ));
        }
    }
    found
}

/// Finds sentences of README, and of help texts if the crates are checked, that are too long.
pub(super) fn sentences(tree: &Tree) -> Vec<Finding> {
    long(tree, CRATES)
}

fn long(tree: &Tree, crates: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.files() {
        let blocks = match path {
            "README.md" => prose::paragraphs(text),
            _ if crates && has_help(path, text) => prose::paragraphs(&documentation(text)),
            _ => continue,
        };
        for (line, words) in
            blocks.iter().flat_map(Block::sentences).filter(|(_, words)| *words > SENTENCE_MAX)
        {
            found.push(Finding::new(
                path,
                line,
                format!("a sentence of {words} words, {SENTENCE_MAX} are the most"),
            ));
        }
    }
    found
}

fn is_checked(path: &str, crates: bool) -> bool {
    ENDS.contains(&extension(path)) && (crates || !path.starts_with("crates/"))
}

/// Says whether a file declares commands or their arguments.
fn has_help(path: &str, text: &str) -> bool {
    const KINDS: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];
    path.starts_with("crates/")
        && path.contains("/src/")
        && text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("#[derive("))
            .any(|list| list.split([',', ')', ' ']).any(|kind| KINDS.contains(&kind)))
}

/// Returns the documentation of items, with a blank line for each line between. An indented line is an item of a list.
fn documentation(text: &str) -> String {
    let plain = |line: &str| match line.trim().strip_prefix("///") {
        Some(line) if line.starts_with("   ") => format!("- {}\n", line.trim()),
        Some(line) => format!("{line}\n"),
        None => "\n".to_owned(),
    };
    text.lines().map(plain).collect()
}

/// Returns where a word of the list stands, and what to write instead.
fn matches(block: &Block) -> Vec<(usize, &'static str, &'static str)> {
    let words = block.words();
    let mut found = Vec::new();
    for (at, first) in words.iter().enumerate() {
        for (phrase, instead) in WORDS {
            if stands_at(&words[at..], phrase) {
                found.push((first.line, *phrase, *instead));
            }
        }
    }
    found
}

fn stands_at(words: &[Word], phrase: &str) -> bool {
    phrase.split(' ').enumerate().all(|(index, part)| {
        words.get(index).is_some_and(|word| word.text == part && (index == 0 || word.continues))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(files: &[(&str, &str)], crates: bool, allowed: &[Allowed]) -> Vec<String> {
        find(&Tree::of(files), crates, allowed).into_iter().map(|finding| finding.says).collect()
    }

    #[test]
    fn a_planted_word_is_found_in_documents_comments_and_strings() {
        for (path, text) in [
            ("README.md", "Whoever asks is told.\n"),
            ("docs/a.md", "| a | whoever |\n"),
            ("docs/a.yml", "summary: whoever reads it\n"),
            ("xtask/src/a.rs", "/// Whoever calls it.\nfn f() {}\n"),
            ("xtask/src/a.rs", "fn f() { bail!(\"whoever makes trouble\") }\n"),
        ] {
            assert_eq!(says(&[(path, text)], false, &[]).len(), 1, "{path}: {text}");
        }
        let fine = [
            ("README.md", "`whoever` knows\n\n```\nwhoever\n```\n"),
            ("a.rs", "fn whoever() {}\n"),
            ("a.txt", "whoever\n"),
        ];
        assert!(says(&fine, false, &[]).is_empty());
    }

    #[test]
    fn a_door_for_a_gateway_is_found() {
        let says =
            says(&[("docs/a.md", "The front\ndoor for Redis clients, and other doors.\n")], false, &[]);
        assert_eq!(says.len(), 2);
        assert!(says[0].starts_with("\"door\": write gateway"), "{says:?}");
    }

    #[test]
    fn phrases_are_found_over_the_end_of_a_line_and_not_over_a_full_stop() {
        assert_eq!(says(&[("a.md", "kept for\never")], false, &[]).len(), 1);
        assert_eq!(says(&[("a.rs", "/// kept for\n/// ever\n")], false, &[]).len(), 1);
        assert!(says(&[("a.md", "what it is for. Ever since")], false, &[]).is_empty());
    }

    #[test]
    fn every_word_of_the_list_can_be_found() {
        for (word, _) in WORDS {
            assert!(!says(&[("a.md", word)], false, &[]).is_empty(), "{word}");
        }
    }

    #[test]
    fn crates_are_checked_when_that_is_turned_on() {
        let files =
            [("crates/a/src/b.rs", "//! Whoever calls it.\n"), ("crates/a/src/b.html", "<p>Whoever</p>")];
        assert!(says(&files, false, &[]).is_empty());
        assert_eq!(says(&files, true, &[]).len(), 2);
    }

    #[test]
    fn an_exception_names_a_place_and_is_needed() {
        let files = [("a.md", "meanwhile"), ("b.md", "meanwhile")];
        let exception = |path, why| Allowed { path, word: "meanwhile", why };
        assert_eq!(says(&files, false, &[exception("a.md", "quoted")]).len(), 1);
        assert_eq!(says(&[("a.md", "nothing")], false, &[exception("a.md", "quoted")]).len(), 1);
        assert_eq!(says(&[("a.md", "meanwhile")], false, &[exception("a.md", "")]).len(), 1);
        assert!(ALLOWED.iter().all(|entry| !entry.why.is_empty()));
    }

    #[test]
    fn a_long_sentence_is_found_in_readme_and_in_help() {
        let sentence = |words: usize| format!("{}end.\n", "word ".repeat(words - 1));
        assert!(long(&Tree::of(&[("README.md", &sentence(SENTENCE_MAX))]), false).is_empty());
        let found = long(&Tree::of(&[("README.md", &format!("# A\n\n{}", sentence(50)))]), false);
        assert_eq!(found, [Finding::new("README.md", 3, "a sentence of 50 words, 35 are the most")]);
        let help = format!("/// Do it\n///\n/// {}#[derive(Args, Debug)]\nstruct Do;\n", sentence(50));
        let list = format!("///   one   {0}///   two   {0}", "word ".repeat(20) + "\n");
        let help = format!("{help}{list}");
        let other = format!("/// {}struct Do;\n", sentence(50));
        let tree = Tree::of(&[("crates/cli/src/a.rs", &help), ("crates/cli/src/b.rs", &other)]);
        assert!(long(&tree, false).is_empty());
        let found = long(&tree, true);
        assert_eq!(
            found,
            [Finding::new("crates/cli/src/a.rs", 3, "a sentence of 50 words, 35 are the most")]
        );
    }
}

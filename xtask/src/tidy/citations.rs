//! A citation `[OSDI99 §4.2]` has its key and its section in `docs/papers.md`; a rule such as
//! `PP-3` stands in `docs/rules.md` or a page under `docs/rules`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, line_of, markdown};
use crate::rust::Source;
use crate::tree::{Tree, extension};

/// The document with the keys.
const PAPERS: &str = "docs/papers.md";
/// The first page of the rules. The others are in the directory of the same name.
const RULES: &str = "docs/rules.md";
const MORE_RULES: &str = "docs/rules/";

/// Finds citations of papers that are not listed, and of sections that a listed one does not have.
pub(super) fn papers(tree: &Tree) -> Vec<Finding> {
    let known = known_papers(tree.get(PAPERS).unwrap_or_default());
    let mut found = Vec::new();
    for_each_comment(tree, |path, text| {
        for citation in citations(text) {
            let line = line_of(text, citation.at);
            match known.get(citation.key) {
                None => {
                    found.push(Finding::new(path, line, format!("[{}] is not in {PAPERS}", citation.key)));
                }
                Some(sections) => {
                    for section in citation.sections {
                        if !sections.contains(section) {
                            let says = format!("{} has no §{section} in {PAPERS}", citation.key);
                            found.push(Finding::new(path, line, says));
                        }
                    }
                }
            }
        }
    });
    found
}

/// Finds rules, and sections of the rules (`spec §5.4`), that are cited and not there.
pub(super) fn rules(tree: &Tree) -> Vec<Finding> {
    let is_page = |path: &str| path == RULES || path.starts_with(MORE_RULES);
    let pages: Vec<&str> = tree.files().filter(|(path, _)| is_page(path)).map(|(_, text)| text).collect();
    let lines = pages.iter().flat_map(|page| page.lines());
    let headings: BTreeSet<&str> =
        lines.filter_map(|line| line.strip_prefix("## ")?.split(' ').next()).collect();
    let known: BTreeSet<&str> = pages
        .iter()
        .flat_map(|page| markdown::rows(page))
        .filter_map(|(_, cells)| cells.first().copied())
        .filter(|id| is_rule(id))
        .collect();
    let families: BTreeSet<&str> = known.iter().filter_map(|id| id.split('-').next()).collect();
    let mut found = Vec::new();
    for_each_comment(tree, |path, text| {
        for (at, id) in rule_ids(text) {
            let family = id.split('-').next().unwrap_or_default();
            if families.contains(family) && !known.contains(id) {
                found.push(Finding::new(path, line_of(text, at), format!("{id} is not in the rules")));
            }
        }
        for (at, section) in spec_sections(text) {
            if !section.is_empty() && !headings.contains(section) {
                found.push(Finding::new(path, line_of(text, at), format!("the rules have no §{section}")));
            }
        }
    });
    if known.is_empty() {
        found.push(Finding::new(RULES, 0, "no rule is listed"));
    }
    found
}

/// Hands over the comments of Rust sources, and documents and traces as they are.
fn for_each_comment(tree: &Tree, mut look: impl FnMut(&str, &str)) {
    for (path, text) in tree.files() {
        if extension(path) == "rs" {
            look(path, &Source::new(text).comments);
        } else if extension(path) == "md" || path.starts_with("traces/") {
            look(path, text);
        }
    }
}

/// The keys of the papers: headings `## KEY`, each with the sections in the first column of the
/// tables under it (`§4.2`). A paper without such a table is cited as a whole: a section is given
/// only with the paper open.
fn known_papers(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut key = "";
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            key = title.split(' ').next().unwrap_or_default();
            if is_key(key) {
                known.insert(key, BTreeSet::new());
            }
        } else if let Some((_, cells)) = markdown::rows(line).next()
            && let Some(section) = cells.first().and_then(|cell| cell.strip_prefix('§'))
            && let Some(sections) = known.get_mut(key)
        {
            sections.insert(section);
        }
    }
    known
}

struct Citation<'a> {
    at: usize,
    key: &'a str,
    sections: Vec<&'a str>,
}

/// Returns every `[KEY]`, `[KEY §1.2]`, `[KEY §1, §2]`.
fn citations(text: &str) -> Vec<Citation<'_>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('[') {
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let key = &rest[..end];
        let Some(close) = rest.find(']') else { continue };
        let is_link = rest[close..].starts_with("](");
        if !is_key(key) || is_link || !rest[end..].starts_with([']', ' ', ',', ':']) {
            continue;
        }
        let sections = rest[end..close]
            .match_indices('§')
            .map(|(mark, sign)| {
                let number = &rest[end + mark + sign.len()..close];
                let stop = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
                number[..stop].trim_end_matches('.')
            })
            .collect();
        found.push(Citation { at, key, sections });
    }
    found
}

/// Two capitals or more, then the year in two digits: `OSDI99`; or an RFC or report with its number.
fn is_key(word: &str) -> bool {
    let digits = word.chars().rev().take_while(char::is_ascii_digit).count();
    let letters = &word[..word.len() - digits];
    digits >= 2 && letters.len() >= 2 && letters.chars().all(|c| c.is_ascii_uppercase())
}

fn is_rule(word: &str) -> bool {
    word.split_once('-').is_some_and(|(family, number)| {
        family.len() == 2
            && family.chars().all(|c| c.is_ascii_uppercase())
            && matches!(number.len(), 1 | 2)
            && number.chars().all(|c| c.is_ascii_digit())
    })
}

/// Returns every word of the form `PP-3`, with its place.
fn rule_ids(text: &str) -> Vec<(usize, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (is_part(c), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                if is_rule(&text[from..at]) {
                    found.push((from, &text[from..at]));
                }
                start = None;
            }
            _ => {}
        }
    }
    found
}

/// Returns the number in every `spec §5.4`, with its place.
fn spec_sections(text: &str) -> Vec<(usize, &str)> {
    text.match_indices("pec §")
        .map(|(at, mark)| {
            let number = &text[at + mark.len()..];
            let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
            (at, number[..end].trim_end_matches('.'))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "# Papers\n\n## OSDI99 Practical\n\n| Section | File |\n|---|---|\n| §4 | x |\n| §4.2 | y |\n\n## TOCS02 Later\n";

    #[test]
    fn a_key_that_is_not_listed_is_found() {
        let tree = Tree::of(&[
            (PAPERS, KEYS),
            ("a.rs", "/// As in [OSDI99 §4.2] and [NSDI09].\nlet a = b[KEY16];\n"),
        ]);
        assert_eq!(papers(&tree), [Finding::new("a.rs", 1, "[NSDI09] is not in docs/papers.md")]);
    }

    #[test]
    fn a_section_that_the_paper_does_not_have_is_found() {
        let tree = Tree::of(&[
            (PAPERS, KEYS),
            ("docs/a.md", "[OSDI99 §4, §5.4] [TOCS02 §9] [TOCS02] [OSDI99 §4.2.]\n"),
        ]);
        let says: Vec<String> = papers(&tree).into_iter().map(|finding| finding.says).collect();
        assert_eq!(says, ["OSDI99 has no §5.4 in docs/papers.md", "TOCS02 has no §9 in docs/papers.md"]);
    }

    #[test]
    fn a_rule_that_is_not_listed_is_found() {
        let listed = "## 5.4 Accepting\n| Rule | Says |\n|---|---|\n| PP-3 | one digest |\n";
        let more = "## 5.5 Voting\n| Rule | Says |\n|---|---|\n| PC-1 | a quorum |\n";
        let cites = "// PP-3, PP-4, PC-1, SHA-256, XY-1, spec §5.4, spec §5.5, spec §5.9.\n";
        let tree = Tree::of(&[(RULES, listed), ("docs/rules/more.md", more), ("a.rs", cites)]);
        let says: Vec<String> = rules(&tree).into_iter().map(|finding| finding.says).collect();
        assert_eq!(says, ["PP-4 is not in the rules", "the rules have no §5.9"]);
        assert_eq!(rules(&Tree::of(&[])).len(), 1);
    }
}

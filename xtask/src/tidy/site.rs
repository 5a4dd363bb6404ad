//! The documents as a website: docs/SUMMARY.md lists its pages, as mdBook reads them.

use std::collections::BTreeSet;

use super::links::join;
use super::{Finding, markdown};
use crate::tree::{Tree, extension};

/// The list of the pages.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Finds documents that the list does not have once, and links from a page of the site to a document that is none.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let listed: Vec<(usize, String)> = links(tree, SUMMARY).collect();
    let mut found = Vec::new();
    let documents = tree.with_extension("md").map(|(path, _)| path).filter(|path| is_page(path));
    for path in documents {
        let count = listed.iter().filter(|(_, page)| page == path).count();
        if count != 1 {
            found.push(Finding::new(path, 0, format!("{SUMMARY} lists it {count} times")));
        }
    }
    for (_, page) in &listed {
        let others = links(tree, page).filter(|(_, to)| {
            let is_document = extension(to) == "md" || extension(to).is_empty() && tree.get(to).is_none();
            is_document && listed.iter().all(|(_, page)| page != to)
        });
        found.extend(
            others.map(|(line, to)| Finding::new(page, line, format!("{to} is no page of the site"))),
        );
    }
    found
}

/// Returns the paths of all files of the site: its pages, and what they show or link to.
pub(crate) fn files(tree: &Tree) -> BTreeSet<String> {
    let pages: Vec<String> = links(tree, SUMMARY).map(|(_, page)| page).collect();
    pages.iter().flat_map(|page| links(tree, page)).map(|(_, to)| to).chain(pages.clone()).collect()
}

/// Returns the list of the pages with paths from the root, where the site has it.
pub(crate) fn summary(tree: &Tree) -> String {
    let text = tree.get(SUMMARY).unwrap_or_default();
    let line = |line: &str| match line
        .split_once("](")
        .and_then(|(title, rest)| Some((title, rest.split_once(')')?)))
    {
        Some((title, (target, rest))) => format!("{title}]({}){rest}\n", join(SUMMARY, target)),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Those in the root and below docs. Those beside the code are for readers of the code.
fn is_page(path: &str) -> bool {
    path != SUMMARY && (path.starts_with("docs/") || !path.contains('/'))
}

/// Returns the files that a document links to, with their lines.
fn links<'a>(tree: &'a Tree, from: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
    let all = markdown::links(tree.get(from).unwrap_or_default()).into_iter();
    let inside = all.filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"));
    inside.filter_map(move |(line, target)| {
        let file = target.split('#').next().filter(|file| !file.is_empty())?;
        Some((line, join(from, file)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_a_page_once() {
        let summary =
            "# Summary\n\n[quorate](../README.md)\n\n- [A](a.md)\n  - [B](b.md)\n- [B again](b.md)\n";
        let tree = Tree::of(&[
            (SUMMARY, summary),
            ("README.md", "[a](docs/a.md#one) [c](docs/c.md) ![d](docs/d.svg) [e](crates/e)\n"),
            ("docs/a.md", ""),
            ("docs/b.md", "[x](https://example.org) [here](#b)\n"),
            ("docs/c.md", ""),
            ("docs/d.svg", ""),
            ("crates/e/README.md", ""),
        ]);
        let found: Vec<String> =
            check(&tree).into_iter().map(|finding| format!("{}: {}", finding.path, finding.says)).collect();
        assert_eq!(
            found,
            [
                "docs/b.md: docs/SUMMARY.md lists it 2 times",
                "docs/c.md: docs/SUMMARY.md lists it 0 times",
                "README.md: docs/c.md is no page of the site",
                "README.md: crates/e is no page of the site",
            ]
        );
        assert!(files(&tree).contains("docs/d.svg"));
        assert_eq!(super::summary(&tree).lines().nth(4), Some("- [A](docs/a.md)"));
    }
}

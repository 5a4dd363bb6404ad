//! The prose of a file, in blocks with their lines: paragraphs, table cells, comments and strings. Code in
//! backticks or fences, and the targets of links, are no prose.

use crate::rust::Source;
use crate::tree::extension;

/// Stands for a piece of code inside a sentence. It counts as a word and never matches one.
const CODE: char = '\u{1}';

/// A paragraph, a table cell, a comment or a string: its lines, each with its number from 1.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    lines: Vec<(usize, String)>,
}

/// A word in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) text: String,
    /// Whether only blanks stand between this word and the one before.
    pub(super) continues: bool,
}

impl Block {
    fn of(line: usize, text: &str) -> Self {
        Self { lines: vec![(line, text.to_owned())] }
    }

    /// Returns the words in their order.
    pub(super) fn words(&self) -> Vec<Word> {
        let mut found: Vec<Word> = Vec::new();
        let mut continues = false;
        for (line, text) in &self.lines {
            let mut word = String::new();
            for c in text.chars().chain([' ']) {
                if c.is_alphanumeric() || c == '_' {
                    word.extend(c.to_lowercase());
                    continue;
                }
                if !word.is_empty() {
                    found.push(Word { line: *line, text: std::mem::take(&mut word), continues });
                    continues = true;
                }
                continues &= c == ' ' || c == '-';
            }
        }
        found
    }

    /// Returns for each sentence the line where it begins and how many words it has.
    pub(super) fn sentences(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut open: Option<(usize, usize)> = None;
        for (line, text) in &self.lines {
            for word in text.split_whitespace() {
                if word.contains(|c: char| c.is_alphanumeric() || c == CODE) {
                    open = Some(open.map_or((*line, 1), |(start, words)| (start, words + 1)));
                }
                if word.trim_end_matches(['"', '\'', ')', '*', '_']).ends_with(['.', '!', '?']) {
                    found.extend(open.take());
                }
            }
        }
        found.extend(open);
        found
    }
}

/// Returns the prose of a file: of Rust the comments and strings, of Markdown what is no code, else every line.
pub(super) fn blocks(path: &str, text: &str) -> Vec<Block> {
    match extension(path) {
        "rs" => {
            let source = Source::new(text);
            let mut found = paragraphs(&source.comments);
            found.extend(strings(&source.texts));
            found
        }
        "md" => paragraphs(text),
        _ => text.lines().enumerate().map(|(index, line)| Block::of(index + 1, line)).collect(),
    }
}

/// Returns the blocks of Markdown: of a document, or of comments, whose slashes are left out.
pub(super) fn paragraphs(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open = Block::default();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim().trim_start_matches(['/', '!']).trim();
        if line.starts_with("```") {
            fenced = !fenced;
        }
        let ends = line.is_empty() || line.starts_with("```");
        let is_row = line.starts_with('|');
        let item = line.split_once(". ").filter(|(before, _)| number(before)).map(|(_, item)| item);
        let begins = item.is_some() || line.starts_with(['#', '-', '*']);
        if ends || is_row || begins {
            found.push(std::mem::take(&mut open));
        }
        if fenced || ends {
            continue;
        }
        let plain = without_code(item.unwrap_or(line));
        if is_row {
            found.extend(plain.split('|').map(|cell| Block::of(index + 1, cell)));
        } else {
            open.lines.push((index + 1, plain));
        }
    }
    found.push(open);
    found.retain(|block| !block.lines.is_empty());
    found
}

fn number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns a line with [`CODE`] for each code span, and without the targets of links.
fn without_code(line: &str) -> String {
    let mut plain = String::new();
    for (index, part) in line.split('`').enumerate() {
        if index % 2 == 1 {
            plain.push(CODE);
            continue;
        }
        let mut rest = part;
        while let Some((before, after)) = rest.split_once("](") {
            plain.push_str(before);
            plain.push(' ');
            rest = after.split_once(')').map_or("", |(_, rest)| rest);
        }
        plain.push_str(rest);
    }
    plain
}

/// Returns a block for each string: of all text the part between two ends of strings.
fn strings(texts: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open = Block::default();
    for (index, line) in texts.lines().enumerate() {
        for (part, piece) in line.split('"').enumerate() {
            if part > 0 {
                found.push(std::mem::take(&mut open));
            }
            if !piece.trim().is_empty() {
                open.lines.push((index + 1, without_code(piece.trim_end_matches('\\'))));
            }
        }
    }
    found.push(open);
    found.retain(|block| !block.lines.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(path: &str, text: &str) -> Vec<String> {
        blocks(path, text).iter().flat_map(Block::words).map(|word| word.text).collect()
    }

    #[test]
    fn code_and_targets_of_links_are_no_prose() {
        let text = "# One\nsee `two` and [three](four.md)\n\n```\nfive\n```\n| six | `seven` |\n- eight\n";
        assert_eq!(words("a.md", text), ["one", "see", "and", "three", "six", "eight"]);
    }

    #[test]
    fn of_rust_comments_and_strings_are_prose() {
        let text = "/// One `two`\n/// three.\nfn four() { five(\"six \\\n  seven\", 'x') } // eight\n";
        assert_eq!(words("a.rs", text), ["one", "three", "eight", "six", "seven", "x"]);
    }

    #[test]
    fn words_continue_over_lines_and_not_over_punctuation() {
        let words = blocks("a.md", "for\never, part-time; so\n\nmany\n")
            .iter()
            .flat_map(Block::words)
            .collect::<Vec<_>>();
        let continues: Vec<bool> = words.iter().map(|word| word.continues).collect();
        assert_eq!(continues, [false, true, false, true, false, false]);
        assert_eq!(words.iter().map(|word| word.line).collect::<Vec<_>>(), [1, 2, 2, 2, 2, 4]);
    }

    #[test]
    fn sentences_are_counted_by_their_words() {
        let text = "One two\nthree. Four `f g` five (six.)\n\n| seven eight | nine |\n1. ten. Eleven\n";
        let found: Vec<(usize, usize)> = blocks("a.md", text).iter().flat_map(Block::sentences).collect();
        assert_eq!(found, [(1, 3), (2, 4), (4, 2), (4, 1), (5, 1), (5, 1)]);
    }
}

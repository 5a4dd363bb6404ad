//! As much of Markdown as the checks need: tables, links, code spans and headings.

/// Returns the cells of each row of each table, with the line, from 1. Rules between are left out.
pub(super) fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<&str> = cells(inner);
        let is_rule =
            cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')));
        (!is_rule).then_some((index + 1, cells))
    })
}

/// Splits at `|`, but not inside of code or after a backslash.
fn cells(inner: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut in_code = false;
    let mut previous = ' ';
    for (at, c) in inner.char_indices() {
        if c == '`' {
            in_code = !in_code;
        } else if c == '|' && !in_code && previous != '\\' {
            found.push(inner[start..at].trim());
            start = at + 1;
        }
        previous = c;
    }
    found.push(inner[start..].trim());
    found
}

/// Returns the target of each `[text](target)` outside of code, with its line.
pub(super) fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, content) in prose(text) {
        for (at, _) in content.match_indices("](") {
            let rest = &content[at + 2..];
            let in_code = content[..at].matches('`').count() % 2 == 1;
            if let Some(end) = rest.find(')')
                && !in_code
            {
                found.push((line, &rest[..end]));
            }
        }
    }
    found
}

/// Returns each code span outside of code blocks, with its line and what follows it in the line.
pub(super) fn spans(text: &str) -> Vec<(usize, &str, &str)> {
    let mut found = Vec::new();
    for (line, content) in prose(text) {
        let mut rest = content;
        while let Some(open) = rest.find('`') {
            let Some(length) = rest[open + 1..].find('`') else { break };
            let after = &rest[open + length + 2..];
            found.push((line, &rest[open + 1..open + 1 + length], after));
            rest = after;
        }
    }
    found
}

/// Returns the anchors of the headings, as they are made from their text.
pub(super) fn anchors(text: &str) -> Vec<String> {
    prose(text)
        .filter(|(_, content)| content.starts_with('#'))
        .map(|(_, content)| {
            let title = content.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    fenced(text).into_iter().filter(|(_, _, fenced)| !fenced).map(|(line, content, _)| (line, content))
}

fn fenced(text: &str) -> Vec<(usize, &str, bool)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else {
            found.push((index + 1, line, inside));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A title, with `code`\n\n| a | b |\n|---|---|\n| `x|y` | [l](t.md) |\n\n```\nlet `a` = [n](o);\n```\nsee `f.rs` (later)\n";

    #[test]
    fn tables_links_spans_and_anchors_are_read() {
        let rows: Vec<_> = rows(TEXT).collect();
        assert_eq!(rows, [(3, vec!["a", "b"]), (5, vec!["`x|y`", "[l](t.md)"])]);
        assert_eq!(links(TEXT), [(5, "t.md")]);
        assert_eq!(spans(TEXT).last(), Some(&(10, "f.rs", " (later)")));
        assert_eq!(anchors(TEXT), ["a-title-with-code"]);
    }
}

//! As much of Rust's syntax as the checks need: code apart from comments and strings, the bodies
//! of `match`, and what stands under `#[cfg(test)]`.

/// A source text taken apart. Every part has the length and the lines of the original, with
/// blanks in place of what is not its own.
pub(crate) struct Source {
    /// Code, with the insides of strings and characters blanked.
    pub(crate) code: String,
    /// Comments and documentation.
    pub(crate) comments: String,
    /// Strings and characters, with their quotes.
    pub(crate) texts: String,
}

impl Source {
    /// Takes a text apart. Total: a text that is not Rust gives something, not an error.
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let part = || String::with_capacity(text.len());
        let mut source = Self { code: part(), comments: part(), texts: part() };
        let mut at = 0;
        while at < chars.len() {
            let (end, part) = token(&chars, at);
            for &c in &chars[at..end] {
                let blank = if c == '\n' { '\n' } else { ' ' };
                source.code.push(if part == Part::Code || (part == Part::Text && c == '"') {
                    c
                } else {
                    blank
                });
                source.comments.push(if part == Part::Comment { c } else { blank });
                source.texts.push(if part == Part::Text { c } else { blank });
            }
            at = end;
        }
        source
    }

    /// Returns the code without what stands under `#[cfg(test)]`.
    pub(crate) fn product(&self) -> String {
        let mut code = self.code.clone();
        while let Some(start) = code.find("#[cfg(test)]") {
            let Some(end) = item_end(&code, start) else { return code[..start].to_owned() };
            let blanked: String =
                code[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            code.replace_range(start..end, &blanked);
        }
        code
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Text,
}

/// Returns where the piece that begins at `at` ends, and what it is.
fn token(chars: &[char], at: usize) -> (usize, Part) {
    let peek = |offset: usize| chars.get(at + offset).copied().unwrap_or(' ');
    let in_word = at > 0 && is_word(chars[at - 1]);
    match chars[at] {
        '/' if peek(1) == '/' => (find(chars, at, '\n'), Part::Comment),
        '/' if peek(1) == '*' => (block_comment_end(chars, at), Part::Comment),
        '"' => (string_end(chars, at + 1), Part::Text),
        'r' | 'b' | 'c' if !in_word => match raw_string_end(chars, at) {
            Some(end) => (end, Part::Text),
            None => (at + 1, Part::Code),
        },
        '\'' if peek(1) == '\\' => (find(chars, at + 3, '\'') + 1, Part::Text),
        '\'' if peek(2) == '\'' => (at + 3, Part::Text),
        _ => (at + 1, Part::Code),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn find(chars: &[char], from: usize, wanted: char) -> usize {
    (from..chars.len()).find(|&i| chars[i] == wanted).unwrap_or(chars.len().saturating_sub(1))
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => {
                depth += 1;
                i += 2;
            }
            ('*', '/') => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut i = from;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// `r"..."`, `r#"..."#`, `br"..."`, and the plain `b"..."` and `c"..."`.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let mut i = at;
    while matches!(chars.get(i), Some('b' | 'c')) {
        i += 1;
    }
    if chars.get(i) != Some(&'r') {
        return (i > at && i - at == 1 && chars.get(i) == Some(&'"')).then(|| string_end(chars, i + 1));
    }
    let hashes = chars[i + 1..].iter().take_while(|&&c| c == '#').count();
    let open = i + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let mut end = open + 1;
    while end < chars.len() {
        let closes =
            chars[end] == '"' && chars[end + 1..].iter().take_while(|&&c| c == '#').count() >= hashes;
        if closes {
            return Some(end + 1 + hashes);
        }
        end += 1;
    }
    Some(chars.len())
}

/// Returns where the item that follows the attribute at `start` ends: at its `;` or closing brace.
fn item_end(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, c) in code[start..].char_indices().skip("#[cfg(test)]".len()) {
        match c {
            '{' | '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '}' => {
                depth -= 1;
                match depth {
                    0 => return Some(start + offset + 1),
                    // A field or an arm, the last of its block.
                    ..0 => return Some(start + offset),
                    _ => {}
                }
            }
            ';' if depth == 0 => return Some(start + offset + 1),
            _ => {}
        }
    }
    None
}

/// A `match` expression.
pub(crate) struct Match {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// The pattern of each arm, guards included.
    pub(crate) patterns: Vec<String>,
}

/// Returns every `match` in `code`, nested ones too.
pub(crate) fn matches(code: &str) -> Vec<Match> {
    words(code, "match")
        .filter_map(|at| {
            let open = at + block_open(&code[at..])?;
            let line = code[..at].matches('\n').count() + 1;
            Some(Match { line, patterns: patterns(&code[open + 1..]) })
        })
        .collect()
}

/// Returns the positions of `word` as a whole word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back().unwrap_or(' ');
        let after = code[at + word.len()..].chars().next().unwrap_or(' ');
        !is_word(before) && !is_word(after)
    })
}

/// Returns where the block begins, past the braces inside of parentheses.
fn block_open(code: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the patterns of the arms in a body that begins after its opening brace.
fn patterns(body: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut pattern = String::new();
    let mut depth = 0_i32;
    let mut in_pattern = true;
    let mut previous = ' ';
    for c in body.chars() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            break;
        }
        if in_pattern && depth == 0 && previous == '=' && c == '>' {
            pattern.pop();
            found.push(pattern.trim().trim_start_matches(',').trim().to_owned());
            pattern.clear();
            in_pattern = false;
        } else if in_pattern {
            pattern.push(c);
        } else if depth == 0 && (c == ',' || c == '}') {
            in_pattern = true;
        }
        previous = c;
    }
    found
}

/// Returns the names of the variants of `enum NAME`, in order.
pub(crate) fn variants(text: &str, name: &str) -> Vec<String> {
    let code = Source::new(text).code;
    let Some(at) = words(&code, "enum").find(|&at| {
        code[at + 4..].trim_start().strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_word))
    }) else {
        return Vec::new();
    };
    let Some(open) = code[at..].find('{') else { return Vec::new() };
    let mut found = Vec::new();
    let mut depth = 0_i32;
    let mut word = String::new();
    let mut fresh = true;
    for c in code[at + open + 1..].chars() {
        if depth == 0 && fresh && is_word(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            found.push(std::mem::take(&mut word));
            fresh = false;
        }
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ => {}
        }
        if depth < 0 {
            break;
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_comments_and_strings() {
        let text = "let a = \"// no /* \\\" unsafe\"; // unsafe [X]\nlet b = 'x'; let c: &'static str = r#\"unsafe \"q\"\"#;\n/* /* unsafe */ */ let d = b'\\''; let e = '\"'; done";
        let source = Source::new(text);
        assert!(!source.code.contains("unsafe"));
        assert!(source.code.contains("let c: &'static str"));
        assert!(source.code.ends_with("done"));
        assert!(source.comments.contains("[X]"));
        assert_eq!(source.code.matches('\n').count(), text.matches('\n').count());
    }

    #[test]
    fn what_stands_under_cfg_test_is_left_out() {
        let source = Source::new(
            "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { { } } }\n#[cfg(test)]\nuse x;\nfn c() {}",
        );
        let product = source.product();
        assert!(product.contains("fn a") && product.contains("fn c"));
        assert!(!product.contains("fn b") && !product.contains("use x"));
        let array = Source::new("#[cfg(test)]\nfn b(x: [u8; 4]) { gone }\nfn c() {}").product();
        assert!(!array.contains("gone") && array.contains("fn c"));
    }

    #[test]
    fn the_arms_of_a_match_are_found() {
        let found = matches(
            "fn f() { match g(S { x: 1 }) { A::X { y: { 1 } } if z => { h(|k| k) } A::Y(_) => 1, _ => { 2 } } }",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].patterns, ["A::X { y: { 1 } } if z", "A::Y(_)", "_"]);
    }

    #[test]
    fn a_nested_match_is_a_match_of_its_own() {
        let found = matches("match a { X => match b { Y => 1, Z => 2 }, W => 3 }");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].patterns, ["X", "W"]);
        assert_eq!(found[1].patterns, ["Y", "Z"]);
    }

    #[test]
    fn variants_are_listed_in_order() {
        let text = "/// An enum.\npub enum M {\n /// One, two.\n A { x: u8, y: u8 },\n #[doc = \"b\"]\n B(u8, u8),\n C = 3,\n}\nenum Mx { D }";
        assert_eq!(variants(text, "M"), ["A", "B", "C"]);
        assert!(variants(text, "Nope").is_empty());
    }
}

//! The tokens of Rust code: words, `::`, and single characters.

/// A token and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// Returns the tokens of code whose strings and comments are blank. Lifetimes are left out.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let bytes = code.as_bytes();
    let mut found = Vec::with_capacity(code.len() / 6);
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        if is_word(bytes[at]) {
            while at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
        } else if bytes[at] == b'\'' {
            at += 1;
            while at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
            continue;
        } else if code[at..].starts_with("::") {
            at += 2;
        } else {
            at += 1;
            if bytes[start].is_ascii_whitespace() {
                continue;
            }
        }
        found.push(Token { text: &code[start..at], at: start });
    }
    found
}

/// A byte of a name. Bytes outside of ASCII count, so that no character is cut.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Says whether a token is a name or a keyword.
pub(super) fn is_name(text: &str) -> bool {
    text.bytes().next().is_some_and(|first| is_word(first) && !first.is_ascii_digit())
}

/// Returns the text of the token at `index`, or nothing after the end.
pub(super) fn text<'a>(tokens: &[Token<'a>], index: usize) -> &'a str {
    tokens.get(index).map_or("", |token| token.text)
}

/// Returns the index behind the bracket that closes the one at `open`.
pub(super) fn closed(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the index behind the generics that begin at `open`, or `open` where none do.
pub(super) fn after_generics(tokens: &[Token<'_>], open: usize) -> usize {
    if text(tokens, open) != "<" {
        return open;
    }
    let mut depth = 0_usize;
    let mut previous = "";
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "<" => depth += 1,
            // Not the arrow of a function.
            ">" if previous != "-" => {
                depth -= 1;
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
        previous = token.text;
    }
    tokens.len()
}

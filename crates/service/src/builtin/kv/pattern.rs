//! Patterns of keys, as Redis matches them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before any of them.

/// The work that one key may take, in steps. A pattern with many stars needs more, and then matches nothing.
const STEPS_MAX: u32 = 100_000;

/// Returns whether a key matches a pattern. An empty pattern matches the empty key only.
pub fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut p, mut k) = (0, 0);
    // Where to go on if the rest does not match: the star takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    for _ in 0..STEPS_MAX {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, k));
            p += 1;
            continue;
        }
        if p == pattern.len() && k == key.len() {
            return true;
        }
        if let Some((byte, next)) =
            key.get(k).zip(pattern.get(p).map(|_| ())).and_then(|(byte, ())| one(pattern, p, *byte))
            && byte
        {
            p = next;
            k += 1;
            continue;
        }
        match &mut star {
            Some((behind, from)) if *from < key.len() => {
                *from += 1;
                (p, k) = (*behind, *from);
            }
            _ => return false,
        }
    }
    false
}

/// Returns whether the part of the pattern at `p` matches a byte, and where the next part begins. None: there is no part.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<(bool, usize)> {
    match *pattern.get(p)? {
        b'?' => Some((true, p + 1)),
        b'\\' if p + 1 < pattern.len() => Some((pattern[p + 1] == byte, p + 2)),
        b'[' => Some(class(pattern, p + 1, byte)),
        other => Some((other == byte, p + 1)),
    }
}

/// As [`one`], for a class of bytes that begins at `at`. One that does not end ends with the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> (bool, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match (pattern.get(at), pattern.get(at + 1), pattern.get(at + 2)) {
            (None, _, _) => break,
            (Some(b']'), _, _) => {
                at += 1;
                break;
            }
            (Some(b'\\'), Some(escaped), _) => {
                found |= *escaped == byte;
                at += 2;
            }
            (Some(from), Some(b'-'), Some(to)) => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            (Some(other), _, _) => {
                found |= *other == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let yes = [
            ("*", ""),
            ("*", "abc"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("a?c", "abc"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("**a**", "bab"),
            ("", ""),
            ("a[b", "ab"),
            ("*x*y*", "axbyc"),
        ];
        let no = [
            ("", "a"),
            ("a", ""),
            ("?", ""),
            ("a*d", "abc"),
            ("h[ae]llo", "hillo"),
            ("h[^e]llo", "hello"),
            ("\\*", "a"),
            ("a[]c", "ac"),
            ("ab", "abc"),
            ("*xy", "xyz"),
            ("[", ""),
        ];
        for (pattern, key) in yes {
            assert!(matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
        }
        for (pattern, key) in no {
            assert!(!matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
        }
    }

    #[test]
    fn a_pattern_with_many_stars_takes_a_bounded_time() {
        let pattern = b"a*".repeat(200);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &[b'a'; 1000]));
    }
}

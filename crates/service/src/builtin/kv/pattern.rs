//! Patterns of keys, as Redis matches them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before any of them.

use quorate_wire::codec::{DecodeError, Decoded};

/// The longest pattern, in bytes. The bound keeps the steps for one key few.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Returns a pattern that is not too long.
pub(super) fn read(pattern: &[u8]) -> Decoded<&[u8]> {
    if pattern.len() > PATTERN_BYTES_MAX { Err(DecodeError::NotCanonical) } else { Ok(pattern) }
}

/// Returns whether a key matches a pattern. An empty pattern matches the empty key only.
pub fn matches(pattern: &[u8], key: &[u8]) -> bool {
    search(pattern, key).0
}

/// As [`matches()`]. Also returns the number of steps: one for each time that a byte of the pattern was read. Each byte of
/// the pattern is read at most once for each byte of the key, and once at the end.
pub(super) fn search(pattern: &[u8], key: &[u8]) -> (bool, u64) {
    let (mut p, mut k) = (0, 0);
    let mut steps = 0;
    // Where to go on if the rest does not match: the star takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, k));
            p += 1;
            steps += 1;
            continue;
        }
        if p == pattern.len() && k == key.len() {
            return (true, steps);
        }
        if let Some((is_match, next)) = key.get(k).and_then(|byte| one(pattern, p, *byte)) {
            steps += u64::try_from(next - p).unwrap_or(u64::MAX);
            if is_match {
                p = next;
                k += 1;
                continue;
            }
        }
        match &mut star {
            Some((behind, from)) if *from < key.len() => {
                *from += 1;
                (p, k) = (*behind, *from);
            }
            _ => return (false, steps),
        }
    }
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
    use alloc::vec::Vec;

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

    /// L80: the steps for a key are bounded by its length and that of the pattern, however many stars and classes there are.
    #[test]
    fn l80_a_pattern_takes_few_steps_for_each_key() {
        let key = [b'a'; 970];
        let long = |part: &[u8]| part.iter().copied().cycle().take(PATTERN_BYTES_MAX - 1).collect::<Vec<_>>();
        for part in [
            &b"a*"[..],
            b"*[b]",
            b"*[ab",
            b"*a?[^b]",
            b"[a-z]*",
            b"*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
            b"\\a*",
        ] {
            for pattern in [long(part), [b"*", &long(part)[..]].concat(), [&long(part)[..], b"b"].concat()] {
                let (_, steps) = search(&pattern, &key);
                let bound = pattern.len() * (key.len() + 1);
                assert!(steps <= u64::try_from(bound).unwrap(), "{steps} {bound}");
            }
        }
        // A class is walked through for each byte of the key.
        let class = [&b"*["[..], &[b'x'; 1000]].concat();
        assert_eq!(search(&class, &key), (false, 970 * 1001 + 1));
    }
}

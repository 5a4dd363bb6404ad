//! Replies of the Redis protocol, versions 2 and 3.

use std::io::Write as _;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two,
    Three,
}

/// Appends a status, such as `+OK`. The text contains no newline.
pub(super) fn status(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// Appends an error. Characters that are not printable become spaces, because the text may come from a client.
pub(super) fn error(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'-');
    out.extend(text.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b' ' }));
    out.extend_from_slice(b"\r\n");
}

/// Appends an integer.
pub(super) fn integer(out: &mut Vec<u8>, number: i64) {
    head(out, b':', number);
}

/// Appends a bulk string.
pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    head(out, b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends nothing as a value: of version 2 the null bulk string.
pub(super) fn nil(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(if version == Version::Three { b"_\r\n" } else { b"$-1\r\n" });
}

/// Appends nothing as an array.
pub(super) fn no_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(if version == Version::Three { b"_\r\n" } else { b"*-1\r\n" });
}

/// Appends the head of a map with this number of pairs: of version 2 an array.
pub(super) fn map(out: &mut Vec<u8>, pairs: usize, version: Version) {
    match version {
        Version::Two => array(out, pairs * 2),
        Version::Three => head(out, b'%', i64::try_from(pairs).unwrap_or(i64::MAX)),
    }
}

/// Appends the head of a set with this number of items: of version 2 an array.
pub(super) fn set(out: &mut Vec<u8>, items: usize, version: Version) {
    match version {
        Version::Two => array(out, items),
        Version::Three => head(out, b'~', i64::try_from(items).unwrap_or(i64::MAX)),
    }
}

/// Appends a text that a user reads.
pub(super) fn text(out: &mut Vec<u8>, text: &str, version: Version) {
    if version == Version::Two {
        return bulk(out, text.as_bytes());
    }
    head(out, b'=', i64::try_from(text.len() + 4).unwrap_or(i64::MAX));
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an array; its items follow.
pub(super) fn array(out: &mut Vec<u8>, len: usize) {
    head(out, b'*', i64::try_from(len).unwrap_or(i64::MAX));
}

/// Appends the message that a client has to forget all replies that it caches. It is no reply, and exists in version 3
/// only.
pub(super) fn forget_all(out: &mut Vec<u8>) {
    out.extend_from_slice(b">2\r\n$10\r\ninvalidate\r\n_\r\n");
}

/// Appends a line with a type character and a decimal number.
pub(super) fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn head(out: &mut Vec<u8>, kind: u8, number: i64) {
    out.push(kind);
    // Writing to memory does not fail.
    let _ = write!(out, "{number}\r\n");
}

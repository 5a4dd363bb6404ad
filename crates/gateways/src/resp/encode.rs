//! Replies of the Redis protocol, version 2.

use std::io::Write as _;

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

/// Appends the null bulk string.
pub(super) fn nil(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// Appends the head of an array; its items follow.
pub(super) fn array(out: &mut Vec<u8>, len: usize) {
    head(out, b'*', i64::try_from(len).unwrap_or(i64::MAX));
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

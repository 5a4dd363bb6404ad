//! Parses commands of the Redis protocol, version 2, from bytes that arrive in pieces.
//!
//! ```text
//! *2\r\n$3\r\nGET\r\n$1\r\nk\r\n      an array of bulk strings, sent by programs
//! GET k\r\n                          a line of words, typed by users
//! ```
//!
//! What was read is not read again when more bytes come, nothing nests, and every length is checked
//! against its bound before anything is kept for it: a client can make the decoder hold one command and
//! no more (ADR 12). A command that is over a bound is read away piece by piece, and the next one is understood again.

use std::ops::Range;

/// Maximum number of words of a command.
pub const WORDS_MAX: usize = 65_537;
/// Maximum length of a word, in bytes.
pub const WORD_BYTES_MAX: usize = 1 << 20;
/// Maximum length of an encoded command, in bytes.
pub const COMMAND_BYTES_MAX: usize = WORD_BYTES_MAX + (64 << 10);
/// The most words of a command that is read away.
pub const WORDS_SKIPPED_MAX: usize = 1 << 20;
/// The longest word that is read away, in bytes: as long as Redis takes one.
pub const WORD_BYTES_SKIPPED_MAX: usize = 512 << 20;
/// The longest line, in bytes: a command that somebody types, or a length.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A violation of the protocol. The connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number of words is not a number, or too large.
    WordCount,
    /// A word does not start with its length.
    Expected(u8),
    /// The length of a word is not a number, or too large.
    WordLength,
    /// A word is not followed by the end of a line.
    NoEnd,
    /// A line does not end.
    LineTooLong,
    /// A quote is not closed.
    Quotes,
}

impl ProtocolError {
    /// Returns the error text for the client: that of Redis, if it has one.
    pub fn text(self) -> String {
        match self {
            Self::WordCount => "Protocol error: invalid multibulk length".to_owned(),
            Self::Expected(byte) => {
                format!("Protocol error: expected '$', got '{}'", byte.escape_ascii())
            }
            Self::WordLength => "Protocol error: invalid bulk length".to_owned(),
            Self::NoEnd => "Protocol error: a bulk string without its end".to_owned(),
            Self::LineTooLong => "Protocol error: too big inline request".to_owned(),
            Self::Quotes => "Protocol error: unbalanced quotes in request".to_owned(),
        }
    }
}

/// The state of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before a command.
    #[default]
    Start,
    /// This number of words is still missing.
    Words(usize),
    /// The bytes of a word of this length, and then this number of words.
    Word { len: usize, then: usize },
}

/// Parses one command after the other from a buffer that grows at its end.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// Parsed bytes of the command.
    read: usize,
    /// Bytes after that which contain no end of a line.
    searched: usize,
    /// The ranges of the words, from the beginning of the command; of a typed line, in `line`.
    words: Vec<Range<usize>>,
    /// The words of a typed line without their quotes.
    line: Vec<u8>,
    is_line: bool,
    /// The command is over a bound: its words are not kept.
    is_too_long: bool,
}

impl Decoder {
    /// Reads on in `bytes`, which begin with the command, without what was [`Self::let_go`], and may have grown
    /// since the last call. Returns how long the rest of the command is once all of it is there: then
    /// [`Self::words`] has its words, unless it [`Self::is_too_long`].
    ///
    /// # Errors
    ///
    /// The bytes are not the protocol.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        loop {
            match self.state {
                State::Start => {
                    let Some(first) = bytes.get(self.read) else { return Ok(None) };
                    self.words.clear();
                    self.is_too_long = false;
                    self.is_line = *first != b'*';
                    let Some(line) = self.take_line(bytes)? else { return Ok(None) };
                    if self.is_line {
                        self.split(&bytes[line])?;
                        return Ok(Some(self.finish()));
                    }
                    let count = number(&bytes[line.start + 1..line.end]).ok_or(ProtocolError::WordCount)?;
                    // Redis skips arrays without words, and those with a negative length.
                    let count = usize::try_from(count).unwrap_or(0);
                    if count > WORDS_SKIPPED_MAX {
                        return Err(ProtocolError::WordCount);
                    }
                    self.is_too_long = count > WORDS_MAX;
                    self.state = State::Words(count);
                }
                State::Words(0) => return Ok(Some(self.finish())),
                State::Words(count) => {
                    let Some(first) = bytes.get(self.read) else { return Ok(None) };
                    if *first != b'$' {
                        return Err(ProtocolError::Expected(*first));
                    }
                    let Some(line) = self.take_line(bytes)? else { return Ok(None) };
                    let len = number(&bytes[line.start + 1..line.end]).ok_or(ProtocolError::WordLength)?;
                    let len = usize::try_from(len).map_err(|_| ProtocolError::WordLength)?;
                    if len > WORD_BYTES_SKIPPED_MAX {
                        return Err(ProtocolError::WordLength);
                    }
                    if len > WORD_BYTES_MAX || self.read + len + 2 > COMMAND_BYTES_MAX {
                        self.is_too_long = true;
                    }
                    self.state = State::Word { len, then: count - 1 };
                }
                State::Word { len, then } if self.is_too_long && len > 0 => {
                    let here = len.min(bytes.len().saturating_sub(self.read));
                    self.read += here;
                    self.state = State::Word { len: len - here, then };
                    if here < len {
                        return Ok(None);
                    }
                }
                State::Word { len, then } => {
                    let end = self.read + len;
                    let Some(tail) = bytes.get(end..end + 2) else { return Ok(None) };
                    if tail != b"\r\n" {
                        return Err(ProtocolError::NoEnd);
                    }
                    if !self.is_too_long {
                        self.words.push(self.read..end);
                    }
                    self.read = end + 2;
                    self.state = State::Words(then);
                }
            }
        }
    }

    /// Returns the words of the command that [`Self::read`] has found at the beginning of `bytes`; none for an empty
    /// one.
    pub fn words<'a>(&'a self, bytes: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let from = if self.is_line { &self.line[..] } else { bytes };
        self.words.iter().map(move |word| from.get(word.clone()).unwrap_or(&[]))
    }

    /// Says whether the command is over a bound.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Returns how many bytes at the beginning of the command are not needed any more: some of one that is too
    /// long. They are not to come again.
    pub fn let_go(&mut self) -> usize {
        if !self.is_too_long {
            return 0;
        }
        self.words = Vec::new();
        std::mem::take(&mut self.read)
    }

    /// Returns how many bytes the command needs at least, as far as that is known.
    pub fn wants(&self) -> usize {
        match self.state {
            State::Start | State::Words(_) => self.read + self.searched + 1,
            State::Word { .. } if self.is_too_long => self.read + 1,
            State::Word { len, .. } => self.read + len + 2,
        }
    }

    /// Returns how many bytes are held, without the command's own.
    pub fn held(&self) -> usize {
        self.words.capacity() * size_of::<Range<usize>>() + self.line.capacity()
    }

    fn finish(&mut self) -> usize {
        self.state = State::Start;
        self.searched = 0;
        std::mem::take(&mut self.read)
    }

    /// Takes a line and returns its range, without its end.
    fn take_line(&mut self, bytes: &[u8]) -> Result<Option<Range<usize>>, ProtocolError> {
        let from = self.read + self.searched;
        let rest = bytes.get(from..).unwrap_or(&[]);
        let Some(at) = rest.iter().position(|byte| *byte == b'\n') else {
            self.searched += rest.len();
            let long = self.searched > LINE_BYTES_MAX;
            return if long { Err(ProtocolError::LineTooLong) } else { Ok(None) };
        };
        let start = std::mem::replace(&mut self.read, from + at + 1);
        self.searched = 0;
        if from + at - start > LINE_BYTES_MAX || (self.read > COMMAND_BYTES_MAX && !self.is_too_long) {
            return Err(ProtocolError::LineTooLong);
        }
        let end = from + at;
        Ok(Some(start..if bytes[start..end].last() == Some(&b'\r') { end - 1 } else { end }))
    }

    /// Splits a typed line into words. In double quotes a backslash escapes, as in `\n` and `\x00`; in single quotes
    /// it only escapes a quote.
    fn split(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        self.line.clear();
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Ok(());
            }
            let start = self.line.len();
            while let Some((byte, tail)) = rest.split_first() {
                rest = match byte {
                    byte if byte.is_ascii_whitespace() => break,
                    b'"' | b'\'' => {
                        let tail = unquote(*byte, tail, &mut self.line).ok_or(ProtocolError::Quotes)?;
                        if tail.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                            return Err(ProtocolError::Quotes);
                        }
                        tail
                    }
                    byte => {
                        self.line.push(*byte);
                        tail
                    }
                };
            }
            self.words.push(start..self.line.len());
        }
    }
}

/// Appends a quoted text, up to the closing `quote`, and returns the rest.
fn unquote<'a>(quote: u8, mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = rest.split_first()?;
        rest = match (*byte, tail) {
            (byte, _) if byte == quote => return Some(tail),
            (b'\\', [b'x', high, low, behind @ ..])
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                out.push(digit(*high)? << 4 | digit(*low)?);
                behind
            }
            (b'\\', [escaped, behind @ ..]) if quote == b'"' || *escaped == b'\'' => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                behind
            }
            (byte, _) => {
                out.push(byte);
                tail
            }
        };
    }
}

/// Parses a decimal number like Redis: an optional minus, no leading zeros.
pub fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if canonical { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// Returns whether a decimal number is none but infinity.
pub(super) fn is_infinite(word: &[u8]) -> bool {
    let sign = word.strip_prefix(b"-").or_else(|| word.strip_prefix(b"+")).unwrap_or(word);
    sign.eq_ignore_ascii_case(b"inf") || sign.eq_ignore_ascii_case(b"infinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Commands = (Vec<Vec<Vec<u8>>>, Result<(), ProtocolError>);

    /// Decodes bytes in pieces of this length.
    fn decode(bytes: &[u8], piece: usize) -> Commands {
        let (mut decoder, mut buffer, mut commands) = (Decoder::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.read(&buffer) {
                    Ok(Some(len)) => {
                        commands.push(decoder.words(&buffer).map(<[u8]>::to_vec).collect());
                        buffer.drain(..len);
                    }
                    Ok(None) => break,
                    Err(error) => return (commands, Err(error)),
                }
            }
        }
        (commands, Ok(()))
    }

    #[track_caller]
    fn expect(bytes: &[u8], commands: &[&[&[u8]]]) {
        let expected: Vec<Vec<Vec<u8>>> =
            commands.iter().map(|words| words.iter().map(|word| word.to_vec()).collect()).collect();
        for piece in [1, 2, 3, 7, bytes.len()] {
            assert_eq!(decode(bytes, piece), (expected.clone(), Ok(())), "in pieces of {piece}");
        }
    }

    #[test]
    fn commands_come_out_however_they_are_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n\r\n\r\n";
        expect(bytes, &[&[b"GET", b"k"], &[b"PING"], &[b"SET", b"", b"\r\n\r\n"]]);
        expect(b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", &[&[], &[], &[b"PING"]]);
    }

    #[test]
    fn lines_are_words() {
        expect(b"get  k \r\n\r\nPING\n", &[&[b"get", b"k"], &[], &[b"PING"]]);
        expect(br#"set "a b" '\'c"' "\x41\n\"" "#, &[]);
        expect(b"set \"a b\" '\\'c\"' \"\\x41\\n\\\"\" ''\r\n", &[&[b"set", b"a b", b"'c\"", b"A\n\"", b""]]);
    }

    #[test]
    fn what_is_not_the_protocol_is_refused() {
        let huge = format!("*1\r\n${}\r\n", WORD_BYTES_SKIPPED_MAX + 1);
        let words = format!("*{}\r\n", WORDS_SKIPPED_MAX + 1);
        let long = vec![b'x'; LINE_BYTES_MAX + 2];
        let refused: [(&[u8], ProtocolError); 12] = [
            (b"*x\r\n", ProtocolError::WordCount),
            (b"*01\r\n", ProtocolError::WordCount),
            (b"*9999999999999999999\r\n", ProtocolError::WordCount),
            (words.as_bytes(), ProtocolError::WordCount),
            (b"*1\r\n:1\r\n", ProtocolError::Expected(b':')),
            (b"*1\r\n*1\r\n", ProtocolError::Expected(b'*')),
            (b"*1\r\n$-1\r\n", ProtocolError::WordLength),
            (b"*1\r\n$536870913\r\n", ProtocolError::WordLength),
            (huge.as_bytes(), ProtocolError::WordLength),
            (b"*1\r\n$1\r\nkk\r\n", ProtocolError::NoEnd),
            (&long, ProtocolError::LineTooLong),
            (b"get \"k\r\n", ProtocolError::Quotes),
        ];
        for (bytes, error) in refused {
            for piece in [1000, bytes.len()] {
                assert_eq!(decode(bytes, piece), (Vec::new(), Err(error)));
            }
        }
    }

    #[test]
    fn a_number_has_one_form() {
        for (text, expected) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(number(text.as_bytes()), Some(expected));
        }
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "9223372036854775808", "1e3", "0x1"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}

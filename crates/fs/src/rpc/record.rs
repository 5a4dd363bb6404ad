//! Records on a stream: a call or reply in fragments, each preceded by its length [RFC 5531].
//!
//! A fragment's head has its length in 31 bits, and in the first bit whether it is the last one of the record.
//! Lengths are compared with the limit before memory is used, and memory grows with the data that has arrived, never
//! with an announced length.

use alloc::vec::Vec;

/// The flag of the last fragment of a record.
const LAST: u32 = 1 << 31;
/// Maximum number of fragments of one record.
const FRAGMENTS_MAX: u32 = 4096;

/// Why a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// A record is longer than the limit.
    TooLong {
        /// Its length so far, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A record has too many fragments.
    TooManyFragments,
}

/// Assembles records. Holds at most one, of at most `len_max` bytes.
#[derive(Debug)]
pub struct Records {
    len_max: usize,
    /// The beginning of a fragment's head.
    head: Vec<u8>,
    /// The rest of the fragment.
    left: usize,
    is_last: bool,
    fragments: u32,
    record: Vec<u8>,
}

impl Records {
    /// Returns a reader of records of at most `len_max` bytes.
    pub fn new(len_max: usize) -> Self {
        Self { len_max, head: Vec::new(), left: 0, is_last: false, fragments: 0, record: Vec::new() }
    }

    /// Takes bytes of the stream up to the end of a record. Returns how many it took, and the record if it is
    /// complete.
    ///
    /// # Errors
    ///
    /// The stream violates a limit: nothing after this can be parsed.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Vec<u8>>), RecordError> {
        let mut rest = bytes;
        while let Some((first, later)) = rest.split_first() {
            if self.left == 0 {
                self.head.push(*first);
                rest = later;
                if let Some(head) = self.head.first_chunk() {
                    let head = u32::from_be_bytes(*head);
                    self.head.clear();
                    self.start_fragment(head)?;
                }
            } else {
                let (part, later) = rest.split_at(self.left.min(rest.len()));
                self.record.extend_from_slice(part);
                self.left -= part.len();
                rest = later;
            }
            if self.left == 0 && self.is_last && self.head.is_empty() {
                (self.is_last, self.fragments) = (false, 0);
                return Ok((bytes.len() - rest.len(), Some(core::mem::take(&mut self.record))));
            }
        }
        Ok((bytes.len(), None))
    }

    /// Returns whether a record has arrived incompletely.
    pub fn is_amid(&self) -> bool {
        self.fragments > 0 || !self.head.is_empty()
    }

    /// Returns the number of bytes it holds.
    pub fn held(&self) -> usize {
        self.record.capacity()
    }

    fn start_fragment(&mut self, head: u32) -> Result<(), RecordError> {
        self.is_last = head & LAST != 0;
        self.left = usize::try_from(head & !LAST).unwrap_or(usize::MAX);
        self.fragments += 1;
        let len = self.record.len().saturating_add(self.left);
        if len > self.len_max {
            return Err(RecordError::TooLong { len, max: self.len_max });
        }
        if self.fragments > FRAGMENTS_MAX {
            return Err(RecordError::TooManyFragments);
        }
        Ok(())
    }
}

/// Appends a record of one fragment. The caller keeps it below 2^31 bytes.
pub fn put_record(out: &mut Vec<u8>, record: &[u8]) {
    let len = u32::try_from(record.len()).unwrap_or(0);
    out.extend_from_slice(&(len | LAST).to_be_bytes());
    out.extend_from_slice(record);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(records: &mut Records, mut bytes: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let (taken, record) = records.take(&bytes[..piece.min(bytes.len())])?;
            bytes = &bytes[taken..];
            found.extend(record);
        }
        Ok(found)
    }

    #[test]
    fn records_come_together_however_they_are_cut() {
        let mut stream = Vec::new();
        put_record(&mut stream, b"one");
        stream.extend_from_slice(&[0, 0, 0, 2, b't', b'w', 0, 0, 0, 0, 0x80, 0, 0, 1, b'o']);
        put_record(&mut stream, b"");
        put_record(&mut stream, b"three");
        for piece in 1..stream.len() {
            let found = all(&mut Records::new(5), &stream, piece).unwrap();
            assert_eq!(found, [&b"one"[..], b"two", b"", b"three"]);
        }
    }

    /// An announced length is not allocated, and a record that is too long is refused immediately.
    #[test]
    fn records_are_bounded_before_they_come() {
        let mut records = Records::new(1000);
        let head = [0xff, 0xff, 0xff, 0xff];
        let error = RecordError::TooLong { len: 0x7fff_ffff, max: 1000 };
        assert_eq!(records.take(&head), Err(error));
        let mut records = Records::new(1000);
        let error = RecordError::TooLong { len: 1001, max: 1000 };
        assert_eq!(all(&mut records, &[[0, 0, 0, 1, 7], [0, 0, 3, 0xe8, 7]].concat(), 10), Err(error));
        let mut records = Records::new(1000);
        records.take(&[0x80, 0, 3, 0xe8]).unwrap();
        assert_eq!(records.record.capacity(), 0);
        let empty = alloc::vec![0; 4 * 5000];
        assert_eq!(all(&mut Records::new(1000), &empty, 4000), Err(RecordError::TooManyFragments));
    }
}

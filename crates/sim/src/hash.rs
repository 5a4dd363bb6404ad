//! The hash of a run: the same seed, options and code give the same one, in debug and release.

use quorate_pbft::step::{Lsn, Now};

/// The tags of the values in the hash.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each is an input or an action of its name")]
pub enum Tag {
    Frame = 1,
    Timer,
    SignatureChecked,
    Executed,
    Read,
    Cached,
    Checkpointed,
    Fetched,
    Durable,
    Start,
    Kept,
    Unreadable,
    BurstEnd,
    Replied,
    Send = 32,
    Persist,
    SetTimer,
    StopTimer,
    CheckSignature,
    Execute,
    Merge,
    Undo,
    ReadAction,
    Resend,
    Checkpoint,
    Discard,
    Fetch,
    Report,
}

/// Takes in every input and action of correct replicas.
#[derive(Debug)]
pub struct TraceHash {
    hasher: blake3::Hasher,
    /// Collected until it is worth hashing.
    buffer: Vec<u8>,
}

const BUFFER_BYTES: usize = 16 << 10;

impl TraceHash {
    /// Returns the hash of an empty input.
    pub fn new() -> Self {
        Self { hasher: blake3::Hasher::new(), buffer: Vec::with_capacity(2 * BUFFER_BYTES) }
    }

    /// Takes in one input.
    pub fn input(&mut self, host: u16, now: Now, tag: Tag, numbers: &[u64], bytes: &[u8]) {
        self.buffer.extend_from_slice(&now.mono_ns.to_le_bytes());
        self.buffer.extend_from_slice(&now.wall_ns.to_le_bytes());
        self.action(host, tag, numbers, bytes);
    }

    /// Takes in one action.
    pub fn action(&mut self, host: u16, tag: Tag, numbers: &[u64], bytes: &[u8]) {
        self.buffer.push(tag as u8);
        self.buffer.extend_from_slice(&host.to_le_bytes());
        for number in numbers {
            self.buffer.extend_from_slice(&number.to_le_bytes());
        }
        self.buffer.extend_from_slice(&u64::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.hasher.update(&self.buffer);
            self.buffer.clear();
        }
    }

    /// Returns the hash so far.
    pub fn finish(&mut self) -> [u8; 32] {
        self.hasher.update(&self.buffer);
        self.buffer.clear();
        *self.hasher.finalize().as_bytes()
    }
}

impl Default for TraceHash {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a position in the log as a number for the hash.
pub fn lsn(lsn: Lsn) -> u64 {
    lsn.0
}

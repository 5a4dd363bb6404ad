//! Commits that wait for a message to ride on (PB-1).

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::id::SeqNum;

use crate::io::step::Lsn;

/// The waiting commits. At most `W`.
#[derive(Debug, Default)]
pub(crate) struct Piggyback {
    commits: Vec<(SeqNum, Digest)>,
    /// The record that must be durable before they are sent.
    after: Lsn,
}

impl Piggyback {
    /// Adds a commit that waits for a record. Returns how many there are.
    pub(crate) fn push(&mut self, seq: SeqNum, digest: Digest, after: Lsn) -> u64 {
        self.commits.push((seq, digest));
        self.after = self.after.max(after);
        u64::try_from(self.commits.len()).unwrap_or(u64::MAX)
    }

    /// Returns the commits.
    pub(crate) fn commits(&self) -> &[(SeqNum, Digest)] {
        &self.commits
    }

    /// Returns the record that all of them wait for.
    pub(crate) fn after(&self) -> Lsn {
        self.after
    }

    /// Forgets the commits, which have been sent or count no more. Says whether there were any.
    pub(crate) fn clear(&mut self) -> bool {
        let any = !self.commits.is_empty();
        self.commits.clear();
        self.after = Lsn(0);
        any
    }
}

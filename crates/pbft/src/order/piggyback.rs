//! Commits that wait for a message to ride on (PB-1).

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::id::{SeqNum, ViewNum};
use quorate_wire::message::{Commit, Kind};

use crate::io::step::{Action, Actions, Lsn, Recipient, Timer};

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

    /// The commits have been sent with their carrier, or count no more (PB-1).
    pub(crate) fn sent(&mut self, out: &mut Actions) {
        if !self.commits.is_empty() {
            self.commits.clear();
            self.after = Lsn(0);
            out.push(Action::StopTimer(Timer::Flush));
        }
    }

    /// Sends the commits, which are of `view`, on their own.
    pub(crate) fn flush(&mut self, view: ViewNum, out: &mut Actions) {
        for (seq, digest) in &self.commits {
            let commit = Commit { view, seq: *seq, digest: *digest };
            out.send(Recipient::All, Kind::Commit, self.after, |w| commit.encode(w));
        }
        self.sent(out);
    }
}

//! The NEW-KEYs that a node owes.

use alloc::collections::BTreeSet;

use super::peer::Peer;

/// When each NEW-KEY that is owed may leave, and the key holder it is for. At most one each.
pub(super) struct Letters {
    by_due: BTreeSet<(u64, u64)>,
    /// When the first one may leave: it is asked for after every message, and nearly always not due.
    first_due: u64,
}

impl Letters {
    /// Returns that nothing is owed.
    pub(super) fn new() -> Self {
        Self { by_due: BTreeSet::new(), first_due: u64::MAX }
    }

    /// Takes the first one that may leave at `now`. Returns whom it is for.
    #[inline]
    pub(super) fn take(&mut self, now: u64) -> Option<u64> {
        if now < self.first_due { None } else { self.take_first() }
    }

    #[cold]
    fn take_first(&mut self) -> Option<u64> {
        let first = self.by_due.pop_first();
        self.note_first();
        first.map(|(_, holder)| holder)
    }

    /// Lets a peer's NEW-KEY be sent at `due`, or earlier if it already may.
    pub(super) fn schedule(&mut self, peer: &mut Peer, holder: u64, due: u64) {
        if peer.due().is_some_and(|already| already <= due) {
            return;
        }
        if let Some(later) = peer.set_due(due) {
            self.by_due.remove(&(later, holder));
        }
        self.by_due.insert((due, holder));
        self.note_first();
    }

    /// Owes the key holder `holder` nothing more. It was due at `due`.
    pub(super) fn remove(&mut self, due: u64, holder: u64) {
        self.by_due.remove(&(due, holder));
        self.note_first();
    }

    fn note_first(&mut self) {
        self.first_due = self.by_due.first().map_or(u64::MAX, |(due, _)| *due);
    }
}

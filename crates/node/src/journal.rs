//! Where a drive's records go.

use quorate_pbft::step::Lsn;
use quorate_service::saving::{Copied, PageLabel};
use quorate_wire::{Digest, SeqNum};

/// Random bits below the count of starts in an incarnation (spec §14.3).
pub const INCARNATION_RANDOM_BITS: u32 = 20;

/// Takes what a replica must not forget. Nothing here waits.
pub trait Journal: core::fmt::Debug {
    /// Takes a record.
    fn append(&mut self, lsn: Lsn, record: &[u8]);

    /// Hands what has come to the disk.
    fn flush(&mut self);

    /// Says whether the stable checkpoint `seq` is wanted, so that the log can become shorter; or, with `is_crowded`,
    /// so that pages need not be in memory.
    fn wants_image(&self, seq: SeqNum, is_crowded: bool) -> bool;

    /// Takes pages of a state transfer, so that they need not be in memory: [`Self::take_aside`] tells where they are.
    fn aside(&mut self, _copied: Copied) {}

    /// That transfer is over, and what it has brought is part of the state.
    fn land(&mut self) {}

    /// Returns the slots of pages of a state transfer that have been written, each once.
    fn take_aside(&mut self) -> Vec<(PageLabel, u32)> {
        Vec::new()
    }

    /// Says whether an image that has come is still being written, or was and [`Self::take_stored`] has not told.
    fn is_imaging(&self) -> bool {
        false
    }

    /// Returns the slots of the pages of the last image that were not there before: once, when it is durable.
    fn take_stored(&mut self) -> Vec<(PageLabel, u32)> {
        Vec::new()
    }

    /// Says whether more pages may come: not while the disk is behind.
    fn has_room(&self) -> bool;

    /// Takes pages that have changed since they came last.
    fn pages(&mut self, copied: Copied);

    /// Every page that has changed up to the stable checkpoint `seq` has come (D5).
    fn image(&mut self, seq: SeqNum, root: Digest);

    /// The state was fetched: the log alone cannot bring it back.
    fn image_soon(&mut self);

    /// Says whether no image has been begun since.
    fn is_image_due(&self) -> bool {
        false
    }

    /// Returns the checkpoint of an image that has become durable since this was last asked.
    fn take_kept(&self) -> Option<SeqNum> {
        None
    }

    /// Says whether there is one.
    fn has_kept(&self) -> bool {
        false
    }

    /// The replica has lost its memory, or found that what it has is none (H7). As the others know, it has
    /// started `starts` times at least.
    fn distrust(&mut self, starts: u64);

    /// The replica has rejoined: its records count again.
    fn rejoined(&mut self);

    /// Returns how long the slowest of a hundred writes takes, in microseconds.
    fn write_p99_us(&self) -> u32 {
        0
    }
}

/// No journal, for [`quorate_pbft::config::Durability::Memory`].
impl Journal for () {
    #[inline]
    fn append(&mut self, _lsn: Lsn, _record: &[u8]) {}

    #[inline]
    fn flush(&mut self) {}

    fn wants_image(&self, _seq: SeqNum, _is_crowded: bool) -> bool {
        false
    }

    fn has_room(&self) -> bool {
        true
    }

    fn pages(&mut self, _copied: Copied) {}

    fn image(&mut self, _seq: SeqNum, _root: Digest) {}

    fn image_soon(&mut self) {}

    fn distrust(&mut self, _starts: u64) {}

    fn rejoined(&mut self) {}
}

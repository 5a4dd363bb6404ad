//! The destination of a drive's records.

use quorate_pbft::step::Lsn;
use quorate_service::image::CopiedPages;
use quorate_service::page::PageLabel;
use quorate_wire::{Digest, SeqNum};

/// Random bits below the count of starts in an incarnation (spec §14.3).
pub const INCARNATION_RANDOM_BITS: u32 = 20;

/// Takes a replica's durable records. No method blocks.
pub trait Journal: core::fmt::Debug {
    /// Takes a record.
    fn append(&mut self, lsn: Lsn, record: &[u8]);

    /// Passes the records so far to the disk.
    fn flush(&mut self);

    /// Returns whether the stable checkpoint `seq` should be written, so that the log can be truncated; or, with
    /// `is_crowded`, so that pages need not stay in memory.
    fn wants_image(&self, seq: SeqNum, is_crowded: bool) -> bool;

    /// Takes pages of a state transfer, so that they need not stay in memory: [`Self::take_staged`] returns their
    /// slots.
    fn stage(&mut self, _copied: CopiedPages) {}

    /// The transfer is over, and its pages are part of the state.
    fn land(&mut self) {}

    /// Returns the slots of pages of a state transfer that have been written, each once.
    fn take_staged(&mut self) -> Vec<(PageLabel, u32)> {
        Vec::new()
    }

    /// Returns whether an image is still being written, or was written and [`Self::take_stored`] has not returned it
    /// yet.
    fn is_imaging(&self) -> bool {
        false
    }

    /// Returns the slots of the new pages of the last image: once, when it is durable.
    fn take_stored(&mut self) -> Vec<(PageLabel, u32)> {
        Vec::new()
    }

    /// Returns whether more pages are accepted: not while the disk is behind.
    fn has_room(&self) -> bool;

    /// Takes pages that have changed since they were last passed.
    fn pages(&mut self, copied: CopiedPages);

    /// All pages that had changed up to the stable checkpoint `seq` were passed (D5).
    fn image(&mut self, seq: SeqNum, root: Digest);

    /// The state was fetched: the log alone cannot restore it.
    fn image_soon(&mut self);

    /// Returns whether no image has been begun since.
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

    /// The replica has rejoined: its records are valid again.
    fn rejoined(&mut self);

    /// Says whether there is no room on the disk: nothing is promised until there is.
    fn is_full(&self) -> bool {
        false
    }

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

    fn pages(&mut self, _copied: CopiedPages) {}

    fn image(&mut self, _seq: SeqNum, _root: Digest) {}

    fn image_soon(&mut self) {}

    fn distrust(&mut self, _starts: u64) {}

    fn rejoined(&mut self) {}
}

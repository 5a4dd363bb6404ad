//! Where a drive's records go.

use quorate_pbft::step::Lsn;
use quorate_wire::SeqNum;

/// Random bits below the count of starts in an incarnation (spec §14.3).
pub const INCARNATION_RANDOM_BITS: u32 = 20;

/// Takes what a replica must not forget. Nothing here waits.
pub trait Journal: core::fmt::Debug {
    /// Takes a record.
    fn append(&mut self, lsn: Lsn, record: &[u8]);

    /// Hands what has come to the disk.
    fn flush(&mut self);

    /// Says whether the image of a stable checkpoint is wanted.
    fn wants_image(&self) -> bool;

    /// Takes the image of a stable checkpoint (D5).
    fn image(&mut self, seq: SeqNum, bytes: Vec<u8>);

    /// The state was fetched: the log alone cannot bring it back.
    fn image_soon(&mut self);

    /// The replica has lost its memory, or found that what it has is none (H7). As the others know, it has
    /// started `starts` times at least.
    fn distrust(&mut self, starts: u64);

    /// The replica has rejoined: its records count again.
    fn rejoined(&mut self);
}

/// No journal, for [`quorate_pbft::config::Durability::Memory`].
impl Journal for () {
    #[inline]
    fn append(&mut self, _lsn: Lsn, _record: &[u8]) {}

    #[inline]
    fn flush(&mut self) {}

    fn wants_image(&self) -> bool {
        false
    }

    fn image(&mut self, _seq: SeqNum, _bytes: Vec<u8>) {}

    fn image_soon(&mut self) {}

    fn distrust(&mut self, _starts: u64) {}

    fn rejoined(&mut self) {}
}

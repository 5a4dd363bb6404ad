//! The disk of a process in a world, as the process sees it: what waits until the end of an event.

use quorate_pbft::step::Lsn;
use quorate_process::DiskQueue;
use quorate_service::image::CopiedPages;
use quorate_wire::{Digest, SeqNum};

use crate::disk::Disk;

/// A change of the disk.
#[derive(Debug)]
enum Change {
    /// A record is appended.
    Append(Lsn, Vec<u8>),
    /// The log is no memory, and there were at least this many starts.
    Distrust(u64),
    /// The log is a memory again.
    Rejoined,
}

/// The changes since the last flush, in order.
#[derive(Debug, Default)]
pub struct DiskChanges(Vec<Change>);

impl DiskChanges {
    /// Makes the changes. The disk of a liar is not said to be no memory: nobody relies on it.
    pub(crate) fn pour<I: Clone>(&mut self, disk: &mut Disk<I>, correct: bool) {
        for change in self.0.drain(..) {
            match change {
                Change::Append(lsn, record) => disk.append(lsn, &record),
                Change::Distrust(starts) if correct => disk.distrust(starts),
                Change::Rejoined if correct => disk.rejoined(),
                Change::Distrust(_) | Change::Rejoined => {}
            }
        }
    }
}

/// Images are not written by the process here: the world does that (`world/run.rs`).
impl DiskQueue for DiskChanges {
    fn append(&mut self, lsn: Lsn, record: &[u8]) {
        self.0.push(Change::Append(lsn, record.to_vec()));
    }

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

    fn distrust(&mut self, starts: u64) {
        self.0.push(Change::Distrust(starts));
    }

    fn rejoined(&mut self) {
        self.0.push(Change::Rejoined);
    }
}

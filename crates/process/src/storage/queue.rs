//! What a process gives to its disk: records, pages and what else is to be written. No method here waits.
//!
//! [`DiskQueue`] is the side of the process. [`LogInbox`] and [`PageJob`] are the side of the writers.

use alloc::vec::Vec;

use quorate_pbft::step::Lsn;
use quorate_service::image::CopiedPages;
use quorate_service::page::PageLabel;
use quorate_wire::{Digest, SeqNum};

use super::commit::{self, RecordKind};
use super::starts::LogState;

/// Random bits below the count of starts in an incarnation (spec §14.3).
pub const INCARNATION_RANDOM_BITS: u32 = 20;

/// Takes a replica's durable records. No method blocks.
pub trait DiskQueue: core::fmt::Debug {
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

    /// All pages that had changed up to the stable checkpoint `seq` were passed (D5). An earlier checkpoint needs the
    /// slots in `kept`: they stay until the next image at least.
    fn image(&mut self, seq: SeqNum, root: Digest, kept: Vec<u32>);

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

    /// Returns whether too many records wait for the disk: what would lead to further ones has to wait, too.
    #[inline]
    fn is_behind(&self) -> bool {
        false
    }

    /// Returns how long the slowest of a hundred writes takes, in microseconds.
    fn write_p99_us(&self) -> u32 {
        0
    }
}

/// No disk, for [`quorate_pbft::config::Durability::Memory`].
impl DiskQueue for () {
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

    fn image(&mut self, _seq: SeqNum, _root: Digest, _kept: Vec<u32>) {}

    fn image_soon(&mut self) {}

    fn distrust(&mut self, _starts: u64) {}

    fn rejoined(&mut self) {}
}

/// Which stable checkpoint a disk wants as an image: one whose log is long or full, one of a state that was fetched,
/// or, where pages need not stay in memory, any.
#[derive(Debug)]
pub struct ImageNeed {
    log_bytes_max: usize,
    /// The checkpoint of the last image that was passed to the disk.
    newest: SeqNum,
    /// An image is wanted independently of the length of the log.
    is_due: bool,
}

impl ImageNeed {
    /// Returns the need of a disk whose log may have `log_bytes_max` bytes.
    pub fn new(log_bytes_max: usize) -> Self {
        Self { log_bytes_max, newest: SeqNum(0), is_due: false }
    }

    /// Returns whether the stable checkpoint `seq` should become an image, with a log of `log_bytes`. `is_short`: there
    /// is no space on the disk, or too little in memory. A fetched state may have the number of the newest image, whose
    /// state was wrong then.
    pub fn wants(&self, seq: SeqNum, log_bytes: usize, is_short: bool) -> bool {
        self.is_due || seq > self.newest && (is_short || log_bytes > self.log_bytes_max)
    }

    /// An image was passed to the disk.
    pub fn note_image(&mut self, seq: SeqNum) {
        (self.newest, self.is_due) = (seq, false);
    }

    /// The state was fetched: the log alone cannot restore it.
    pub fn be_due(&mut self) {
        self.is_due = true;
    }

    /// Returns whether no image has been begun since.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.is_due
    }
}

/// Appends a record of the replica to the records for [`LogInbox::append`].
#[inline]
pub fn put_record(record: &[u8], records: &mut Vec<u8>) {
    commit::put(RecordKind::Replica, record, records);
}

/// A job of the log's writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogJob {
    /// Write records as one durable commit.
    Commit {
        /// The records, in the format of the log.
        records: Vec<u8>,
        /// The last of them. None: nobody is told that they are durable before a [`Self::SetState`] has been done.
        last: Option<Lsn>,
    },
    /// Record that the last commit is durable, so that damage to it is detected.
    NoteEnd,
    /// An image of this checkpoint is durable: drop the segments that it makes needless.
    Cut(SeqNum),
    /// Note whether the log is the replica's state from now on.
    SetState {
        /// The state of the log.
        state: LogState,
        /// The least number of the replica's starts, according to the others.
        starts_min: u64,
        /// The last record of a commit of which nobody was told.
        last: Option<Lsn>,
    },
    /// The replica stops, and everything has been written.
    Stop,
}

/// What waits for the log's writer.
#[derive(Debug, Default)]
pub struct LogInbox {
    records: Vec<u8>,
    last: Lsn,
    imaged: Option<SeqNum>,
    state: Option<LogState>,
    starts_min: u64,
    /// All records from before the state was set have been committed.
    is_state_next: bool,
    /// The last record of a commit that is reported when the state has been noted.
    untold: Option<Lsn>,
    stops: bool,
}

impl LogInbox {
    /// Takes records, the last of which is `last`, and leaves an empty buffer. All that wait make one commit (GC-2).
    #[inline]
    pub fn append(&mut self, records: &mut Vec<u8>, last: Lsn) {
        if self.records.is_empty() {
            core::mem::swap(&mut self.records, records);
        } else {
            self.records.extend_from_slice(records);
        }
        records.clear();
        self.last = last;
    }

    /// An image of a checkpoint is durable.
    pub fn cut_log(&mut self, seq: SeqNum) {
        self.imaged = self.imaged.max(Some(seq));
    }

    /// Takes the checkpoint of the last image, to make space on a full disk.
    pub fn take_cut(&mut self) -> Option<SeqNum> {
        self.imaged.take()
    }

    /// Sets whether the log is the replica's state. As the others know, the replica has started `starts_min` times at
    /// least. The previous records are committed first: a log that is the state has all of them. What follows is reported
    /// as durable afterwards: a replica that has rejoined votes, and a restart must know that it has (L54).
    pub fn set_state(&mut self, state: LogState, starts_min: u64) {
        (self.state, self.is_state_next) = (Some(state), false);
        self.starts_min = self.starts_min.max(starts_min);
    }

    /// Lets the writer stop when it has written everything.
    pub fn stop(&mut self) {
        self.stops = true;
    }

    /// Returns whether the writer is to stop.
    pub fn stops(&self) -> bool {
        self.stops
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.imaged.is_none() && self.state.is_none() && !self.stops
    }

    /// Takes the next job. `is_quiet`: nothing has come for a while, so that the end of the log is worth recording if
    /// it is `unnoted`. Under load there are always records, and the other jobs have their turn all the same.
    pub fn next(&mut self, is_quiet: bool, unnoted: bool) -> Option<LogJob> {
        let is_due = self.records.is_empty() || mutant!(M174, self.is_state_next, false);
        if let Some(state) = self.state.take_if(|_| is_due) {
            return Some(LogJob::SetState { state, starts_min: self.starts_min, last: self.untold.take() });
        }
        if let Some(seq) = self.imaged.take() {
            return Some(LogJob::Cut(seq));
        }
        if !self.records.is_empty() {
            let mut last = Some(self.last);
            if mutant!(M174, self.state.is_some(), false) {
                (self.untold, self.is_state_next) = (last.take(), true);
            }
            return Some(LogJob::Commit { records: core::mem::take(&mut self.records), last });
        }
        if self.stops {
            return Some(LogJob::Stop);
        }
        (is_quiet && unnoted).then_some(LogJob::NoteEnd)
    }
}

/// A job of the writer of the pages.
#[derive(Debug)]
pub enum PageJob {
    /// Write pages of a checkpoint.
    Write(CopiedPages),
    /// Write pages of a state transfer.
    Stage(CopiedPages),
    /// The transfer is over: its pages are part of the state.
    Adopt,
    /// All pages of this checkpoint, with this root, have been written: make them the state. An earlier checkpoint needs
    /// these slots: they stay.
    Seal(SeqNum, Digest, Vec<u32>),
}

/// What a job of the writer of the pages has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagesDone {
    /// Nothing that anybody waits for.
    Written,
    /// Pages of a state transfer are in these slots.
    Staged(Vec<(PageLabel, u32)>),
    /// An image is durable, and its new pages are in these slots.
    Sealed(SeqNum, Vec<(PageLabel, u32)>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(inbox: &mut LogInbox, last: u64) {
        let mut records = Vec::new();
        put_record(b"vote", &mut records);
        inbox.append(&mut records, Lsn(last));
    }

    fn commits(job: Option<&LogJob>, of: Option<u64>) -> bool {
        matches!(job, Some(LogJob::Commit { last, .. }) if *last == of.map(Lsn))
    }

    /// L54: records come all the time, and what followed the end of a rejoin is reported when that has been noted.
    #[test]
    fn l54_the_end_of_a_rejoin_is_noted_before_what_follows_it() {
        let mut inbox = LogInbox::default();
        append(&mut inbox, 1);
        assert!(commits(inbox.next(false, false).as_ref(), Some(1)));
        append(&mut inbox, 2);
        inbox.set_state(LogState::Log, 0);
        append(&mut inbox, 3);
        assert!(commits(inbox.next(false, false).as_ref(), None), "the log has to be complete");
        append(&mut inbox, 4);
        let noted = LogJob::SetState { state: LogState::Log, starts_min: 0, last: Some(Lsn(3)) };
        assert_eq!(inbox.next(false, false), Some(noted));
        assert!(commits(inbox.next(false, false).as_ref(), Some(4)));
    }

    /// L54: a state that is set again waits for the records from before, too.
    #[test]
    fn l54_a_state_that_is_set_again_waits_again() {
        let mut inbox = LogInbox::default();
        append(&mut inbox, 1);
        inbox.set_state(LogState::None, 0);
        assert!(commits(inbox.next(false, false).as_ref(), None));
        append(&mut inbox, 2);
        inbox.set_state(LogState::Log, 7);
        assert!(commits(inbox.next(false, false).as_ref(), None));
        let noted = LogJob::SetState { state: LogState::Log, starts_min: 7, last: Some(Lsn(2)) };
        assert_eq!(inbox.next(false, false), Some(noted));
        assert_eq!(inbox.next(false, false), None);
    }

    /// L54: nor does the log grow as long as records come.
    #[test]
    fn l54_the_log_is_cut_although_records_wait() {
        let mut inbox = LogInbox::default();
        inbox.cut_log(SeqNum(8));
        append(&mut inbox, 1);
        assert_eq!(inbox.next(false, false), Some(LogJob::Cut(SeqNum(8))));
        assert!(commits(inbox.next(false, false).as_ref(), Some(1)));
    }
}

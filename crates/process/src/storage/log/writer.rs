//! What is done with the log while a replica runs, one job at a time. A job waits for the disk, so the node runs it
//! on a thread; the simulator draws how long it takes.

use quorate_pbft::step::Lsn;
use quorate_wire::SeqNum;

use super::super::io::{DiskError, DiskIo};
use super::super::queue::LogJob;
use super::super::starts::{LogState, Starts, StartsFile};
use super::DiskLog;

/// The log of a running replica, with the count of its starts.
#[derive(Debug)]
pub struct LogWriter<D: DiskIo> {
    log: DiskLog<D>,
    starts: Starts,
    file: StartsFile<D>,
    /// The state of the log while it is the replica's state.
    running: LogState,
    /// The last segment whose first commit the count of starts knows.
    noted_segment: u64,
    /// The log is to become shorter, and there was no space to note it.
    cut_to: Option<SeqNum>,
}

impl<D: DiskIo> LogWriter<D> {
    /// Begins to write a log. The log exists, and its existence is recorded, before anything is acknowledged.
    pub(in crate::storage) fn start(
        mut log: DiskLog<D>,
        starts: Starts,
        file: StartsFile<D>,
        running: LogState,
    ) -> Result<Self, DiskError> {
        log.commit(&[])?;
        let mut writer = Self { log, starts, file, running, noted_segment: 0, cut_to: None };
        writer.note(starts.state)?;
        Ok(writer)
    }

    /// Does a job. Returns the last record that is known to be durable by it.
    ///
    /// # Errors
    ///
    /// There is no space: the same job can be run again. Any other error is final.
    pub fn run(&mut self, job: &LogJob) -> Result<Option<Lsn>, DiskError> {
        match job {
            LogJob::Commit { records, last } => {
                self.log.commit(records)?;
                self.note_segment()?;
                return Ok(*last);
            }
            LogJob::NoteEnd => {
                self.log.commit(&[])?;
                self.note_segment()?;
            }
            LogJob::Cut(seq) => _ = self.cut(*seq)?,
            LogJob::SetState { state, starts_min, last } => {
                self.starts.count = self.starts.count.max(*starts_min);
                self.note(if *state == LogState::Log { self.running } else { *state })?;
                return Ok(*last);
            }
            LogJob::Stop => {
                let is_complete = self.starts.state == self.running;
                self.note(if is_complete { LogState::Clean } else { self.starts.state })?;
            }
        }
        Ok(None)
    }

    /// Makes space on a full disk, if an image has made a part of the log needless: one of the checkpoint `imaged`, or
    /// an earlier one. Returns whether there may be some.
    ///
    /// # Errors
    ///
    /// The disk has failed.
    pub fn make_room(&mut self, imaged: Option<SeqNum>) -> Result<bool, DiskError> {
        match imaged.max(self.cut_to) {
            None => Ok(false),
            Some(seq) => self.cut(seq),
        }
    }

    /// Returns the size of the log in bytes.
    pub fn bytes(&self) -> usize {
        self.log.bytes()
    }

    /// Drops what an image of a checkpoint makes needless. Returns whether it could: that takes some space, too.
    fn cut(&mut self, seq: SeqNum) -> Result<bool, DiskError> {
        match self.log.trim(seq) {
            Ok(()) => {
                self.cut_to = None;
                // If the cut began a segment and all of it is lost, segments in front of the others are missing, too.
                self.noted_segment = self.log.last_segment();
                Ok(true)
            }
            Err(error) if error.is_full() => {
                self.cut_to = Some(seq);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that the log is durable up to the beginning of its last segment: otherwise a loss of that whole segment
    /// would go unnoticed.
    fn note_segment(&mut self) -> Result<(), DiskError> {
        if self.noted_segment == self.log.last_segment() {
            return Ok(());
        }
        // The commit is durable, so its job must not be run again.
        self.note(self.starts.state).map_err(DiskError::into_final)
    }

    /// Writes the file of starts.
    fn note(&mut self, state: LogState) -> Result<(), DiskError> {
        (self.starts.state, self.starts.known) = (state, self.log.known());
        self.file.write(self.starts)?;
        self.noted_segment = self.log.last_segment();
        Ok(())
    }
}

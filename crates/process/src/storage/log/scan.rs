//! Reading a log: the chain of its commits, and what they say of commits that are not there.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::super::commit::{self, BLOCK, Commit, Head, RecordKind};
use super::super::io::{DiskError, DiskFile as _, DiskIo};
use super::super::owner::{LOG, Owner};
use super::super::starts::Starts;
use super::{DiskLog, Lasting, Segment, key, name};

/// The result of scanning a log.
#[derive(Debug)]
pub(in crate::storage) struct Scan {
    segments: Vec<Segment>,
    lasting: Lasting,
    records: Vec<Vec<u8>>,
    /// The last commit of the chain.
    reached: u64,
    link: [u8; 8],
    /// The end of the chain: the segment, and the offset in it.
    end: Option<(usize, usize)>,
    /// The last commit that is known to be durable.
    promised: u64,
    /// The highest number of starts in a commit.
    starts: u64,
    /// The first segment that is needed.
    needed: u64,
    /// Whether there is data after the end, which was being written.
    cut: bool,
    /// Why a segment cannot be read.
    unreadable: Option<String>,
    segment_bytes: usize,
}

impl Scan {
    /// Scans the log of a life.
    pub(in crate::storage) fn of(
        disk: &impl DiskIo,
        segments: &[(u64, String)],
        owner: &Owner,
        life: u64,
        segment_bytes: usize,
    ) -> Result<Self, DiskError> {
        let first = segments.first().map_or(1, |(first, _)| *first);
        let mut scan = Self {
            segments: Vec::new(),
            lasting: Lasting::default(),
            records: Vec::new(),
            reached: first.saturating_sub(1),
            link: [0; 8],
            end: None,
            promised: 0,
            starts: 0,
            needed: 1,
            cut: false,
            unreadable: None,
            segment_bytes,
        };
        let key = key(owner, life);
        let mut broken = false;
        for (index, (first, name)) in segments.iter().enumerate() {
            let bytes = match disk.read(name) {
                Err(error) if error.is_unreadable() => {
                    scan.unreadable = Some(error.to_string());
                    Vec::new()
                }
                read => read?,
            };
            scan.segments.push(Segment { first: *first, name: name.clone(), max_seq: 0 });
            broken |= *first != scan.reached + 1;
            let mut at = 0;
            while !broken
                && let Some(commit) = bytes.get(at..).and_then(|rest| commit::decode(&key, rest))
                && scan.follows(&commit)
            {
                scan.take(index, &commit);
                at += commit.size;
                scan.end = Some((index, at));
            }
            // One that was being written, of which a part is here.
            scan.cut |= !broken && commit::number(&bytes[at.min(bytes.len())..]) == Some(scan.reached + 1);
            // Complete commits outside the chain: from earlier use of the segment, or after a gap.
            for block in (at..bytes.len()).step_by(BLOCK) {
                if let Some(stray) = commit::decode(&key, &bytes[block..]) {
                    scan.cut |= stray.head.number > scan.reached;
                    scan.notice(&stray.head);
                }
            }
        }
        Ok(scan)
    }

    fn follows(&self, commit: &Commit<'_>) -> bool {
        let is_first = self.end.is_none() && self.reached > 0;
        commit.head.number == self.reached + 1 && (is_first || commit.head.before == self.link)
    }

    fn take(&mut self, index: usize, commit: &Commit<'_>) {
        (self.reached, self.link) = (commit.head.number, commit.link);
        self.notice(&commit.head);
        for (kind, bytes) in commit.records() {
            match kind {
                RecordKind::Replica => {
                    let seq = self.lasting.note(bytes);
                    let segment = &mut self.segments[index];
                    segment.max_seq = segment.max_seq.max(seq);
                    self.records.push(bytes.to_vec());
                }
                RecordKind::Trim => {
                    if let Ok(first) = bytes.try_into() {
                        self.needed = u64::from_le_bytes(first);
                    }
                }
            }
        }
    }

    fn notice(&mut self, head: &Head) {
        self.promised = self.promised.max(head.known);
        self.starts = self.starts.max(head.starts);
    }

    /// Returns whether all acknowledged records are there; if not, what is missing.
    pub(in crate::storage) fn verdict(&self, starts: &Starts) -> Result<(), String> {
        if let Some(why) = &self.unreadable {
            return Err(why.clone());
        }
        let promised = self.promised.max(starts.known);
        if self.starts > starts.count {
            return Err(format!(
                "the log knows of start {}, the count says {}: it is older",
                self.starts, starts.count
            ));
        }
        if self.segments.first().is_some_and(|segment| segment.first > self.needed) {
            return Err(format!("segment {} of the log is missing", self.needed));
        }
        if mutant!(M142, self.reached < promised, false) || self.end.is_none() {
            return Err(format!(
                "the log ends at commit {}, and {promised} had been durable: damaged or missing",
                self.reached
            ));
        }
        Ok(())
    }

    /// Returns whether this is what a first start leaves that was cut off: nothing was written but the first commit.
    pub(in crate::storage) fn is_unborn(&self) -> bool {
        self.unreadable.is_none() && self.records.is_empty() && self.reached <= 1 && self.promised == 0
    }

    /// Returns whether an incomplete tail, not acknowledged to anyone, was cut.
    pub(in crate::storage) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the records. Changes nothing on the disk.
    pub(in crate::storage) fn into_records(self) -> Vec<Vec<u8>> {
        self.records
    }

    /// Returns the log, ready for writing, and its records. Removes segments after its end.
    pub(in crate::storage) fn finish<D: DiskIo>(
        mut self,
        disk: D,
        owner: &Owner,
        life: u64,
        starts: u64,
    ) -> Result<(DiskLog<D>, Vec<Vec<u8>>), DiskError> {
        let mut log = DiskLog::new(disk, owner, life, starts, self.segment_bytes);
        if let Some((index, at)) = self.end {
            for segment in self.segments.drain(index + 1..) {
                log.disk.remove(&segment.name)?;
            }
            let file = log.disk.open(&self.segments[index].name)?;
            let room = file.len()?;
            log.current = Some((file, at, usize::try_from(room).unwrap_or(usize::MAX)));
        }
        let files = log.disk.list(LOG)?.into_iter();
        log.spares = files.filter(|file| file.starts_with("spare-")).map(|file| name(&file)).collect();
        (log.number, log.link, log.known) = (self.reached, self.link, self.reached);
        (log.segments, log.lasting) = (self.segments, self.lasting);
        Ok((log, self.records))
    }
}

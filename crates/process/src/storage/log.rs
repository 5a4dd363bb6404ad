//! The write-ahead log: consecutive commits in segments of a fixed size.
//!
//! Each commit names the previous one, and the last one that was durable when it was written. A scan follows this
//! chain from its beginning to the first missing commit. Then it reads all remaining blocks: if a commit, or the
//! count of starts, refers to a durable commit beyond the end of the chain, acknowledged records are missing.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use quorate_pbft::record::{self, Keep};
use quorate_wire::{SeqNum, ViewNum};

use super::commit::{self, Head, RecordKind};
use super::io::{DiskError, DiskFile, DiskIo};
use super::owner::{LOG, Owner, STARTS};

pub(super) mod scan;
pub mod writer;

/// Number of unneeded segments that are kept for reuse, because their space is already allocated.
const SPARES_MAX: usize = 2;

/// Returns the segments of the log, in order.
pub(super) fn segments(disk: &impl DiskIo) -> Result<Vec<(u64, String)>, DiskError> {
    let mut found = Vec::new();
    for file in disk.list(LOG)? {
        if let Some(first) = file.strip_suffix(".seg").and_then(|first| first.parse().ok()) {
            found.push((first, name(&file)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns where the commits of a segment begin, as long as each has the next number; from earlier use of the segment,
/// others may follow. Nobody checks whether they are damaged: this is for those who damage them.
pub fn commits(segment: &[u8]) -> Vec<usize> {
    let (mut found, mut next) = (Vec::new(), None);
    for at in (0..segment.len()).step_by(commit::BLOCK) {
        if let Some(number) =
            commit::number(&segment[at..]).filter(|number| next.is_none_or(|n| n == *number))
        {
            found.push(at);
            next = number.checked_add(1);
        }
    }
    found
}

/// Makes what is in the log durable before it is read. Each commit is durable before the next one is written, so only
/// the last one may not be. Its segment is the last one, or the next one has been begun.
pub(super) fn settle(disk: &impl DiskIo, segments: &[(u64, String)]) -> Result<(), DiskError> {
    for (_, name) in segments.iter().rev().take(2) {
        disk.settle(name)?;
    }
    if segments.is_empty() { Ok(()) } else { disk.sync_dir(LOG) }
}

/// Removes every segment.
pub(super) fn clear(disk: &impl DiskIo) -> Result<(), DiskError> {
    for file in disk.list(LOG)?.iter().filter(|file| *file != STARTS) {
        disk.remove(&name(file))?;
    }
    disk.sync_dir(LOG)
}

/// Returns the name of a file of the log.
fn name(file: &str) -> String {
    format!("{LOG}/{file}")
}

/// The key of a log's checksums.
fn key(owner: &Owner, life: u64) -> [u8; 32] {
    owner.key("quorate 2026 storage log", life)
}

/// One file of the log.
#[derive(Debug)]
struct Segment {
    first: u64,
    name: String,
    /// The highest number that a record in it refers to.
    max_seq: u64,
}

/// The newest records of the kinds that outlive every image: they are copied when their segment is removed.
#[derive(Debug, Default)]
struct Lasting {
    view: Option<(ViewNum, Vec<u8>)>,
    stable: Option<(SeqNum, Vec<u8>)>,
    seen: Option<Vec<u8>>,
}

impl Lasting {
    /// Remembers a record, and returns the number that it refers to, if an image replaces it.
    fn note(&mut self, bytes: &[u8]) -> u64 {
        fn is_newest<N: Ord>(held: Option<&(N, Vec<u8>)>, new: &N) -> bool {
            held.is_none_or(|(held, _)| held <= new)
        }
        match record::keep(bytes) {
            Some(Keep::UntilStable(seq)) => return seq.0,
            Some(Keep::NewestStable(seq)) if is_newest(self.stable.as_ref(), &seq) => {
                self.stable = Some((seq, bytes.to_vec()));
            }
            Some(Keep::NewestView(view)) if is_newest(self.view.as_ref(), &view) => {
                self.view = Some((view, bytes.to_vec()));
            }
            Some(Keep::NewestSeen) => self.seen = Some(bytes.to_vec()),
            Some(Keep::NewestStable(_) | Keep::NewestView(_)) | None => {}
        }
        0
    }
}

/// The log, for writing. Belongs to one thread.
#[derive(Debug)]
pub(super) struct DiskLog<D: DiskIo> {
    disk: D,
    key: [u8; 32],
    starts: u64,
    segment_bytes: usize,
    segments: Vec<Segment>,
    /// The last segment's file, the offset of the next commit, and the segment's size.
    current: Option<(D::File, usize, usize)>,
    spares: Vec<String>,
    /// The last commit written.
    number: u64,
    link: [u8; 8],
    /// The last commit that is durable.
    known: u64,
    lasting: Lasting,
    buffer: Vec<u8>,
}

impl<D: DiskIo> DiskLog<D> {
    /// Returns a log without commits.
    pub(super) fn new(disk: D, owner: &Owner, life: u64, starts: u64, segment_bytes: usize) -> Self {
        Self {
            disk,
            key: key(owner, life),
            starts,
            segment_bytes,
            segments: Vec::new(),
            current: None,
            spares: Vec::new(),
            number: 0,
            link: [0; 8],
            known: 0,
            lasting: Lasting::default(),
            buffer: Vec::new(),
        }
    }

    /// Writes records, in the format of [`commit::put`], as one durable commit.
    pub(super) fn commit(&mut self, records: &[u8]) -> Result<(), DiskError> {
        let size = commit::size(records.len());
        if self.current.as_ref().is_none_or(|(_, at, room)| at + size > *room) {
            self.begin_segment(self.segment_bytes.max(size))?;
        }
        self.commit_here(records, size)
    }

    /// Writes a commit of `size` bytes where the last one ends: there is room.
    fn commit_here(&mut self, records: &[u8], size: usize) -> Result<(), DiskError> {
        let head =
            Head { number: self.number + 1, known: self.known, starts: self.starts, before: self.link };
        let link = commit::encode(&self.key, &head, records, &mut self.buffer);
        let (Some((file, at, _)), Some(segment)) = (&mut self.current, self.segments.last_mut()) else {
            unreachable!("a segment has been begun")
        };
        let place = u64::try_from(*at).unwrap_or(u64::MAX);
        // The space was allocated with the segment, but not all file systems guarantee it: the disk may be full.
        file.write_at(&self.buffer, place)?;
        // Never retried: after a failed sync the content of the disk is unknown (GC-4).
        mutant!(M141, file.sync(), Ok(())).map_err(DiskError::into_final)?;
        *at += size;
        (self.number, self.known, self.link) = (head.number, head.number, link);
        if let Some(commit) = commit::decode(&self.key, &self.buffer) {
            let replicas = commit.records().filter(|(kind, _)| *kind == RecordKind::Replica);
            for (_, bytes) in replicas {
                segment.max_seq = segment.max_seq.max(self.lasting.note(bytes));
            }
        }
        Ok(())
    }

    /// Begins a segment with room for `room` bytes.
    fn begin_segment(&mut self, room: usize) -> Result<(), DiskError> {
        let first = self.number + 1;
        let name = name(&format!("{first:020}.seg"));
        // The first commit of a segment may have found no space. Then the segment has this name, and is still empty.
        let is_begun = self.segments.last().is_some_and(|segment| segment.first == first);
        if let Some(spare) = self.spares.last().filter(|_| !is_begun) {
            self.disk.rename(spare, &name)?;
            self.spares.pop();
        }
        let file = self.disk.open(&name)?;
        if let Err(error) = file.allocate(u64::try_from(room).unwrap_or(u64::MAX)) {
            if !is_begun {
                // A file with this name that the log does not know of would one day be a gap in the log.
                self.disk.remove(&name).map_err(DiskError::into_final)?;
            }
            return Err(error);
        }
        let synced = file.sync_all().and_then(|()| mutant!(M153, self.disk.sync_dir(LOG), Ok(())));
        synced.map_err(DiskError::into_final)?;
        if !is_begun {
            self.segments.push(Segment { first, name, max_seq: 0 });
        }
        self.current = Some((file, 0, room));
        Ok(())
    }

    /// Drops the segments that an image of the checkpoint `imaged` makes needless (D6): those with records about the
    /// stable checkpoint and below. The image may be of a state that was fetched and is not known to be stable.
    pub(super) fn trim(&mut self, imaged: SeqNum) -> Result<(), DiskError> {
        let stable = self.lasting.stable.as_ref().map_or(SeqNum(0), |(seq, _)| *seq).min(imaged);
        let last = self.segments.len().saturating_sub(1);
        let count = self.segments[..last].iter().take_while(|segment| segment.max_seq <= stable.0).count();
        let Some(needed) = self.segments.get(count).map(|segment| segment.first).filter(|_| count > 0) else {
            return Ok(());
        };
        let mut records = Vec::new();
        let Lasting { view, stable, seen } = &self.lasting;
        let stable = stable.as_ref().map(|(_, bytes)| bytes);
        let view = mutant!(M151, view.as_ref().map(|(_, bytes)| bytes), None);
        for bytes in [view, stable, seen.as_ref()].into_iter().flatten() {
            commit::put(RecordKind::Replica, bytes, &mut records);
        }
        commit::put(RecordKind::Trim, &needed.to_le_bytes(), &mut records);
        let size = commit::size(records.len());
        match self.commit(&records) {
            // A segment has no room, so this is in one of its own: it makes room for others.
            Err(error) if error.is_full() => {
                self.begin_segment(size)?;
                self.commit_here(&records, size)?;
            }
            done => done?,
        }
        for segment in self.segments.drain(..count) {
            let free = (0..SPARES_MAX).map(|i| name(&format!("spare-{i}")));
            let gone = match free.into_iter().find(|spare| !self.spares.contains(spare)) {
                Some(spare) => {
                    let gone = self.disk.rename(&segment.name, &spare);
                    self.spares.push(spare);
                    gone
                }
                None => self.disk.remove(&segment.name),
            };
            gone.map_err(DiskError::into_final)?;
        }
        self.disk.sync_dir(LOG).map_err(DiskError::into_final)
    }

    /// Returns the last commit that is durable.
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// Returns the first commit of the last segment.
    pub(super) fn last_segment(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.first)
    }

    /// Returns the size of all segments in bytes.
    pub(super) fn bytes(&self) -> usize {
        let full = self.segments.len().saturating_sub(1) * self.segment_bytes;
        full + self.current.as_ref().map_or(0, |(_, at, _)| *at)
    }
}

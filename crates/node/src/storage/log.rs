//! The write-ahead log: consecutive commits in segments of a fixed size.
//!
//! Each commit names the previous one, and the last one that was durable when it was written. A scan follows this
//! chain from its beginning to the first missing commit. Then it reads all remaining blocks: if a commit, or the
//! count of starts, refers to a durable commit beyond the end of the chain, acknowledged records are missing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use quorate_pbft::record::{self, Record};
use quorate_wire::SeqNum;

use super::commit::{self, BLOCK, Commit, Head, RecordKind};
use super::file::{DiskFile, is_full};
use super::owner::{Owner, failed, sync_dir};
use super::starts::Starts;
use crate::trouble::Trouble;

/// Number of unneeded segments that are kept for reuse, because their space is already allocated.
const SPARES_MAX: usize = 2;

/// Returns the segments in a directory, in order.
pub(super) fn segments(dir: &Path) -> Result<Vec<(u64, PathBuf)>, Trouble> {
    let mut found = Vec::new();
    for path in files(dir)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if let Some(first) = name.strip_suffix(".seg").and_then(|first| first.parse().ok()) {
            found.push((first, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the files in a directory; none if it does not exist.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, Trouble> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Trouble::unreadable(dir, &error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<Result<_, _>>().map_err(|error| Trouble::unreadable(dir, &error))
}

/// Removes every segment.
pub(super) fn clear(dir: &Path) -> Result<(), Trouble> {
    for path in files(dir)?.iter().filter(|path| !path.ends_with("starts")) {
        fs::remove_file(path).map_err(|error| Trouble::unwritable(path, &error))?;
    }
    sync_dir(dir)
}

/// The key of a log's checksums.
fn key(owner: &Owner, life: u64) -> [u8; 32] {
    owner.key("quorate 2026 storage log", life)
}

/// One file of the log.
#[derive(Debug)]
struct Segment {
    first: u64,
    path: PathBuf,
    /// The highest number that a record in it refers to.
    max_seq: u64,
}

/// The newest records of the kinds that outlive every image: they are copied when their segment is removed.
#[derive(Debug, Default)]
struct Lasting {
    view: Option<Vec<u8>>,
    stable: Option<(SeqNum, Vec<u8>)>,
    seen: Option<Vec<u8>>,
}

impl Lasting {
    /// Remembers a record, and returns the number that it refers to, if an image replaces it.
    fn note(&mut self, bytes: &[u8]) -> u64 {
        match Record::decode(bytes) {
            Ok(
                Record::PrePrepared { seq, .. }
                | Record::Prepared { seq, .. }
                | Record::PreparedAgain { seq, .. }
                | Record::Batch { seq, .. }
                | Record::Floor { seq }
                | Record::Committed { seq, .. },
            ) => return seq.0,
            Ok(Record::Stable { seq, .. }) => {
                if self.stable.as_ref().is_none_or(|(newest, _)| *newest <= seq) {
                    self.stable = Some((seq, bytes.to_vec()));
                }
            }
            Ok(Record::Seen { .. }) => self.seen = Some(bytes.to_vec()),
            Ok(Record::ViewChange { view, .. } | Record::NewView { view, .. }) => {
                let newest = self.view.as_deref().and_then(record::view_of);
                if newest.is_none_or(|newest| newest <= view) {
                    self.view = Some(bytes.to_vec());
                }
            }
            Err(_) => {}
        }
        0
    }
}

/// The result of scanning a log.
#[derive(Debug)]
pub(super) struct Scan {
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
    segment_bytes: usize,
}

impl Scan {
    /// Scans the log of a life.
    pub(super) fn of(
        segments: &[(u64, PathBuf)],
        owner: &Owner,
        life: u64,
        segment_bytes: usize,
    ) -> Result<Self, Trouble> {
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
            segment_bytes,
        };
        let key = key(owner, life);
        let mut broken = false;
        for (index, (first, path)) in segments.iter().enumerate() {
            let bytes = fs::read(path).map_err(|error| Trouble::unreadable(path, &error))?;
            scan.segments.push(Segment { first: *first, path: path.clone(), max_seq: 0 });
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
    pub(super) fn verdict(&self, starts: &Starts) -> Result<(), String> {
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
        if self.reached < promised || self.end.is_none() {
            return Err(format!(
                "the log ends at commit {}, and {promised} had been durable: damaged or missing",
                self.reached
            ));
        }
        Ok(())
    }

    /// Returns whether an incomplete tail, not acknowledged to anyone, was cut.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the records. Changes nothing on the disk.
    pub(super) fn into_records(self) -> Vec<Vec<u8>> {
        self.records
    }

    /// Returns the log, ready for writing, and its records. Removes segments after its end.
    pub(super) fn finish(
        mut self,
        dir: &Path,
        owner: &Owner,
        life: u64,
        starts: u64,
    ) -> Result<(Log, Vec<Vec<u8>>), Trouble> {
        let mut log = Log::new(dir, owner, life, starts, self.segment_bytes);
        if let Some((index, at)) = self.end {
            for segment in self.segments.drain(index + 1..) {
                fs::remove_file(&segment.path).map_err(|error| Trouble::unwritable(&segment.path, &error))?;
            }
            let path = &self.segments[index].path;
            let file = DiskFile::open(path).map_err(|error| Trouble::unwritable(path, &error))?;
            let room = file.len().map_err(|error| Trouble::unreadable(path, &error))?;
            log.current = Some((file, at, usize::try_from(room).unwrap_or(usize::MAX)));
        }
        log.spares = files(dir)?.into_iter().filter(|path| is_spare(path)).collect();
        (log.number, log.link, log.known) = (self.reached, self.link, self.reached);
        (log.segments, log.lasting) = (self.segments, self.lasting);
        Ok((log, self.records))
    }
}

/// Why a write failed.
#[derive(Debug)]
pub(super) enum LogError {
    /// The disk is full. The write can be repeated later.
    Full,
    /// The disk has failed: its content is unknown.
    Failed(Trouble),
}

/// The log, for writing. Belongs to one thread.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    key: [u8; 32],
    starts: u64,
    segment_bytes: usize,
    segments: Vec<Segment>,
    /// The last segment's file, the offset of the next commit, and the segment's size.
    current: Option<(DiskFile, usize, usize)>,
    spares: Vec<PathBuf>,
    /// The last commit written.
    number: u64,
    link: [u8; 8],
    /// The last commit that is durable.
    known: u64,
    lasting: Lasting,
    buffer: Vec<u8>,
}

impl Log {
    /// Returns a log without commits.
    pub(super) fn new(dir: &Path, owner: &Owner, life: u64, starts: u64, segment_bytes: usize) -> Self {
        Self {
            dir: dir.to_path_buf(),
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

    /// Writes records, in the format of [`commit::put`], as one durable commit. Returns whether it began a segment.
    pub(super) fn commit(&mut self, records: &[u8]) -> Result<bool, LogError> {
        let size = commit::size(records.len());
        let fits = self.current.as_ref().is_some_and(|(_, at, room)| at + size <= *room);
        if !fits {
            self.begin_segment(self.segment_bytes.max(size))?;
        }
        self.commit_here(records, size)?;
        Ok(!fits)
    }

    /// Writes a commit of `size` bytes where the last one ends: there is room.
    fn commit_here(&mut self, records: &[u8], size: usize) -> Result<(), LogError> {
        let head =
            Head { number: self.number + 1, known: self.known, starts: self.starts, before: self.link };
        let link = commit::encode(&self.key, &head, records, &mut self.buffer);
        let (Some((file, at, _)), Some(segment)) = (&mut self.current, self.segments.last_mut()) else {
            unreachable!("a segment has been begun")
        };
        let failed = |what, error| LogError::Failed(failed(&segment.path, what, &error));
        let place = u64::try_from(*at).unwrap_or(u64::MAX);
        if let Err(error) = file.write_at(&self.buffer, place) {
            // The space was allocated with the segment, but not all file systems guarantee it.
            return Err(if is_full(&error) { LogError::Full } else { failed("writing", error) });
        }
        // Never retried: after a failed sync the content of the disk is unknown (GC-4).
        file.sync().map_err(|error| failed("fsync", error))?;
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
    fn begin_segment(&mut self, room: usize) -> Result<(), LogError> {
        let first = self.number + 1;
        let path = self.dir.join(format!("{first:020}.seg"));
        let full = |path: &Path, error: std::io::Error| {
            if is_full(&error) { LogError::Full } else { LogError::Failed(failed(path, "writing", &error)) }
        };
        if let Some(spare) = self.spares.pop() {
            fs::rename(&spare, &path).map_err(|error| full(&path, error))?;
        }
        let file = DiskFile::open(&path).map_err(|error| full(&path, error))?;
        if let Err(error) = file.allocate(room) {
            let _ = fs::remove_file(&path);
            return Err(full(&path, error));
        }
        let synced = file.sync_all().map_err(|error| LogError::Failed(failed(&path, "fsync", &error)));
        synced.and_then(|()| sync_dir(&self.dir).map_err(LogError::Failed))?;
        self.segments.push(Segment { first, path, max_seq: 0 });
        self.current = Some((file, 0, room));
        Ok(())
    }

    /// Drops the segments that an image of the checkpoint `imaged` makes needless (D6): those with records about the
    /// stable checkpoint and below. The image may be of a state that was fetched and is not known to be stable.
    pub(super) fn trim(&mut self, imaged: SeqNum) -> Result<(), LogError> {
        let stable = self.lasting.stable.as_ref().map_or(SeqNum(0), |(seq, _)| *seq).min(imaged);
        let last = self.segments.len().saturating_sub(1);
        let count = self.segments[..last].iter().take_while(|segment| segment.max_seq <= stable.0).count();
        let Some(needed) = self.segments.get(count).map(|segment| segment.first).filter(|_| count > 0) else {
            return Ok(());
        };
        let mut records = Vec::new();
        let Lasting { view, stable, seen } = &self.lasting;
        let stable = stable.as_ref().map(|(_, bytes)| bytes);
        for bytes in [view.as_ref(), stable, seen.as_ref()].into_iter().flatten() {
            commit::put(RecordKind::Replica, bytes, &mut records);
        }
        commit::put(RecordKind::Trim, &needed.to_le_bytes(), &mut records);
        let size = commit::size(records.len());
        match self.commit(&records) {
            // A segment has no room, so this is in one of its own: it makes room for others.
            Err(LogError::Full) => {
                self.begin_segment(size)?;
                self.commit_here(&records, size)?;
            }
            done => _ = done?,
        }
        for segment in self.segments.drain(..count) {
            let free = (0..SPARES_MAX).map(|i| self.dir.join(format!("spare-{i}")));
            let gone = match free.into_iter().find(|spare| !self.spares.contains(spare)) {
                Some(spare) => {
                    let gone = fs::rename(&segment.path, &spare);
                    self.spares.push(spare);
                    gone
                }
                None => fs::remove_file(&segment.path),
            };
            gone.map_err(|error| LogError::Failed(failed(&segment.path, "removing", &error)))?;
        }
        sync_dir(&self.dir).map_err(LogError::Failed)
    }

    /// Returns the last commit that is durable.
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// Returns the size of all segments in bytes.
    pub(super) fn bytes(&self) -> usize {
        let full = self.segments.len().saturating_sub(1) * self.segment_bytes;
        full + self.current.as_ref().map_or(0, |(_, at, _)| *at)
    }
}

fn is_spare(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("spare-"))
}

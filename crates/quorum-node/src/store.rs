//! The disk of a server (`docs/storage-format-registers.md`): one log of what it holds, written before it is promised (§2.5).
//!
//! ```text
//! DIR/state/meta     what has become of the disk, and the generation of the log
//! DIR/state/log.G    a header, and batches: each was made durable before the next one was written
//! ```
//!
//! When the log is much longer than what the server holds, the log of the next generation is written beside it, and meta
//! moves to that. A batch that is cut off at the end was promised to nobody. Damage anywhere else means that promises are
//! lost: the server then begins as one that lost its disk.

mod log;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use quorate_node::NodeError;
use quorate_node::error::NodeErrorKind;
use quorate_quorum::access::ACCESS;
use quorate_quorum::{ObjectId, Past};

use self::log::{Read, StoreLog};

pub use self::log::Owner;

/// What is on disk before a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// What the answer promises.
    Sync,
    /// It is written without waiting: a server that was killed counts as one that lost its disk.
    Async,
    /// Nothing: a server that stopped counts as one that lost its disk.
    Memory,
}

/// Bytes from which on a batch is written.
const BATCH_BYTES: usize = 4 << 20;

/// A server's disk.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    owner: Owner,
    durability: Durability,
    past: Past,
    generation: u64,
    log: Option<StoreLog>,
    /// What is kept of each object.
    live: BTreeMap<ObjectId, Kept>,
    live_bytes: usize,
    /// Objects that have changed since the last batch, each once.
    changed: Vec<ObjectId>,
    /// The bytes that they had before.
    changed_bytes: usize,
    /// How many more they have at most.
    growth: usize,
    /// The body of a batch.
    batch: Vec<u8>,
    log_bytes_max: usize,
}

/// What is kept of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    bytes: usize,
    /// How many more it has at most since it has changed.
    growth: usize,
    is_changed: bool,
}

/// What a store was opened with.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What has become of the disk.
    pub past: Past,
    /// What it has, to be loaded.
    pub objects: BTreeMap<ObjectId, Vec<u8>>,
    /// Why the disk counts as lost, if it was found now.
    pub why: Option<&'static str>,
}

fn state(dir: &Path) -> PathBuf {
    dir.join("state")
}

/// Creates the disk of a new server: empty, and whole.
///
/// # Errors
///
/// It cannot be written.
pub fn create(dir: &Path, owner: Owner) -> Result<(), NodeError> {
    let place = state(dir);
    fs::create_dir_all(&place).map_err(|error| unwritable(&place, &error))?;
    write_meta(&place, owner, Past::Whole, 0)
}

fn unwritable(path: &Path, error: &io::Error) -> NodeError {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let kind = if full { NodeErrorKind::Disk } else { NodeErrorKind::Unwritable };
    NodeError::new(kind, format!("cannot be written: {error}")).in_file(path)
}

const TITLE: &str = "quorate register state 1";

fn word(past: Past) -> &'static str {
    match past {
        Past::Whole => "whole",
        Past::Repaired => "repaired",
        Past::Lost => "lost",
    }
}

fn meta_text(owner: Owner, past: Past, generation: u64) -> String {
    let cluster = owner.cluster.0.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let (epoch, id) = (owner.epoch, owner.id.0);
    let said = format!(
        "{TITLE}\ncluster {cluster}\nepoch {epoch}\nserver {id}\npast {}\ngeneration {generation}\n",
        word(past)
    );
    let check = blake3::hash(said.as_bytes()).to_hex();
    format!("{said}check {check}\n")
}

fn write_meta(place: &Path, owner: Owner, past: Past, generation: u64) -> Result<(), NodeError> {
    let (path, draft) = (place.join("meta"), place.join("meta.new"));
    let write = || {
        let mut file = File::create(&draft)?;
        file.write_all(meta_text(owner, past, generation).as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(place)?.sync_all()
    };
    write().map_err(|error| unwritable(&path, &error))
}

/// Appends what is kept of an object to a batch. Returns its length.
fn put_object(batch: &mut Vec<u8>, object: &ObjectId, saved: impl Fn(&ObjectId, &mut Vec<u8>)) -> usize {
    batch.extend_from_slice(&object.0);
    let at = batch.len();
    batch.extend_from_slice(&[0; 4]);
    saved(object, batch);
    let len = batch.len() - at - 4;
    if let Some(place) = batch.get_mut(at..at + 4) {
        place.copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    }
    len
}

/// Reads `meta`. None: it is missing, damaged, or of another owner.
fn read_meta(place: &Path, owner: Owner) -> Option<(Past, u64)> {
    let text = fs::read_to_string(place.join("meta")).ok()?;
    let generation = text.lines().find_map(|line| line.strip_prefix("generation "))?.parse().ok()?;
    let all = [Past::Whole, Past::Repaired, Past::Lost];
    let past = all.into_iter().find(|past| meta_text(owner, *past, generation) == text)?;
    Some((past, generation))
}

impl Store {
    /// Opens the disk of a server in `dir`, and reads it.
    ///
    /// # Errors
    ///
    /// It cannot be read or written. Damage is no error: the disk then counts as lost.
    pub fn open(
        dir: &Path,
        owner: Owner,
        durability: Durability,
        log_bytes_max: usize,
    ) -> Result<Opened, NodeError> {
        let place = state(dir);
        fs::create_dir_all(&place).map_err(|error| unwritable(&place, &error))?;
        let (mut past, generation, mut why) = match read_meta(&place, owner) {
            Some((past, generation)) => (past, generation, None),
            None => (Past::Lost, 0, Some("there is no state of this server in this epoch")),
        };
        let mut store = Self {
            dir: place,
            owner,
            durability,
            past,
            generation,
            log: None,
            live: BTreeMap::new(),
            live_bytes: 0,
            changed: Vec::new(),
            changed_bytes: 0,
            growth: 0,
            batch: Vec::new(),
            log_bytes_max,
        };
        let mut objects = BTreeMap::new();
        if why.is_none() && generation > 0 {
            match log::read(&store.log_path(generation), owner, generation, &mut objects) {
                Ok(Read::Whole(log)) => store.log = Some(log),
                Ok(Read::Damaged(says)) => why = Some(says),
                Err(error) => {
                    return Err(NodeError::new(
                        NodeErrorKind::Unreadable,
                        format!("cannot be read: {error}"),
                    )
                    .in_file(&store.log_path(generation)));
                }
            }
        }
        if why.is_some() {
            past = Past::Lost;
            objects.clear();
            store.generation = generation;
        }
        for (object, saved) in &objects {
            store.live.insert(*object, Kept { bytes: saved.len(), ..Kept::default() });
            store.live_bytes += saved.len();
        }
        store.past = past;
        Ok(Opened { store, past, objects, why })
    }

    /// Begins to write. What is not durable when the process is killed is noted as lost before anything is promised.
    ///
    /// # Errors
    ///
    /// The disk cannot be written.
    pub fn begin(&mut self, saved: impl Fn(&ObjectId, &mut Vec<u8>)) -> Result<(), NodeError> {
        if self.durability == Durability::Memory {
            return write_meta(&self.dir, self.owner, Past::Lost, 0);
        }
        if self.log.is_none() {
            self.renew(saved)?;
        }
        let kept = if self.durability == Durability::Sync { self.past } else { Past::Lost };
        write_meta(&self.dir, self.owner, kept, self.generation)
    }

    fn log_path(&self, generation: u64) -> PathBuf {
        self.dir.join(format!("log.{generation}"))
    }

    /// Returns what has become of the disk.
    pub fn past(&self) -> Past {
        self.past
    }

    /// Returns how many objects are kept. The access list is none.
    pub fn objects(&self) -> usize {
        self.live.len() - usize::from(self.live.contains_key(&ACCESS))
    }

    /// Returns the bytes of what is kept of all objects.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Says whether that many more bytes may be kept.
    pub fn has_room(&self, bytes: usize, max: usize) -> bool {
        bytes == 0 || self.live_bytes + self.growth + bytes <= max
    }

    /// Notes that an object, if it has changed, has a value of this length. The next batch knows better.
    pub fn note_value(&mut self, object: ObjectId, bytes: usize) {
        if let Some(kept) = self.live.get_mut(&object).filter(|kept| kept.is_changed) {
            let growth = bytes.saturating_sub(kept.bytes).max(kept.growth);
            self.growth += growth - kept.growth;
            kept.growth = growth;
        }
    }

    /// Returns how many bytes more are kept if an object has a value of this length.
    pub fn grows_by(&self, object: ObjectId, bytes: usize) -> usize {
        bytes.saturating_sub(self.live.get(&object).map_or(0, |kept| kept.bytes + kept.growth))
    }

    /// Returns the bytes of the log.
    pub fn log_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, StoreLog::bytes)
    }

    /// Notes that an object has changed: the next batch has what is then to be kept of it, once. So a client that changes an
    /// object with a long value many times in one turn does not make as many copies of the value.
    #[inline]
    pub fn put(&mut self, object: ObjectId) {
        let kept = self.live.entry(object).or_default();
        if !kept.is_changed {
            kept.is_changed = true;
            self.changed.push(object);
            self.changed_bytes += kept.bytes;
        }
    }

    /// Says whether something waits to be made durable. What was persisted in memory alone does not.
    #[inline]
    pub fn has_batch(&self) -> bool {
        !self.changed.is_empty() && self.durability != Durability::Memory
    }

    /// Says whether so much has changed that it is written before anything else is taken.
    #[inline]
    pub fn has_much(&self) -> bool {
        self.changed_bytes + self.growth >= BATCH_BYTES
    }

    /// Makes the objects that have changed durable, as far as is asked for.
    ///
    /// # Errors
    ///
    /// The disk has failed: nothing more may be promised.
    #[inline]
    pub fn commit(&mut self, saved: impl Fn(&ObjectId, &mut Vec<u8>)) -> Result<(), NodeError> {
        self.growth = 0;
        if self.changed.is_empty() { Ok(()) } else { self.write(saved) }
    }

    fn write(&mut self, saved: impl Fn(&ObjectId, &mut Vec<u8>)) -> Result<(), NodeError> {
        let mut changed = core::mem::take(&mut self.changed);
        self.changed_bytes = 0;
        for object in changed.drain(..) {
            let len = put_object(&mut self.batch, &object, &saved);
            let kept = self.live.entry(object).or_default();
            self.live_bytes = self.live_bytes + len - kept.bytes;
            *kept = Kept { bytes: len, ..Kept::default() };
            if self.batch.len() > BATCH_BYTES {
                self.append()?;
            }
        }
        self.changed = changed;
        if self.batch.is_empty() { Ok(()) } else { self.append() }
    }

    fn append(&mut self) -> Result<(), NodeError> {
        let sync = self.durability == Durability::Sync;
        let path = self.log_path(self.generation);
        let written = match &mut self.log {
            Some(log) if self.durability != Durability::Memory => log.append(&self.batch, sync),
            _ => Ok(()),
        };
        self.batch.clear();
        if self.batch.capacity() > 2 * BATCH_BYTES {
            self.batch = Vec::new();
        }
        written.map_err(|error| unwritable(&path, &error))
    }

    /// Says whether the log is so long that it is to be written again.
    pub fn is_long(&self) -> bool {
        let least = self.log_bytes_max.max(2 * (self.live_bytes + 64 * self.live.len()));
        self.log.is_some() && self.log_bytes() > least as u64
    }

    /// Writes the log of the next generation: what the server holds, once.
    ///
    /// # Errors
    ///
    /// The disk cannot be written; the log that there was is still in use.
    pub fn renew(&mut self, saved: impl Fn(&ObjectId, &mut Vec<u8>)) -> Result<(), NodeError> {
        self.commit(&saved)?;
        let (before, next) = (self.generation, self.generation + 1);
        let path = self.log_path(next);
        let failed = |error: io::Error| unwritable(&path, &error);
        let mut log = StoreLog::create(&path, self.owner, next).map_err(failed)?;
        let mut batch = Vec::new();
        for object in self.live.keys() {
            put_object(&mut batch, object, &saved);
            if batch.len() > BATCH_BYTES {
                log.append(&batch, false).map_err(failed)?;
                batch.clear();
            }
        }
        if !batch.is_empty() {
            log.append(&batch, false).map_err(failed)?;
        }
        log.sync().map_err(failed)?;
        let kept = if self.durability == Durability::Sync { self.past } else { Past::Lost };
        write_meta(&self.dir, self.owner, kept, next)?;
        self.log = Some(log);
        self.generation = next;
        let _ = fs::remove_file(self.log_path(before));
        Ok(())
    }

    /// Notes that the server holds again what it promised: all of that is committed.
    ///
    /// # Errors
    ///
    /// The disk cannot be written.
    pub fn note_repaired(&mut self) -> Result<(), NodeError> {
        self.past = Past::Repaired;
        if self.durability != Durability::Sync {
            return Ok(());
        }
        write_meta(&self.dir, self.owner, self.past, self.generation)
    }

    /// Ends in order: what was committed without waiting is durable from here on.
    ///
    /// # Errors
    ///
    /// The disk cannot be written.
    pub fn close(mut self) -> Result<(), NodeError> {
        let path = self.log_path(self.generation);
        match (&mut self.log, self.durability) {
            (Some(log), Durability::Sync | Durability::Async) => {
                log.sync().map_err(|error| unwritable(&path, &error))?;
                write_meta(&self.dir, self.owner, self.past, self.generation)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

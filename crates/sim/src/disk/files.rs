//! The bytes of a simulated disk: files with sectors, names and what of both is durable.
//!
//! A write is in the file at once, and durable with the next sync of the file. The name of a file is durable with the
//! next sync of its directory. A crash keeps everything that is durable. Of the rest it keeps all sectors, none,
//! those in front, those behind, or any; one sector may be torn. Of the changes of names it keeps the first ones.
//!
//! A sync may fail. Then what was not durable can be read, and no later sync makes it so, as in a kernel that takes
//! what it could not write for written ([`DiskIo::settle`] drops it). A process that is killed leaves all as it is.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use quorate_process::storage::io::{DiskAction, DiskError, DiskErrorKind, DiskFile, DiskIo, DiskNote};

use crate::rng::Rng;

mod content;

/// The bytes that a disk writes atomically, unless the power goes.
pub const SECTOR: usize = 512;

/// How the names of the log's segments end.
pub const LOG_ENDING: &str = ".seg";

/// The bytes of one file.
#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// The sectors that were written since the last sync, as they were before.
    before: BTreeMap<usize, [u8; SECTOR]>,
    durable_len: usize,
    /// A sync has failed: those of these sectors that are not written again never become durable.
    failed: BTreeSet<usize>,
    /// The places that were written, with their lengths: where damage may strike.
    writes: BTreeMap<usize, usize>,
}

/// What a disk accepts that has no space left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// There is space.
    #[default]
    Enough,
    /// Files may be written, but not grow.
    NoneToGrow,
    /// Nothing may be written, as in a file system that writes each block to a new place.
    None,
}

/// What is left of unsynced data after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Anything.
    Any,
    /// Nothing.
    Nothing,
    /// Sectors in front, and half of the next one.
    Torn,
    /// Sectors behind, and none in front.
    Behind,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum Renaming {
    Link(String, u64),
    Unlink(String),
}

#[derive(Clone, Debug, Default)]
struct Inner {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    renamings: Vec<Renaming>,
    contents: BTreeMap<u64, Content>,
    next_id: u64,
    space: Space,
    /// After this many changes the power goes.
    fuse: Option<usize>,
    /// The next sync fails.
    fails_sync: bool,
    /// Places that cannot be read, with the names of their files.
    unreadable: Vec<(String, usize)>,
    /// Reads of pages that failed.
    page_faults: u64,
}

/// The files of a disk. A clone is the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimFiles(Rc<RefCell<Inner>>);

/// An open file.
#[derive(Clone, Debug)]
pub struct SimFile {
    files: SimFiles,
    id: u64,
    name: String,
}

fn error(kind: DiskErrorKind, action: DiskAction, name: &str) -> DiskError {
    DiskError { kind, action, file: name.to_owned(), cause: format!("{kind:?}") }
}

impl Inner {
    /// Counts a change, and fails when the power is gone.
    fn change(&mut self, action: DiskAction, name: &str) -> Result<(), DiskError> {
        match &mut self.fuse {
            Some(0) => Err(error(DiskErrorKind::Failed, action, name)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn check_read(&self, name: &str, range: Range<usize>) -> Result<(), DiskError> {
        let fails = self.unreadable.iter().any(|(of, at)| of == name && range.contains(at));
        if fails { Err(error(DiskErrorKind::Unreadable, DiskAction::Read, name)) } else { Ok(()) }
    }

    fn apply(names: &mut BTreeMap<String, u64>, renaming: &Renaming) {
        match renaming {
            Renaming::Link(name, id) => _ = names.insert(name.clone(), *id),
            Renaming::Unlink(name) => _ = names.remove(name),
        }
    }

    fn rename(&mut self, renaming: Renaming) {
        Self::apply(&mut self.names, &renaming);
        self.renamings.push(renaming);
    }

    fn forget_nameless(&mut self) {
        let Self { names, durable_names, renamings, contents, .. } = self;
        let linked = |id: &u64| renamings.iter().any(|r| matches!(r, Renaming::Link(_, of) if of == id));
        contents.retain(|id, _| {
            names.values().chain(durable_names.values()).any(|named| named == id) || linked(id)
        });
    }
}

fn directory(name: &str) -> &str {
    name.split('/').next().unwrap_or("")
}

impl SimFiles {
    /// Returns another disk with the same content.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    /// Sets how much space there is.
    pub fn set_space(&self, space: Space) {
        self.0.borrow_mut().space = space;
    }

    /// Lets the power go after `changes` more changes, until [`Self::crash`].
    pub fn set_fuse(&self, changes: usize) {
        self.0.borrow_mut().fuse = Some(changes);
    }

    /// The power stays on.
    pub fn end_fuse(&self) {
        self.0.borrow_mut().fuse = None;
    }

    /// Returns whether the next sync of a file fails.
    pub fn is_failing(&self) -> bool {
        self.0.borrow().fails_sync
    }

    /// Sets whether the next sync of a file fails.
    pub fn set_failing(&self, fails_sync: bool) {
        self.0.borrow_mut().fails_sync = fails_sync;
    }

    /// Lets the disk fail to read the byte at `at` of a file.
    pub fn set_unreadable(&self, name: &str, at: usize) {
        self.0.borrow_mut().unreadable.push((name.to_owned(), at));
    }

    /// Returns how many reads of a page have failed.
    pub fn page_faults(&self) -> u64 {
        self.0.borrow().page_faults
    }

    /// The process has been killed: what it has written can be read, and is no more durable than it was.
    pub fn kill(&self) {
        let mut inner = self.0.borrow_mut();
        (inner.fuse, inner.fails_sync) = (None, false);
    }

    /// The power has gone.
    pub fn crash(&self, rng: &mut Rng, remains: Remains) {
        let mut inner = self.0.borrow_mut();
        (inner.fuse, inner.fails_sync) = (None, false);
        let kept = if remains == Remains::Nothing { 0 } else { rng.index(inner.renamings.len() + 1) };
        let mut names = core::mem::take(&mut inner.durable_names);
        inner.renamings.drain(..).take(kept).for_each(|renaming| Inner::apply(&mut names, &renaming));
        (inner.names, inner.durable_names) = (names.clone(), names);
        for content in inner.contents.values_mut() {
            content.crash(rng, remains);
        }
        inner.forget_nameless();
    }

    /// Removes everything.
    pub fn wipe(&self) {
        *self.0.borrow_mut() = Inner::default();
    }

    /// Returns the places of what was written to files whose names end so, oldest first, without the last one: file,
    /// offset and length. Files that were removed since have none.
    pub fn written(&self, ending: &str) -> Vec<(String, usize, usize)> {
        let inner = self.0.borrow();
        let mut found = Vec::new();
        for (name, id) in inner.names.iter().filter(|(name, _)| name.ends_with(ending)) {
            let writes = inner.contents.get(id).into_iter().flat_map(|content| &content.writes);
            found.extend(writes.map(|(at, len)| (name.clone(), *at, *len)));
        }
        found.pop();
        found
    }

    /// Changes bytes of a file, as a disk does that fails silently.
    pub fn spoil(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.0.borrow_mut();
        let Some(id) = inner.names.get(name).copied() else { return };
        if let Some(content) = inner.contents.get_mut(&id) {
            change(&mut content.bytes);
        }
    }
}

impl DiskIo for SimFiles {
    type File = SimFile;

    fn open(&self, name: &str) -> Result<SimFile, DiskError> {
        if let Ok(file) = self.open_to_read(name) {
            return Ok(file);
        }
        let mut inner = self.0.borrow_mut();
        if inner.space != Space::Enough {
            return Err(error(DiskErrorKind::Full, DiskAction::Open, name));
        }
        inner.change(DiskAction::Open, name)?;
        inner.next_id += 1;
        let id = inner.next_id;
        inner.contents.insert(id, Content::default());
        inner.rename(Renaming::Link(name.to_owned(), id));
        Ok(SimFile { files: self.clone(), id, name: name.to_owned() })
    }

    fn open_to_read(&self, name: &str) -> Result<SimFile, DiskError> {
        match self.0.borrow().names.get(name) {
            Some(id) => Ok(SimFile { files: self.clone(), id: *id, name: name.to_owned() }),
            None => Err(error(DiskErrorKind::Missing, DiskAction::Read, name)),
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, DiskError> {
        let file = self.open_to_read(name)?;
        let inner = self.0.borrow();
        let bytes = inner.contents.get(&file.id).map(|content| content.bytes.clone()).unwrap_or_default();
        inner.check_read(name, 0..bytes.len())?;
        Ok(bytes)
    }

    fn exists(&self, name: &str) -> bool {
        self.0.borrow().names.contains_key(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let inner = self.0.borrow();
        let below = inner.names.keys().filter_map(|name| name.strip_prefix(dir)?.strip_prefix('/'));
        Ok(below.map(str::to_owned).collect())
    }

    fn create_dir(&self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut inner = self.0.borrow_mut();
        inner.change(DiskAction::Rename, from)?;
        let id = inner.names.get(from).copied();
        let id = id.ok_or_else(|| error(DiskErrorKind::Missing, DiskAction::Rename, from))?;
        inner.rename(Renaming::Unlink(from.to_owned()));
        inner.rename(Renaming::Link(to.to_owned(), id));
        // In a file that is used again, what was written before does not count.
        if let Some(content) = inner.contents.get_mut(&id).filter(|_| to.ends_with(LOG_ENDING)) {
            content.writes.clear();
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut inner = self.0.borrow_mut();
        inner.change(DiskAction::Remove, name)?;
        if !inner.names.contains_key(name) {
            return Err(error(DiskErrorKind::Missing, DiskAction::Remove, name));
        }
        inner.rename(Renaming::Unlink(name.to_owned()));
        Ok(())
    }

    fn settle(&self, name: &str) -> Result<(), DiskError> {
        let file = self.open_to_read(name)?;
        if let Some(content) = self.0.borrow_mut().contents.get_mut(&file.id) {
            content.settle();
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        let mut inner = self.0.borrow_mut();
        inner.change(DiskAction::Sync, dir)?;
        let renamings = core::mem::take(&mut inner.renamings);
        for renaming in renamings {
            let (Renaming::Link(name, _) | Renaming::Unlink(name)) = &renaming;
            if directory(name) == dir {
                Inner::apply(&mut inner.durable_names, &renaming);
            } else {
                inner.renamings.push(renaming);
            }
        }
        inner.forget_nameless();
        Ok(())
    }

    fn note(&self, note: &DiskNote<'_>) {
        if let DiskNote::PageFault { .. } = note {
            self.0.borrow_mut().page_faults += 1;
        }
    }
}

impl SimFile {
    fn change<T>(
        &self,
        action: DiskAction,
        change: impl FnOnce(&mut Content, Space) -> Option<T>,
    ) -> Result<T, DiskError> {
        let mut inner = self.files.0.borrow_mut();
        inner.change(action, &self.name)?;
        let space = inner.space;
        match inner.contents.get_mut(&self.id) {
            Some(content) => {
                change(content, space).ok_or_else(|| error(DiskErrorKind::Full, action, &self.name))
            }
            None => Err(error(DiskErrorKind::Failed, action, &self.name)),
        }
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl DiskFile for SimFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), DiskError> {
        let inner = self.files.0.borrow();
        let there = inner.contents.get(&self.id).and_then(|content| content.bytes.get(place(at)..));
        let there = there.and_then(|there| there.get(..bytes.len()));
        let there = there.ok_or_else(|| error(DiskErrorKind::Failed, DiskAction::Read, &self.name))?;
        inner.check_read(&self.name, place(at)..place(at) + bytes.len())?;
        bytes.copy_from_slice(there);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), DiskError> {
        self.change(DiskAction::Write, |content, space| {
            let grows = place(at) + bytes.len() > content.bytes.len();
            let fits = space == Space::Enough || space == Space::NoneToGrow && !grows;
            fits.then(|| content.write(bytes, place(at)))
        })
    }

    fn sync(&self) -> Result<(), DiskError> {
        if core::mem::take(&mut self.files.0.borrow_mut().fails_sync) {
            self.change(DiskAction::Sync, |content, _| {
                content.fail_sync();
                Some(())
            })?;
            return Err(error(DiskErrorKind::Failed, DiskAction::Sync, &self.name));
        }
        self.change(DiskAction::Sync, |content, _| {
            content.sync();
            Some(())
        })
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        self.sync()
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.change(DiskAction::Write, |content, space| {
            let len = place(len).max(content.bytes.len());
            if space != Space::Enough && len > content.bytes.len() {
                return None;
            }
            content.bytes.resize(len, 0);
            Some(())
        })
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.change(DiskAction::Write, |content, _| {
            content.bytes.resize(place(len), 0);
            content.durable_len = content.durable_len.min(content.bytes.len());
            let (end, sectors) = (content.bytes.len(), content.bytes.len().div_ceil(SECTOR));
            content.before.retain(|sector, _| *sector < sectors);
            content.failed.retain(|sector| *sector < sectors);
            content.writes.retain(|at, len| *at + *len <= end);
            Some(())
        })
    }

    fn len(&self) -> Result<u64, DiskError> {
        let inner = self.files.0.borrow();
        Ok(inner.contents.get(&self.id).map_or(0, |content| content.bytes.len() as u64))
    }
}

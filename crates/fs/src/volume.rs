//! The layout of the state: the first page, the reply cache, the allocator, the trees.
//!
//! ```text
//! page 0           the head
//! 1 ..= R          the reply cache, R pages
//! R + 1 ..         the allocator's bitmap, then the pages it gives out: nodes of the trees, data
//!
//! head:  0 magic 8 | 8 allocator 8 | 16 inodes 8 | 24 names 8 | 32 cookies 8 | 40 extents 8 | 48 usage 8
//!        | 56 mounts 8 | 64 last time 8 | 72 next inode 8 | 80 inodes in use 8 | 88 mounts in use 8
//! ```
//!
//! | tree | key | value |
//! |---|---|---|
//! | inodes | inode 8 | attributes, then the first bytes of a small file |
//! | names | directory 8, name | inode 8, cookie 8 |
//! | cookies | directory 8, cookie 8 | inode 8, name |
//! | extents | inode 8, block 8 | first page 4, pages 4 |
//! | usage | user 4 | pages 8, inodes 8, links 8 unless there are none |
//! | mounts | address 16, export 4 | nothing |
//!
//! Keys are big-endian, so that trees are in the order of numbers; values are little-endian.

use quorate_service::btree::Tree;
use quorate_service::space::Space;
use quorate_service::{Context, Stop, View};

use crate::error::{Done, OpError, Why};
use crate::settings::Settings;
use crate::types::FileKind;
use crate::volume::inode::Inode;
use crate::volume::later::{LaterKind, postpone};

pub(crate) mod bytes;
pub(crate) mod data;
pub(crate) mod directory;
pub mod fsck;
pub(crate) mod handle;
pub(crate) mod inode;
mod inodes;
pub(crate) mod later;
mod mounts;
mod quota;
pub(crate) mod redo;

/// Marks the state as a file system in this format.
const MAGIC: [u8; 8] = *b"quorFS02";
/// The previous format, without quotas. It is kept unchanged.
const MAGIC_UNCOUNTED: [u8; 8] = *b"quorFS01";
const SPACE_AT: usize = 8;
const INODES_AT: usize = 16;
const NAMES_AT: usize = 24;
const COOKIES_AT: usize = 32;
const EXTENTS_AT: usize = 40;
const USAGE_AT: usize = 48;
const MOUNTS_AT: usize = 56;
const TIME_AT: usize = 64;
const NEXT_INODE_AT: usize = 72;
const INODES_USED_AT: usize = 80;
const MOUNTS_USED_AT: usize = 88;

/// Minimum page size, in bytes: an inode with its data, and a name of maximum length, fit into a leaf.
const PAGE_BYTES_MIN: usize = 4096;
/// The root directory.
pub(crate) const ROOT: u64 = 1;
/// Pages reserved for the nodes of trees, so that a change has enough space once it has begun, and files can be
/// removed when the disk is full.
pub(crate) const RESERVE_PAGES: u32 = 64;

/// The state as a file system, for one call.
pub(crate) struct Volume<'s, 'v> {
    view: &'s mut View<'v>,
    settings: &'s Settings,
    space: Space,
    inodes: Tree,
    names: Tree,
    cookies: Tree,
    extents: Tree,
    usage: Tree,
    mounts: Tree,
    /// Whether the use of each user is counted.
    is_counted: bool,
    /// The time of this call, in nanoseconds since 1970.
    now: u64,
    /// The generation of new inodes.
    generation: u32,
}

impl<'s, 'v> Volume<'s, 'v> {
    /// Opens the state as a file system for the call of this context. An empty state first becomes an empty file
    /// system.
    pub(crate) fn open(settings: &'s Settings, cx: &Context, view: &'s mut View<'v>) -> Result<Self, Stop> {
        let mut volume = Self::at(settings, view)?;
        let [.., a, b, c, d] = cx.seq.0.to_be_bytes();
        volume.generation = u32::from_be_bytes([a, b, c, d]);
        if volume.view.is_on_cells() {
            // That it is later than any time before is left to settling.
            volume.now = time_of(cx);
            if !volume.is_formatted()? {
                volume.needs_pages()?;
            }
            return Ok(volume);
        }
        let last = volume.number(TIME_AT)?;
        // The agreed time plus the place in the batch, or one more than the largest used before, so that no two changes
        // have the same time [OSDI99 §6.2]. Calls that are not ordered use no time up.
        volume.now = if cx.read_only { cx.time_ns.max(last) } else { time_of(cx).max(last + 1) };
        match volume.view.page(0)?.first_chunk() {
            Some(&MAGIC | &MAGIC_UNCOUNTED) => {}
            Some([0, 0, 0, 0, 0, 0, 0, 0]) => volume.format()?,
            Some(_) | None => return Err(Stop::Corrupt),
        }
        Ok(volume)
    }

    /// Opens the state as a file system, without changing it.
    pub(crate) fn at(settings: &'s Settings, view: &'s mut View<'v>) -> Result<Self, Stop> {
        if view.page_bytes() < PAGE_BYTES_MIN || view.pages() <= settings.reply_pages.saturating_add(1) {
            return Err(Stop::Corrupt);
        }
        view.has_cells_for_pages();
        let is_counted = magic(view)? != MAGIC_UNCOUNTED;
        let space = Space::new(view, (0, SPACE_AT), settings.reply_pages + 1);
        let tree = |at| Tree::new((0, at), space);
        let (inodes, names, cookies) = (tree(INODES_AT), tree(NAMES_AT), tree(COOKIES_AT));
        let (extents, usage, mounts) = (tree(EXTENTS_AT), tree(USAGE_AT), tree(MOUNTS_AT));
        Ok(Self {
            view,
            settings,
            space,
            inodes,
            names,
            cookies,
            extents,
            usage,
            mounts,
            is_counted,
            now: 0,
            generation: 0,
        })
    }

    /// Opens the state to settle a call of this context, which has run on cells.
    pub(crate) fn resume(settings: &'s Settings, cx: &Context, view: &'s mut View<'v>) -> Result<Self, Stop> {
        Ok(Self { now: time_of(cx), ..Self::at(settings, view)? })
    }

    /// Returns the same file system in another view.
    fn over<'t, 'u>(&'t self, view: &'t mut View<'u>) -> Volume<'t, 'u> {
        let Self { settings, space, inodes, names, cookies, extents, usage, mounts, .. } = *self;
        let Self { is_counted, now, generation, .. } = *self;
        Volume {
            view,
            settings,
            space,
            inodes,
            names,
            cookies,
            extents,
            usage,
            mounts,
            is_counted,
            now,
            generation,
        }
    }

    /// Returns whether the time of this call is later than any before.
    pub(crate) fn is_in_time(&self) -> Result<bool, Stop> {
        Ok(self.number(TIME_AT)? < self.now)
    }

    /// Returns whether the state is a file system.
    pub(crate) fn is_formatted(&self) -> Result<bool, Stop> {
        Ok(matches!(magic(self.view)?, MAGIC | MAGIC_UNCOUNTED))
    }

    /// Creates an empty file system from zeros: a root directory that everyone may use, like `/tmp`.
    fn format(&mut self) -> Result<(), Stop> {
        self.view.write(0, 0, &MAGIC)?;
        self.set_number(NEXT_INODE_AT, ROOT)?;
        let mut root = self.new_inode(FileKind::Dir, 0o1777, 0, 0);
        // Its handle is the same in every state: it does not depend on its creation time.
        (root.nlink, root.parent, root.generation) = (2, ROOT, 0);
        match self.add_inode(&root, &[]) {
            Ok(_) => {}
            Err(OpError::Stop(stop)) => return Err(stop),
            Err(OpError::Refused(_)) => return Err(Stop::Refused),
        }
        self.tick()?;
        Ok(())
    }

    /// Returns whether this is a run on cells.
    pub(crate) fn is_on_cells(&self) -> bool {
        self.view.is_on_cells()
    }

    /// Stops a run on cells: what follows has a meaning on pages only.
    pub(crate) fn needs_pages(&self) -> Result<(), Stop> {
        self.view.needs_pages()
    }

    /// Leaves a change to settling, if this is a run on cells. Returns whether it is.
    pub(crate) fn postpone(&mut self, kind: LaterKind, parts: &[&[u8]]) -> bool {
        postpone(self.view, kind, &[], parts)
    }

    /// Passes the volume to `read`; in a run on cells, the volume as it has settled. What is read there of a file or a
    /// directory is unchanged if its inode is, which the caller has read: a call that changes the data of a file, or the
    /// entries of a directory, changes its inode, too.
    fn settled<T>(&self, read: impl FnOnce(&Volume<'_, '_>) -> Result<T, Stop>) -> Result<T, Stop> {
        match self.view.settled_view()? {
            None => read(self),
            Some(mut view) => read(&self.over(&mut view)),
        }
    }

    /// Returns the settings of the file system.
    pub(crate) fn settings(&self) -> &'s Settings {
        self.settings
    }

    /// Returns a page of the reply cache.
    pub(crate) fn reply_page(&self, page: u32) -> Result<&[u8], Stop> {
        assert!((1..=self.settings.reply_pages).contains(&page), "page {page} is not in the reply cache");
        self.view.page(page)
    }

    /// Changes bytes of a page of the reply cache.
    pub(crate) fn write_reply_page(&mut self, page: u32, at: usize, bytes: &[u8]) -> Result<(), Stop> {
        assert!((1..=self.settings.reply_pages).contains(&page), "page {page} is not in the reply cache");
        self.view.write(page, at, bytes)
    }

    /// Returns the time of this call, and records that it is used.
    pub(crate) fn tick(&mut self) -> Result<u64, Stop> {
        if !postpone(self.view, LaterKind::Tick, &[], &[]) {
            self.set_number(TIME_AT, self.now)?;
        }
        Ok(self.now)
    }

    /// Returns the time of this call, for comparisons.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        u64::try_from(self.view.page_bytes()).unwrap_or(u64::MAX)
    }

    /// Returns how many pages `bytes` bytes take.
    pub(crate) fn pages_of(&self, bytes: usize) -> u64 {
        u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(self.page_bytes())
    }

    /// Returns how many pages are free, of those that the settings let it have.
    pub(crate) fn free_pages(&self) -> Result<u32, Stop> {
        let most = u32::try_from(self.settings.capacity_bytes / self.page_bytes()).unwrap_or(u32::MAX);
        let free = self.space.free_pages(self.view)?;
        Ok(free.min(most.saturating_sub(self.space.used(self.view)?)))
    }

    /// Returns how many pages are in use.
    pub(crate) fn used_pages(&self) -> Result<u32, Stop> {
        self.space.used(self.view)
    }

    /// Returns how many pages a client may still fill.
    pub(crate) fn available_pages(&self) -> Result<u32, Stop> {
        Ok(self.free_pages()?.saturating_sub(RESERVE_PAGES))
    }

    /// Checks that there is space for a change with this number of names and inodes.
    pub(crate) fn check_room(&mut self) -> Done<()> {
        let has_space = self.settled(|volume| Ok(volume.available_pages()? > 0))?;
        postpone(self.view, LaterKind::Space, &[0, 0, 0, has_space.into()], &[]);
        if has_space { Ok(()) } else { Err(Why::NoSpc.into()) }
    }

    /// Checks that another inode is allowed.
    pub(crate) fn check_inodes(&mut self) -> Done<()> {
        let inodes_max = self.settings.inodes_max;
        let has_inodes = self.settled(|volume| Ok(volume.inodes_used()? < inodes_max))?;
        postpone(self.view, LaterKind::Inodes, &[0, 0, 0, has_inodes.into()], &[]);
        if has_inodes { Ok(()) } else { Err(Why::NoSpc.into()) }
    }

    /// Returns the number of inodes in use.
    pub(crate) fn inodes_used(&self) -> Result<u64, Stop> {
        self.number(INODES_USED_AT)
    }

    /// Returns the number of the next inode, larger than any before.
    pub(crate) fn next_inode(&self) -> Result<u64, Stop> {
        self.number(NEXT_INODE_AT)
    }

    /// Returns a new inode: no links, no data.
    pub(crate) fn new_inode(&self, kind: FileKind, mode: u16, uid: u32, gid: u32) -> Inode {
        Inode {
            mode,
            uid,
            gid,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            generation: self.generation,
            ..Inode::empty(kind)
        }
    }

    /// Adds an inode with its data, and returns its number. The caller has checked that another one is allowed.
    pub(crate) fn add_inode(&mut self, inode: &Inode, inline: &[u8]) -> Done<u64> {
        let number = self.next_inode()?;
        self.set_number(NEXT_INODE_AT, number.checked_add(1).ok_or(Stop::Corrupt)?)?;
        self.count_inodes(1)?;
        self.put_inode_with(number, inode, inline)?;
        self.charge(inode.uid, 0, 1, 0)?;
        Ok(number)
    }

    /// Removes an inode whose data has been removed.
    pub(crate) fn drop_inode(&mut self, number: u64, inode: &Inode) -> Done<()> {
        if !self.inodes.remove(self.view, &number.to_be_bytes())? {
            return Err(Stop::Corrupt.into());
        }
        self.count_inodes(-1)?;
        self.charge(inode.uid, 0, -1, 0)
    }

    fn count_inodes(&mut self, change: i64) -> Result<(), Stop> {
        if self.view.add(0, INODES_USED_AT, change, u64::MAX)? { Ok(()) } else { Err(Stop::Corrupt) }
    }

    fn number(&self, at: usize) -> Result<u64, Stop> {
        self.view.number(0, at)
    }

    fn set_number(&mut self, at: usize, number: u64) -> Result<(), Stop> {
        self.view.set_number(0, at, number)
    }
}

/// Returns the time of an ordered call, if no call before has used it up. It follows from the call's place in the order
/// alone (PX-D).
fn time_of(cx: &Context) -> u64 {
    cx.time_ns.saturating_add(u64::from(cx.index))
}

/// Returns what marks the format. A file system keeps its format, so a run on cells does not note that it was read.
fn magic(view: &View<'_>) -> Result<[u8; 8], Stop> {
    let settled = view.settled_view()?;
    let page = settled.as_ref().unwrap_or(view).page(0)?;
    page.first_chunk().copied().ok_or(Stop::Corrupt)
}

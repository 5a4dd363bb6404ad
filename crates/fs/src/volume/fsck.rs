//! Checks the consistency of a file system: every page has one owner, every name one inode, every inode the right
//! number of links, every directory a path to the root.
//!
//! It reads the entire state, and keeps a record for each inode and a bit for each page in memory. So it is for
//! operators and tests, not for executions.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use quorate_service::btree::Tree;
use quorate_service::space::PageRun;
use quorate_service::{Stop, View};

use crate::settings::Settings;
use crate::types::FileKind;
use crate::volume::bytes::{be64, inline, le64, pair_key};
use crate::volume::data::Extent;
use crate::volume::directory::{DirEntry, NAME_BYTES_MAX};
use crate::volume::inode::{INLINE_BYTES_MAX, Inode};
use crate::volume::quota::Usage;
use crate::volume::{MOUNTS_USED_AT, ROOT, Volume};

/// Maximum number of findings that are described; further ones are counted.
const FINDINGS_MAX: usize = 100;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of inodes.
    pub inodes: u64,
    /// Number of names.
    pub names: u64,
    /// Number of pages with an owner.
    pub pages: u64,
    /// Descriptions of the findings. At most 100.
    pub findings: Vec<String>,
    /// Number of findings.
    pub findings_count: u64,
}

impl Report {
    /// Returns whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0
    }
}

/// Checks the state of a file system.
///
/// # Errors
///
/// A page is missing. Inconsistencies are findings, not errors.
pub fn check(settings: &Settings, mut view: View<'_>) -> Result<Report, Stop> {
    let pages = usize::try_from(view.pages()).unwrap_or(usize::MAX);
    let volume = match Volume::at(settings, &mut view) {
        Ok(volume) => volume,
        Err(stop @ Stop::Fault(_)) => return Err(stop),
        Err(_) => {
            let findings = alloc::vec!["the pages are too small or too few".into()];
            return Ok(Report { findings, findings_count: 1, ..Report::default() });
        }
    };
    let mut check = Check {
        volume,
        report: Report::default(),
        findings: Findings::default(),
        owned: alloc::vec![0; pages.div_ceil(64)],
        notes: BTreeMap::new(),
        usage: BTreeMap::new(),
    };
    check.run()?;
    let Findings { list: findings, count: findings_count } = check.findings;
    Ok(Report { findings, findings_count, ..check.report })
}

/// Descriptions of findings, and their number.
#[derive(Default)]
struct Findings {
    list: Vec<String>,
    count: u64,
}

impl Findings {
    fn note(&mut self, says: impl FnOnce() -> String) {
        self.count += 1;
        if self.list.len() < FINDINGS_MAX {
            self.list.push(says());
        }
    }
}

/// The facts about an inode.
struct Note {
    inode: Inode,
    /// Names of this inode.
    names: u64,
    /// Of a directory: names in it, and the directories among them.
    entries: u64,
    subdirs: u64,
    /// Pages of its extents, and the block after the last one.
    pages: u64,
    end: u64,
    /// The parent directory, if it is a directory itself.
    named_in: u64,
    /// Whether it has a path to the root.
    is_reached: bool,
}

struct Check<'s, 'v> {
    volume: Volume<'s, 'v>,
    report: Report,
    findings: Findings,
    /// One bit per page: it has an owner.
    owned: Vec<u64>,
    notes: BTreeMap<u64, Note>,
    usage: BTreeMap<u32, Usage>,
}

impl Check<'_, '_> {
    fn run(&mut self) -> Result<(), Stop> {
        if !self.volume.is_formatted()? {
            let is_empty = self.volume.view.page(0)?.iter().all(|byte| *byte == 0);
            if !is_empty {
                self.findings.note(|| "the state is no file system".into());
            }
            return Ok(());
        }
        self.part("inodes", Self::inodes)?;
        self.part("extents", Self::extents)?;
        self.part("names", Self::names)?;
        self.part("links", |check| {
            check.links();
            Ok(())
        })?;
        self.part("usage", Self::usage)?;
        self.part("mounts", Self::mounts)?;
        self.part("pages", Self::pages)
    }

    /// Runs a part of the check. If the state cannot be parsed, that is a finding.
    fn part(&mut self, name: &str, part: impl FnOnce(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        match part(self) {
            Err(stop @ Stop::Fault(_)) => Err(stop),
            Err(_) => {
                self.findings.note(|| format!("{name}: the tables cannot be read"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn inodes(&mut self) -> Result<(), Stop> {
        self.own_tree("inodes", self.volume.inodes)?;
        let next = self.volume.next_inode()?;
        let mut cursor = self.volume.inodes.first(self.volume.view)?;
        while let Some((key, value)) = cursor.next(self.volume.view)? {
            let (number, inode) = (be64(key)?, Inode::decode(inline(&value)?)?);
            self.report.inodes += 1;
            let findings = &mut self.findings;
            if number == 0 || number >= next {
                findings.note(|| format!("inode {number}: the next was to be {next}"));
            }
            if inode.inline_len > INLINE_BYTES_MAX || (inode.inline_len > 0 && inode.pages > 0) {
                findings.note(|| format!("inode {number}: {} bytes stand next to it", inode.inline_len));
            }
            let len = u64::try_from(inode.inline_len).unwrap_or(u64::MAX);
            if !inode.is_dir() && len > inode.size {
                findings.note(|| format!("inode {number}: has {len} bytes and a size of {}", inode.size));
            }
            let usage = self.usage.entry(inode.uid).or_default();
            usage.inodes += 1;
            usage.pages += u64::from(inode.pages);
            usage.links += u64::from(inode.links());
            let note = Note {
                inode,
                names: 0,
                entries: 0,
                subdirs: 0,
                pages: 0,
                end: 0,
                named_in: 0,
                is_reached: number == ROOT,
            };
            self.notes.insert(number, note);
        }
        let (counted, said) = (self.report.inodes, self.volume.inodes_used()?);
        if counted != said {
            self.findings.note(|| format!("there are {counted} inodes, the head says {said}"));
        }
        Ok(())
    }

    fn extents(&mut self) -> Result<(), Stop> {
        self.own_tree("extents", self.volume.extents)?;
        let page_bytes = self.volume.page_bytes();
        let mut cursor = self.volume.extents.first(self.volume.view)?;
        while let Some((key, value)) = cursor.next(self.volume.view)? {
            let (number, key) = (be64(key)?, key.get(8..).ok_or(Stop::Corrupt)?);
            let extent = Extent::decode(key, inline(&value)?)?;
            let (block, run) = (extent.block, extent.run);
            own(&mut self.owned, &self.volume, &mut self.findings, run, || format!("inode {number}"))?;
            let Some(note) = self.notes.get_mut(&number) else {
                self.findings.note(|| format!("inode {number}: has data and is not there"));
                continue;
            };
            if !matches!(note.inode.kind, FileKind::Reg | FileKind::Lnk) {
                self.findings.note(|| format!("inode {number}: has data and is no file"));
            }
            if block < note.end || run.count == 0 {
                self.findings.note(|| format!("inode {number}: extents overlap at block {block}"));
            }
            note.end = extent.end();
            note.pages += u64::from(run.count);
            let size = note.inode.size;
            if extent.end() > size.div_ceil(page_bytes) {
                self.findings.note(|| format!("inode {number}: has data behind its end"));
            }
            let last = extent.end().saturating_sub(1);
            if last == size / page_bytes && run.count > 0 {
                let within = usize::try_from(size % page_bytes).unwrap_or(0);
                let page = run.first.checked_add(run.count - 1).ok_or(Stop::Corrupt)?;
                if self.volume.view.page(page)?[within..].iter().any(|byte| *byte != 0) {
                    self.findings.note(|| format!("inode {number}: the rest of its last page is not zero"));
                }
            }
        }
        Ok(())
    }

    fn names(&mut self) -> Result<(), Stop> {
        self.own_tree("names", self.volume.names)?;
        self.own_tree("cookies", self.volume.cookies)?;
        let mut cursor = self.volume.names.first(self.volume.view)?;
        while let Some((key, value)) = cursor.next(self.volume.view)? {
            let (dir, name) = (be64(key)?, key.get(8..).ok_or(Stop::Corrupt)?);
            let entry = DirEntry::decode(inline(&value)?)?;
            let (number, cookie) = (entry.inode, entry.cookie);
            self.report.names += 1;
            let shown = || format!("directory {dir}: {}", String::from_utf8_lossy(name));
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&b'/') || name.contains(&0) {
                self.findings.note(|| format!("{}: is no name", shown()));
            }
            let by_cookie = self.volume.cookies.get(self.volume.view, &pair_key(dir, cookie))?;
            let is_listed = match &by_cookie {
                Some(value) => {
                    let value = inline(value)?;
                    le64(value, 0)? == number && value.get(8..) == Some(name)
                }
                None => false,
            };
            if !is_listed {
                self.findings.note(|| format!("{}: is not at its cookie {cookie}", shown()));
            }
            let Some(note) = self.notes.get_mut(&number) else {
                self.findings.note(|| format!("{}: there is no inode {number}", shown()));
                continue;
            };
            note.names += 1;
            let is_dir = note.inode.is_dir();
            if is_dir {
                note.named_in = dir;
            }
            match self.notes.get_mut(&dir).filter(|note| note.inode.is_dir()) {
                Some(note) => {
                    note.entries += 1;
                    note.subdirs += u64::from(is_dir);
                    if !(Inode::COOKIES_BEFORE..note.inode.next_cookie).contains(&cookie) {
                        self.findings.note(|| format!("{}: cookie {cookie} is not given out", shown()));
                    }
                }
                None => self.findings.note(|| format!("{}: is in no directory", shown())),
            }
        }
        let mut cookies = 0;
        let mut cursor = self.volume.cookies.first(self.volume.view)?;
        while cursor.next(self.volume.view)?.is_some() {
            cookies += 1;
        }
        if cookies != self.report.names {
            let names = self.report.names;
            self.findings.note(|| format!("there are {names} names and {cookies} cookies"));
        }
        Ok(())
    }

    /// Compares the inodes' attributes with the facts, and checks the path of every directory.
    fn links(&mut self) {
        let findings = &mut self.findings;
        for (number, note) in &self.notes {
            let inode = &note.inode;
            let links = if inode.is_dir() { 2 + note.subdirs } else { note.names };
            if links != u64::from(inode.nlink) || links == 0 {
                let said = inode.nlink;
                findings.note(|| format!("inode {number}: says it has {said} links, has {links}"));
            }
            if note.pages != u64::from(inode.pages) {
                let (said, has) = (inode.pages, note.pages);
                findings.note(|| format!("inode {number}: says it has {said} pages, has {has}"));
            }
            if inode.is_dir() {
                if note.entries != inode.entries {
                    let (said, has) = (inode.entries, note.entries);
                    findings.note(|| format!("directory {number}: says it has {said} entries, has {has}"));
                }
                let (names, parent) = if *number == ROOT { (0, ROOT) } else { (1, note.named_in) };
                if note.names != names || inode.parent != parent {
                    let said = inode.parent;
                    findings.note(|| {
                        format!("directory {number}: has {} names, and says it is in {said}", note.names)
                    });
                }
            }
        }
        let dirs: Vec<u64> =
            self.notes.iter().filter(|(_, note)| note.inode.is_dir()).map(|(number, _)| *number).collect();
        for number in dirs {
            if !self.reach(number) {
                self.findings.note(|| format!("directory {number}: there is no way up to the root"));
            }
        }
        if !self.notes.get(&ROOT).is_some_and(|note| note.inode.is_dir()) {
            self.findings.note(|| "there is no root".into());
        }
    }

    /// Returns whether a directory has a path to the root, and records it for all directories on the path.
    fn reach(&mut self, number: u64) -> bool {
        let (mut way, mut at) = (Vec::new(), number);
        let is_reached = loop {
            match self.notes.get(&at) {
                Some(note) if note.is_reached => break true,
                // No path is longer than the number of inodes.
                Some(note) if way.len() <= self.notes.len() => {
                    way.push(at);
                    at = note.named_in;
                }
                Some(_) | None => break false,
            }
        };
        if is_reached {
            for number in way {
                if let Some(note) = self.notes.get_mut(&number) {
                    note.is_reached = true;
                }
            }
        }
        is_reached
    }

    fn usage(&mut self) -> Result<(), Stop> {
        self.own_tree("usage", self.volume.usage)?;
        if !self.volume.is_counted {
            return Ok(());
        }
        let mut cursor = self.volume.usage.first(self.volume.view)?;
        while let Some((key, value)) = cursor.next(self.volume.view)? {
            let uid = key.first_chunk().map(|uid| u32::from_be_bytes(*uid)).ok_or(Stop::Corrupt)?;
            let said = Usage::decode(inline(&value)?)?;
            let has = self.usage.remove(&uid).unwrap_or_default();
            // Those that an earlier version has made are not counted.
            if said != (Usage { links: has.links.min(said.links), ..has }) {
                self.findings.note(|| format!("user {uid}: is said to own {said:?}, owns {has:?}"));
            }
        }
        for (uid, usage) in &self.usage {
            self.findings.note(|| format!("user {uid}: is said to own nothing, owns {usage:?}"));
        }
        Ok(())
    }

    fn mounts(&mut self) -> Result<(), Stop> {
        self.own_tree("mounts", self.volume.mounts)?;
        let mut cursor = self.volume.mounts.first(self.volume.view)?;
        let (mut counted, said) = (0, self.volume.number(MOUNTS_USED_AT)?);
        while cursor.next(self.volume.view)?.is_some() {
            counted += 1;
        }
        if counted != said {
            self.findings.note(|| format!("there are {counted} mounts, the head says {said}"));
        }
        Ok(())
    }

    /// Every allocated page has an owner.
    fn pages(&mut self) -> Result<(), Stop> {
        let counted: u64 = self.owned.iter().map(|word| u64::from(word.count_ones())).sum();
        self.report.pages = counted;
        let said = u64::from(self.volume.space.used(self.volume.view)?);
        if counted != said {
            self.findings.note(|| format!("{counted} pages have an owner, {said} are given out"));
        }
        let all = self.volume.space.pages();
        for page in all.first..all.first.saturating_add(all.count) {
            let (word, bit) = place(page);
            let has_owner = self.owned.get(word).is_some_and(|word| word >> bit & 1 == 1);
            if !has_owner && self.volume.space.is_used(self.volume.view, page)? {
                self.findings.note(|| format!("page {page}: is given out to nobody"));
            }
        }
        Ok(())
    }

    fn own_tree(&mut self, name: &str, tree: Tree) -> Result<(), Stop> {
        let (owned, volume, findings) = (&mut self.owned, &self.volume, &mut self.findings);
        let mut fault = None;
        let visit = |run| match own(owned, volume, findings, run, || format!("the tree of {name}")) {
            Ok(is_new) => is_new,
            Err(stop) => {
                fault = Some(stop);
                false
            }
        };
        tree.for_each_run(volume.view, visit)?;
        fault.map_or(Ok(()), Err)
    }
}

/// Records an owner of pages. Returns whether they had none and are allocated.
fn own(
    owned: &mut [u64],
    volume: &Volume<'_, '_>,
    findings: &mut Findings,
    run: PageRun,
    whose: impl Fn() -> String,
) -> Result<bool, Stop> {
    let mut is_new = true;
    let all = volume.space.pages();
    for page in run.first..run.first.saturating_add(run.count) {
        let (word, bit) = place(page);
        let is_in = page >= all.first && page - all.first < all.count;
        let Some(word) = owned.get_mut(word).filter(|_| is_in) else {
            findings.note(|| format!("{}: page {page} is none that is given out", whose()));
            return Ok(false);
        };
        if *word >> bit & 1 == 1 {
            findings.note(|| format!("{}: page {page} has another owner", whose()));
            is_new = false;
        }
        *word |= 1 << bit;
        if !volume.space.is_used(volume.view, page)? {
            findings.note(|| format!("{}: page {page} is free", whose()));
            is_new = false;
        }
    }
    Ok(is_new)
}

fn place(page: u32) -> (usize, u32) {
    (usize::try_from(page / 64).unwrap_or(usize::MAX), page % 64)
}

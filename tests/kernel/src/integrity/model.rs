//! What was acknowledged, as a journal of one line an operation; and the files that have to be there after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, bail};

/// An operation that was answered with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A new file, with the inode number that it was given.
    Create {
        path: String,
        file: u64,
        inode: u64,
    },
    /// A whole block.
    Write {
        file: u64,
        number: u64,
        generation: u64,
    },
    /// To this many blocks, up or down.
    Truncate {
        file: u64,
        blocks: u64,
    },
    /// `fsync`: from now on nothing of it may be lost.
    Sync {
        file: u64,
    },
    Link {
        from: String,
        to: String,
    },
    /// Of a file, over another one if there is one.
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    MakeDirectory {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { path, file, inode } => write!(f, "create {path} {file} {inode}"),
            Self::Write { file, number, generation } => write!(f, "write {file} {number} {generation}"),
            Self::Truncate { file, blocks } => write!(f, "truncate {file} {blocks}"),
            Self::Sync { file } => write!(f, "sync {file}"),
            Self::Link { from, to } => write!(f, "link {from} {to}"),
            Self::Rename { from, to } => write!(f, "rename {from} {to}"),
            Self::Remove { path } => write!(f, "remove {path}"),
            Self::MakeDirectory { path } => write!(f, "mkdir {path}"),
            Self::RemoveDirectory { path } => write!(f, "rmdir {path}"),
        }
    }
}

impl Op {
    /// Reads a line of the journal.
    pub(crate) fn read(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let text = |at: usize| words.get(at).map(|word| (*word).to_owned()).context("a word is missing");
        let number = |at: usize| Ok::<u64, anyhow::Error>(text(at)?.parse()?);
        Ok(match words[0] {
            "create" => Self::Create { path: text(1)?, file: number(2)?, inode: number(3)? },
            "write" => Self::Write { file: number(1)?, number: number(2)?, generation: number(3)? },
            "truncate" => Self::Truncate { file: number(1)?, blocks: number(2)? },
            "sync" => Self::Sync { file: number(1)? },
            "link" => Self::Link { from: text(1)?, to: text(2)? },
            "rename" => Self::Rename { from: text(1)?, to: text(2)? },
            "remove" => Self::Remove { path: text(1)? },
            "mkdir" => Self::MakeDirectory { path: text(1)? },
            "rmdir" => Self::RemoveDirectory { path: text(1)? },
            _ => bail!("`{line}` is no line of a journal"),
        })
    }
}

/// A file that has to be there.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) inode: u64,
    pub(crate) links: u64,
    /// The generation of each block, 0 for a hole, as a reader sees it while the client lives.
    pub(crate) now: Vec<u64>,
    /// The other states that a block may have when the client has died: those at the last `fsync`, and since.
    since: BTreeMap<u64, BTreeSet<u64>>,
    /// How many blocks there may be then.
    sizes: RangeInclusive<u64>,
}

impl File {
    fn new(inode: u64) -> Self {
        Self { inode, links: 1, now: Vec::new(), since: BTreeMap::new(), sizes: 0..=0 }
    }

    pub(crate) fn blocks(&self) -> u64 {
        u64::try_from(self.now.len()).unwrap_or(u64::MAX)
    }

    /// Says whether there may be this many blocks after the client has died.
    pub(crate) fn may_have(&self, blocks: u64) -> bool {
        self.sizes.contains(&blocks)
    }

    /// Says whether a block may be this one after the client has died.
    pub(crate) fn may_be(&self, number: u64, generation: u64) -> bool {
        self.since.get(&number).map_or(self.at(number) == generation, |since| since.contains(&generation))
    }

    /// Returns how many blocks have to be what they were at the last `fsync`.
    pub(crate) fn certain(&self) -> u64 {
        let certain = (0..self.blocks()).filter(|number| !self.since.contains_key(number)).count();
        u64::try_from(certain).unwrap_or(0)
    }

    fn at(&self, number: u64) -> u64 {
        usize::try_from(number).ok().and_then(|number| self.now.get(number)).copied().unwrap_or(0)
    }

    fn write(&mut self, number: u64, generation: u64) -> Result<()> {
        let at = usize::try_from(number)?;
        // What lies between is a hole from now on, and was nothing before: zeros both.
        if at >= self.now.len() {
            self.now.resize(at + 1, 0);
        }
        let before = std::mem::replace(&mut self.now[at], generation);
        self.since.entry(number).or_insert_with(|| BTreeSet::from([before])).insert(generation);
        self.sizes = *self.sizes.start()..=(*self.sizes.end()).max(self.blocks());
        Ok(())
    }

    /// A call of its own, which the server has answered: the client sends what it has before.
    fn truncate(&mut self, blocks: u64) -> Result<()> {
        self.now.resize(usize::try_from(blocks)?, 0);
        self.since.clear();
        self.sizes = blocks..=blocks;
        Ok(())
    }

    fn sync(&mut self) {
        self.since.clear();
        self.sizes = self.blocks()..=self.blocks();
    }
}

/// The files and directories that have to be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) names: BTreeMap<String, u64>,
    pub(crate) directories: BTreeSet<String>,
    pub(crate) files: BTreeMap<u64, File>,
}

impl Model {
    /// Returns what has to be there after a journal.
    pub(crate) fn after(journal: &str) -> Result<Self> {
        let mut model = Self::default();
        for (at, line) in journal.lines().enumerate() {
            Op::read(line)
                .and_then(|op| model.apply(&op))
                .with_context(|| format!("line {}: {line}", at + 1))?;
        }
        Ok(model)
    }

    /// Returns a file.
    pub(crate) fn file(&mut self, file: u64) -> Result<&mut File> {
        self.files.get_mut(&file).with_context(|| format!("there is no file {file:x}"))
    }

    /// Does an operation.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Create { path, file, inode } => {
                self.files.insert(*file, File::new(*inode));
                self.names.insert(path.clone(), *file);
            }
            Op::Write { file, number, generation } => self.file(*file)?.write(*number, *generation)?,
            Op::Truncate { file, blocks } => self.file(*file)?.truncate(*blocks)?,
            Op::Sync { file } => self.file(*file)?.sync(),
            Op::Link { from, to } => {
                let file = *self.names.get(from).context("no such name")?;
                self.file(file)?.links += 1;
                self.names.insert(to.clone(), file);
            }
            Op::Rename { from, to } => {
                let file = self.names.remove(from).context("no such name")?;
                if let Some(other) = self.names.insert(to.clone(), file) {
                    self.unlink(other)?;
                }
            }
            Op::Remove { path } => {
                let file = self.names.remove(path).context("no such name")?;
                self.unlink(file)?;
            }
            Op::MakeDirectory { path } => drop(self.directories.insert(path.clone())),
            Op::RemoveDirectory { path } => drop(self.directories.remove(path)),
        }
        Ok(())
    }

    fn unlink(&mut self, file: u64) -> Result<()> {
        let found = self.file(file)?;
        found.links -= 1;
        if found.links == 0 {
            self.files.remove(&file);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn after(journal: &str) -> Model {
        Model::after(journal).unwrap()
    }

    #[test]
    fn what_was_synced_is_certain_and_what_was_written_since_may_be_lost() {
        let model =
            after("create a 1 9\nwrite 1 0 1\nwrite 1 2 2\nsync 1\nwrite 1 0 3\nwrite 1 0 4\nwrite 1 4 5");
        let file = &model.files[&1];
        assert_eq!(file.now, [4, 0, 2, 0, 5]);
        // Block 0 is any of three, block 2 is what it was, block 4 is there or is not.
        assert!([1, 3, 4].iter().all(|it| file.may_be(0, *it)) && !file.may_be(0, 0));
        assert!(file.may_be(2, 2) && !file.may_be(2, 0));
        assert!(file.may_have(3) && file.may_have(5) && !file.may_have(2) && !file.may_have(6));
        assert_eq!(file.certain(), 3);
    }

    #[test]
    fn a_truncation_that_was_answered_is_certain() {
        let model = after("create a 1 9\nwrite 1 3 1\ntruncate 1 2\ntruncate 1 4");
        let file = &model.files[&1];
        assert!(file.may_have(4) && !file.may_have(2) && file.may_be(3, 0) && !file.may_be(3, 1));
    }

    #[test]
    fn names_and_links_are_counted() {
        let model = after("create a 1 9\nlink a b\ncreate c 2 8\nrename a c\nmkdir d\nmkdir e\nrmdir d");
        assert_eq!(model.names.keys().collect::<Vec<_>>(), ["b", "c"]);
        assert!(model.files[&1].links == 2 && !model.files.contains_key(&2));
        assert_eq!(model.directories.len(), 1);
        assert!(Model::after("remove a").is_err() && Model::after("nonsense").is_err());
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let lines = "create w/a 1 9\nwrite 1 2 3\ntruncate 1 4\nsync 1\nlink a b\nrename a b\nremove a\nmkdir d\nrmdir d";
        for line in lines.lines() {
            assert_eq!(Op::read(line).unwrap().to_string(), line);
        }
    }
}

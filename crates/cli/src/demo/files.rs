//! The story of a file system: a tree of files, and somebody who makes one more all the time.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use quorate_node::Caller;
use quorate_node::caller::{CallError, Options};
use quorate_node::files::{Entry, Files, FilesError};
use quorate_node::settings::ServiceName;

use super::load::{Account, Done, Load};
use super::{PATIENCE, Usage, grouped};
use crate::fs::{own_user, since_1970};
use crate::node::open_client;

/// Files of one directory.
const FILES_OF_DIR: u32 = 20;
/// Calls that are under way at a time.
const LANES: u16 = 32;
/// Where the tree is, and where more files are made.
const TREE: &str = "tree";
const MORE: &str = "more";

/// Somebody who writes files.
#[derive(Debug)]
pub(super) struct Tree {
    files: Arc<Files>,
    count: u32,
    bytes: u64,
}

impl Tree {
    /// Opens the file system as the client in `dir`.
    pub(super) fn open(dir: &Path, count: u32) -> Result<Self, String> {
        let node = open_client(dir, ServiceName::Fs).map_err(|failure| failure.what)?;
        let options = Options { lanes: LANES, deadline: PATIENCE };
        let caller = Caller::start(node.with_lanes(LANES), options).map_err(|trouble| trouble.what)?;
        let first = std::process::id() ^ since_1970();
        let files = Files::open(caller, &own_user(), "/", first).map_err(|error| error.to_string())?;
        Ok(Self { files: Arc::new(files), count, bytes: 0 })
    }

    fn find(&self, path: &str) -> Result<Vec<u8>, String> {
        self.files.find(path, false).map_err(|error| format!("{path}: {error}"))
    }

    fn names(&self, path: &str) -> Result<BTreeSet<String>, String> {
        let (dir, mut names) = (self.find(path)?, BTreeSet::new());
        let each = |entry: Entry| _ = names.insert(String::from_utf8_lossy(&entry.name).into_owned());
        self.files.list(&dir, each).map_err(|error| format!("{path}: {error}"))?;
        Ok(names)
    }

    fn dirs(&self) -> std::ops::Range<u32> {
        0..self.count.div_ceil(FILES_OF_DIR)
    }

    fn files_of(&self, dir: u32) -> std::ops::Range<u32> {
        dir * FILES_OF_DIR..((dir + 1) * FILES_OF_DIR).min(self.count)
    }
}

impl Usage for Tree {
    fn writes(&self) -> String {
        format!("wrote a tree of {} files", grouped(self.count))
    }

    fn write(&mut self) -> Result<(), String> {
        let root = self.find("")?;
        for name in [TREE, MORE] {
            self.files.make_directory(&root, name, 0o755).map_err(|error| failed(name, &error))?;
        }
        let tree = self.find(TREE)?;
        for dir in self.dirs() {
            self.files
                .make_directory(&tree, &dir_name(dir), 0o755)
                .map_err(|error| failed("mkdir", &error))?;
            let place = self.find(&format!("{TREE}/{}", dir_name(dir)))?;
            for file in self.files_of(dir) {
                let made = self
                    .files
                    .create(&place, &file_name(file), 0o644)
                    .map_err(|error| failed("create", &error))?;
                let mut content = &content(file)[..];
                self.bytes +=
                    self.files.write_from(&made, &mut content).map_err(|error| failed("write", &error))?;
            }
        }
        Ok(())
    }

    /// One call after the other, several for a file, and each waits until what it has read is committed.
    fn sample(&self) -> u32 {
        30
    }

    fn read(&mut self, most: u32) -> Result<(), String> {
        let expected: BTreeSet<String> = self.dirs().map(dir_name).collect();
        if self.names(TREE)? != expected {
            return Err("the directories of the tree are not those that were made".to_owned());
        }
        let mut read = 0;
        for dir in self.dirs() {
            let path = format!("{TREE}/{}", dir_name(dir));
            let expected: BTreeSet<String> = self.files_of(dir).map(file_name).collect();
            let found = self.names(&path)?;
            if let Some(missing) = expected.difference(&found).next() {
                return Err(format!("{path}/{missing} is missing"));
            }
            if let Some(strange) = found.difference(&expected).next() {
                return Err(format!("{path}/{strange} was made by nobody"));
            }
            for file in self.files_of(dir).take(usize::try_from(most - read).unwrap_or(0)) {
                let (path, mut data) = (format!("{path}/{}", file_name(file)), Vec::new());
                let said = self.files.read_to(&self.find(&path)?, &mut data);
                said.map_err(|error| format!("{path}: {error}"))?;
                if data != content(file) {
                    return Err(format!("{path} holds something else than was written"));
                }
                read += 1;
            }
        }
        Ok(())
    }

    fn load(&self) -> Result<Load, String> {
        let (files, dir, mut number) = (Arc::clone(&self.files), self.find(MORE)?, 0_u64);
        Ok(Load::start(move || {
            number += 1;
            match files.create(&dir, &number.to_string(), 0o644) {
                Ok(_) => Ok(Done::Acknowledged),
                Err(FilesError::Call(CallError::Unknown { .. })) => Ok(Done::Unknown),
                Err(FilesError::Call(CallError::Busy)) => Ok(Done::Nothing),
                Err(error) => Err(io::Error::other(error.to_string())),
            }
        }))
    }

    fn account(&mut self, account: Account) -> Result<String, String> {
        let found = u64::try_from(self.names(MORE)?.len()).unwrap_or(u64::MAX);
        let most = account.acknowledged + account.unknown;
        if !(account.acknowledged..=most).contains(&found) {
            let Account { acknowledged, unknown } = account;
            return Err(format!("{found} files are there, {acknowledged} acknowledged, {unknown} unknown"));
        }
        let (files, kib) = (grouped(self.count), self.bytes / 1024);
        Ok(format!("{files} of {files} files ({kib} KiB), and {found} made meanwhile"))
    }
}

fn failed(what: &str, error: &FilesError) -> String {
    format!("{what}: {error}")
}

fn dir_name(dir: u32) -> String {
    format!("{dir:04}")
}

fn file_name(file: u32) -> String {
    format!("file-{file:06}")
}

/// What a file is to hold: another length and other bytes for each, some next to the inode, some in many pages.
fn content(file: u32) -> Vec<u8> {
    let len = usize::try_from(file.wrapping_mul(7919) % 20_000).unwrap_or(0);
    let mut state = u64::from(file).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ() {
        assert!(content(1) != content(2) && content(1) == content(1) && content(1).len() == 7919);
    }
}

//! The workload of a file system: a tree of source files, and a load that creates one file after another.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use quorate_node::fsck;

use super::load::{Account, Load};
use super::place::{self, Place};
use super::source;
use super::usage::{Usage, grouped};

/// Number of files in a directory.
const FILES_OF_DIR: u32 = 20;
/// The tree, the directory of the load's files, and the compiled program.
const TREE: &str = "tree";
const MORE: &str = "more";
const PROGRAM: &str = "program";

/// Checks the file system of a replica that has stopped.
pub(super) fn check(replica: &Path) -> Result<String, String> {
    let checked = fsck::check(replica).map_err(|trouble| trouble.what)?;
    if checked.is_clean() {
        return Ok(format!("{} inodes", checked.report.inodes));
    }
    let first = checked.report.findings.first().map_or("the state is not the agreed one", String::as_str);
    Err(format!("the file system: {first}"))
}

/// A workload that writes files.
#[derive(Debug)]
pub(super) struct Tree {
    place: Arc<dyn Place>,
    count: u32,
    bytes: usize,
}

impl Tree {
    /// Opens the file system as the client in `client`. Mount point and logs go to `beside`.
    pub(super) fn open(client: &Path, beside: &Path, count: u32) -> Result<Self, String> {
        Ok(Self { place: Arc::from(place::open(client, beside)?), count, bytes: 0 })
    }

    fn dirs(&self) -> std::ops::Range<u32> {
        0..self.count.div_ceil(FILES_OF_DIR)
    }

    fn files_of(&self, dir: u32) -> std::ops::Range<u32> {
        dir * FILES_OF_DIR..((dir + 1) * FILES_OF_DIR).min(self.count)
    }

    fn write_one(&mut self, path: &str, text: &str) -> Result<(), String> {
        self.bytes += text.len();
        self.place.write(&format!("{TREE}/{path}"), text.as_bytes())
    }

    fn read_one(&self, path: &str, text: &str) -> Result<(), String> {
        let path = format!("{TREE}/{path}");
        let found = self.place.read(&path)?;
        if found == text.as_bytes() { Ok(()) } else { Err(format!("{path} does not hold what was written")) }
    }

    /// Compares the names in a directory of the tree.
    fn compare(&self, path: &str, expected: &BTreeSet<String>) -> Result<(), String> {
        let found = self.place.names(path)?;
        if let Some(missing) = expected.difference(&found).next() {
            return Err(format!("{path}/{missing} is missing"));
        }
        match found.difference(expected).next() {
            Some(strange) => Err(format!("{path}/{strange} should not exist")),
            None => Ok(()),
        }
    }

    /// Compiles and runs the tree in the mount, if this machine can do that, and reports it.
    fn compile(&self) -> Result<&'static str, String> {
        match self.place.mounted_on() {
            Some(on) if on.parent().is_some_and(source::can_be_compiled) => {
                source::compile(&on.join(TREE), &on.join(PROGRAM), path_of, self.count)?;
                Ok("compiled and run, ")
            }
            _ => Ok(""),
        }
    }
}

impl Usage for Tree {
    fn writes(&self) -> String {
        let how = if self.place.mounted_on().is_some() {
            "through a FUSE mount"
        } else {
            "(no FUSE on this machine)"
        };
        format!("wrote a tree of {} files {how}", grouped(self.count))
    }

    fn write(&mut self) -> Result<(), String> {
        for name in [TREE, MORE] {
            self.place.make_directory(name)?;
        }
        self.write_one(source::MAIN, &source::main(self.count))?;
        for dir in self.dirs() {
            self.place.make_directory(&format!("{TREE}/{}", dir_name(dir)))?;
            for file in self.files_of(dir) {
                self.write_one(&path_of(file), &source::text(file))?;
            }
        }
        Ok(())
    }

    /// Few: each file takes several calls, one after the other, and each waits until what it read has committed.
    fn sample(&self) -> u32 {
        30
    }

    fn read(&mut self, most: u32) -> Result<(), String> {
        self.compare(TREE, &self.dirs().map(dir_name).chain([source::MAIN.to_owned()]).collect())?;
        self.read_one(source::MAIN, &source::main(self.count))?;
        for dir in self.dirs() {
            let expected = self.files_of(dir).map(file_name).collect();
            self.compare(&format!("{TREE}/{}", dir_name(dir)), &expected)?;
            for file in self.files_of(dir).filter(|file| *file < most) {
                self.read_one(&path_of(file), &source::text(file))?;
            }
        }
        Ok(())
    }

    fn load(&self) -> Result<Load, String> {
        let (place, mut number) = (Arc::clone(&self.place), 0_u64);
        Ok(Load::start(move || {
            number += 1;
            place.add(&format!("{MORE}/{number}"))
        }))
    }

    fn account(&mut self, account: Account) -> Result<String, String> {
        let found = u64::try_from(self.place.names(MORE)?.len()).unwrap_or(u64::MAX);
        let most = account.acknowledged + account.unknown;
        if !(account.acknowledged..=most).contains(&found) {
            let Account { acknowledged, unknown } = account;
            return Err(format!("{found} files are there, {acknowledged} acknowledged, {unknown} unknown"));
        }
        let compiled = self.compile()?;
        let (files, kib) = (grouped(self.count), self.bytes / 1024);
        Ok(format!("{files} of {files} files ({kib} KiB), {compiled}and {found} created during the faults"))
    }
}

fn dir_name(dir: u32) -> String {
    format!("{dir:04}")
}

fn file_name(file: u32) -> String {
    format!("f{file:06}.c")
}

/// Where a file is in the tree.
fn path_of(file: u32) -> String {
    format!("{}/{}", dir_name(file / FILES_OF_DIR), file_name(file))
}

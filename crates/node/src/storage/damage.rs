//! The damage that disks do to files, one sector at a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const SECTOR: usize = 512;
/// Ways to damage a sector.
pub(super) const FAULTS: usize = 6;

/// The files of a directory.
pub(super) type Content = BTreeMap<PathBuf, Vec<u8>>;

/// Returns the files in a directory.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Reads the files of a directory.
pub(super) fn content(dir: &Path) -> Content {
    files(dir).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Makes a directory hold exactly these files.
pub(super) fn put_back(dir: &Path, good: &Content) {
    for path in files(dir) {
        if !good.contains_key(&path) {
            fs::remove_file(path).unwrap();
        }
    }
    for (path, bytes) in good {
        fs::write(path, bytes).unwrap();
    }
}

/// Returns a file with the sector at `at` damaged in one of [`FAULTS`] ways: a bit flips, it reads as zeros, it is
/// torn, another sector or an earlier version (`early`) is in its place, or its block was never written. None if that
/// changes nothing.
pub(super) fn damaged(bytes: &[u8], early: Option<&Vec<u8>>, at: usize, fault: usize) -> Option<Vec<u8>> {
    let mut bad = bytes.to_vec();
    let end = (at + SECTOR).min(bytes.len());
    match fault {
        0 => bad[at + (at / SECTOR * 37) % (end - at)] ^= 0x20,
        1 => bad[at..end].fill(0),
        2 => bad[at + (end - at) / 2..end].fill(0),
        3 => {
            let other = (at + 4096) % (bytes.len() - (end - at)).max(1);
            bad.copy_within(other..other + (end - at), at);
        }
        4 => bad[at..end].copy_from_slice(early?.get(at..end)?),
        _ => {
            let block = at / 4096 * 4096;
            let end = (block + 4096).min(bytes.len());
            bad[block..end].fill(0);
        }
    }
    (bad != bytes).then_some(bad)
}

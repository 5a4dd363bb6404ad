//! The images of checkpoints: `checkpoint/<number>.img`, as `service/image.rs` makes them.
//!
//! An image is written beside its place, made durable, and then put there: a crash leaves the one before.
//! Whether it is good shows when it is loaded: every page has its digest in the root.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use quorate_wire::SeqNum;

use super::log::files;
use super::sync_dir;
use crate::trouble::Trouble;

/// Images that are kept: the newest, and one before it.
const KEPT: usize = 2;

/// Returns the images in a directory, newest first.
pub(super) fn list(dir: &Path) -> Result<Vec<(SeqNum, PathBuf)>, Trouble> {
    let mut found = Vec::new();
    for path in files(dir)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if let Some(seq) = name.strip_suffix(".img").and_then(|seq| seq.parse().ok()) {
            found.push((SeqNum(seq), path));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Removes every image.
pub(super) fn clear(dir: &Path) -> Result<(), Trouble> {
    for path in files(dir)? {
        fs::remove_file(&path).map_err(|error| Trouble::unwritable(&path, &error))?;
    }
    sync_dir(dir)
}

/// Writes an image, and drops the ones that are not needed any more.
pub(super) fn write(dir: &Path, seq: SeqNum, bytes: &[u8]) -> Result<(), Trouble> {
    let (path, draft) = (dir.join(format!("{:020}.img", seq.0)), dir.join("draft"));
    let written = File::create(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    });
    if let Err(error) = written {
        let _ = fs::remove_file(&draft);
        return Err(Trouble::unwritable(&path, &error));
    }
    sync_dir(dir)?;
    for (_, old) in list(dir)?.into_iter().skip(KEPT) {
        fs::remove_file(&old).map_err(|error| Trouble::unwritable(&old, &error))?;
    }
    Ok(())
}

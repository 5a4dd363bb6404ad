//! In another guest, after everything was started again: whether all is there that the journals say was acknowledged.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::block::{self, BYTES};
use super::model::Model;
use super::work::WORKERS;

/// The line after which the host restarts everything, and the file that tells the guest that it has.
pub(crate) const RESTART: &str = "guest: start everything again";
pub(crate) const RESTARTED: &str = "restarted";
const PATIENCE: Duration = Duration::from_secs(180);
/// The number of files that stay open while everything is restarted.
const HELD: usize = 64;
/// Ordered operations at the end: enough for a checkpoint of everything before.
const MORE: u32 = 160;

/// Checks the current directory; `dir` has the journals. Returns what is wrong.
pub(crate) fn verify(dir: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let (mut files, mut certain, mut held) = (0, 0, Vec::new());
    for number in 0..WORKERS {
        let journal = fs::read_to_string(dir.join(format!("journal-{number}")))?;
        let model = Model::after(&journal).with_context(|| format!("journal {number}"))?;
        let found = tree(&format!("w{number}"))?;
        let expected: BTreeSet<String> = model.names.keys().chain(&model.directories).cloned().collect();
        wrong.extend(expected.difference(&found).map(|path| format!("{path} is not there")));
        wrong.extend(found.difference(&expected).map(|path| format!("{path} is there, and must not be")));
        for (path, file) in model.names.iter().filter(|(path, _)| found.contains(*path)) {
            let expected = &model.files[file];
            match check(path, *file, expected) {
                Ok(more) => wrong.extend(more.into_iter().map(|wrong| format!("{path}: {wrong}"))),
                Err(error) => wrong.push(format!("{path}: {error:#}")),
            }
            files += 1;
            certain += expected.certain();
            if held.len() < HELD / usize::try_from(WORKERS)? * usize::try_from(number + 1)? {
                held.push((path.clone(), *file, expected.inode, File::open(path)?));
            }
        }
    }
    println!("verified: {files} files, {certain} blocks certain, {} wrong", wrong.len());
    let before: Vec<Vec<u8>> = held.iter().map(|(.., file)| read(file)).collect::<Result<_>>()?;
    println!("{RESTART}");
    let begin = Instant::now();
    while !dir.join(RESTARTED).exists() {
        if begin.elapsed() > PATIENCE {
            bail!("nothing was started again");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    forget()?;
    for ((path, _, inode, file), before) in held.iter().zip(&before) {
        let after =
            file.metadata().and_then(|data| Ok((data.ino(), read(file).map_err(std::io::Error::other)?)));
        match after {
            Ok((found, _)) if found != *inode => {
                wrong.push(format!("{path} is inode {found} after the restart, instead of {inode}"));
            }
            Ok((_, after)) if after != *before => wrong.push(format!("{path} has changed with the restart")),
            Ok(_) => {}
            Err(error) => wrong.push(format!("{path}, open since before the restart: {error}")),
        }
    }
    println!("held: {} files over a restart of everything", held.len());
    for number in 0..MORE {
        let path = format!("more-{number}");
        fs::create_dir(&path).and_then(|()| fs::remove_dir(&path)).context(path)?;
    }
    Ok(wrong)
}

/// Returns all paths below one, itself too. What a client that died has renamed because it was open is left out.
fn tree(path: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::from([path.to_owned()]);
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let below = format!("{path}/{name}");
        if entry.file_type()?.is_dir() {
            found.extend(tree(&below)?);
        } else if !name.starts_with(".nfs") && !found.insert(below.clone()) {
            bail!("{below} is listed twice");
        }
    }
    Ok(found)
}

/// Compares a file with what it has to be.
fn check(path: &str, file: u64, expected: &super::model::File) -> Result<Vec<String>> {
    let opened = File::open(path)?;
    let data = opened.metadata()?;
    let bytes = read(&opened)?;
    let mut wrong = Vec::new();
    if (data.ino(), data.nlink()) != (expected.inode, expected.links) {
        let (inode, links) = (expected.inode, expected.links);
        wrong.push(format!(
            "inode {} with {} links instead of {inode} with {links}",
            data.ino(),
            data.nlink()
        ));
    }
    let (len, block) = (u64::try_from(bytes.len())?, u64::try_from(BYTES)?);
    if len % block != 0 || !expected.may_have(len / block) || len != data.len() {
        wrong.push(format!("{len} bytes, which it cannot have"));
    }
    for (number, bytes) in (0..).zip(bytes.chunks(BYTES)) {
        match block::generation(bytes, file, number) {
            Ok(generation) if expected.may_be(number, generation) => {}
            Ok(generation) => wrong.push(format!("block {number} is of generation {generation}")),
            Err(what) => wrong.push(format!("block {number}: {what}")),
        }
    }
    Ok(wrong)
}

fn read(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Drops what the client has cached.
fn forget() -> Result<()> {
    Ok(fs::write("/proc/sys/vm/drop_caches", "3")?)
}

//! What a file costs in a directory of a million, and in one of a thousand: made, looked at, listed, removed.
//!
//! The guest fills the large directory first. Then rounds alternate between it and new directories of a thousand, so
//! that both see the same machine; the client forgets names and attributes before it looks and before it lists.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::figures::median;

/// Files of the large directory if nothing else is said.
pub(crate) const FILES: u64 = 1_000_000;
/// Files of a small directory, and what a round makes, looks at and removes.
const SMALL: u64 = 1_000;
const ROUNDS: u64 = 9;
/// How much more a file may cost in the large one.
const BOUND: f64 = 1.5;
const WHAT: [&str; 4] = ["create", "stat", "list", "remove"];

/// Returns the script that the guest runs.
pub(crate) fn script(files: u64) -> Result<String> {
    let own = std::env::current_exe()?;
    Ok(format!("umask 022\n'{}' kernel guest directory {files}\n", own.display()))
}

/// In the guest: measures in the current directory, and prints microseconds a file.
pub(crate) fn measure(files: u64) -> Result<()> {
    if files < SMALL {
        bail!("the large directory needs {SMALL} files or more");
    }
    let large = Path::new("large");
    fs::create_dir(large)?;
    let begin = Instant::now();
    for number in 0..files {
        File::create_new(name(large, number))?;
        if number % 100_000 == 0 && number > 0 {
            println!("filled: {number} of {files}, {:.0} us a file", micros(begin, number));
        }
    }
    println!("filled: {files}, {:.0} us a file", micros(begin, files));
    for round in 0..ROUNDS {
        let dir = PathBuf::from(format!("small-{round}"));
        fs::create_dir(&dir)?;
        let small = one(&dir, 0, 0..SMALL)?;
        let old = (0..SMALL).map(|at| spread(round * SMALL + at, files));
        let large = one(large, files, old)?;
        for (what, (small, large)) in WHAT.iter().zip(small.into_iter().zip(large)) {
            println!("took {what} {small:.2} {large:.2}");
        }
    }
    Ok(())
}

/// Makes a thousand files behind the `there` that are there, looks at those of the numbers, lists all, and removes
/// those of the numbers that there were and as many as were made; returns microseconds a file.
fn one(dir: &Path, there: u64, looked: impl Iterator<Item = u64>) -> Result<[f64; 4]> {
    let looked: Vec<PathBuf> = looked.map(|number| name(dir, number)).collect();
    let made: Vec<PathBuf> = (there..there + SMALL).map(|number| name(dir, number)).collect();
    let time = |paths: &[PathBuf], act: &dyn Fn(&Path) -> std::io::Result<()>| -> Result<f64> {
        let begin = Instant::now();
        for path in paths {
            act(path).with_context(|| path.display().to_string())?;
        }
        Ok(micros(begin, SMALL))
    };
    let create = time(&made, &|path| File::create_new(path).map(drop))?;
    forget()?;
    let stat = time(&looked, &|path| fs::metadata(path).map(drop))?;
    forget()?;
    let begin = Instant::now();
    let mut listed = 0;
    for entry in fs::read_dir(dir)? {
        entry?;
        listed += 1;
    }
    if listed != there + SMALL {
        bail!("{} has {} files, and lists {listed}", dir.display(), there + SMALL);
    }
    let list = micros(begin, listed);
    // Of a large one others than those that have just been made: they are all over it.
    let remove = time(&looked, &|path| fs::remove_file(path))?;
    if there > 0 {
        time(&looked, &|path| File::create_new(path).map(drop))?;
        time(&made, &|path| fs::remove_file(path))?;
    }
    Ok([create, stat, list, remove])
}

/// Has the client forget names and attributes.
fn forget() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "2").context("the client's caches")
}

fn name(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file-{number:07}"))
}

/// Different numbers below `count`, in no order.
fn spread(number: u64, count: u64) -> u64 {
    // An odd number that divides no count near a power of ten.
    number.wrapping_mul(7_654_321) % count
}

fn micros(begin: Instant, files: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of files")]
    let files = files as f64;
    begin.elapsed().as_secs_f64() * 1e6 / files
}

/// Says how it went, and whether that is as good as it has to be.
pub(crate) fn judge(lines: &[String]) -> (String, bool) {
    let mut good = true;
    let mut says = Vec::new();
    for what in WHAT {
        let begin = format!("took {what} ");
        let rounds = lines.iter().filter_map(|line| line.strip_prefix(&begin));
        let both: Vec<(f64, f64)> = rounds
            .filter_map(|round| round.split_once(' '))
            .filter_map(|(small, large)| Some((small.parse().ok()?, large.parse().ok()?)))
            .collect();
        if both.is_empty() {
            return ("it did not come to its end".to_owned(), false);
        }
        let (small, large): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
        let (small, large) = (median(&small), median(&large));
        good &= large <= BOUND * small;
        says.push(format!("{what} {small:.1} and {large:.1} us ({:.2} times)", large / small));
    }
    (format!("a file in a directory of {SMALL} and in the large one: {}", says.join(", ")), good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn medians_decide() {
        let calm = ["took stat 10 11", "took list 1 1", "took remove 10 12"];
        let creates = ["took create 10 14", "took create 10 15", "took create 10 900"];
        let (says, good) = judge(&said(&[&creates[..], &calm].concat()));
        assert!(good && says.contains("create 10.0 and 15.0 us (1.50 times)"), "{says}");
        let (_, good) = judge(&said(&[&creates[1..], &calm].concat()));
        assert!(!good, "the middle of two");
        assert!(!judge(&said(&creates)).1, "it ended early");
    }

    #[test]
    fn numbers_are_all_different() {
        let count = 1_000_000;
        let mut numbers: Vec<u64> = (0..ROUNDS * SMALL).map(|at| spread(at, count)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len() as u64, ROUNDS * SMALL);
    }
}

//! Nothing that was acknowledged is lost or done twice, while the primary is killed every five seconds.
//!
//! In a run, workers in a guest create, write, rename, truncate, sync, link and remove files for 60 s, and keep a
//! journal of the answers on the host. Then the guest is destroyed, with data that it has not sent. All replicas and
//! the gateway are restarted, and another guest compares the files with the journal. It keeps files open
//! while everything is restarted once more: their handles must still work. At the end all replicas must have
//! the same state at a checkpoint after all that, and their file systems must be in order.

mod block;
mod model;
mod verify;
mod work;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::directory;
use super::disturbance::Disturbance;
use super::host::{Host, REPLICAS};
use super::machine::Machine;

/// An argument of every guest's kernel, by which a guest is recognised.
const GUEST: &str = "q_run=";
/// The host's directory, as seen from the guest.
const SHARED: &str = "/mnt/host";
/// The longest time until idle replicas have the same state.
const PATIENCE: Duration = Duration::from_secs(180);

/// The part that runs in the guest: `work SEED SECONDS`, `verify`, or the suite `directory` with its files.
pub(crate) fn guest(args: &[String]) -> Result<()> {
    // It switches the machine off at the end: never a real one.
    if !fs::read_to_string("/proc/cmdline")?.contains(GUEST) {
        bail!("this is run by `kernel`, in its guest");
    }
    let shared = Path::new(SHARED);
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["work", seed, seconds] => {
            work::work(seed.parse()?, seconds.parse()?, shared)?;
            // Off, without closing or unmounting anything.
            fs::write("/proc/sysrq-trigger", "o")?;
            std::thread::sleep(PATIENCE);
            Ok(())
        }
        ["verify"] => {
            let wrong = verify::verify(shared)?;
            for wrong in &wrong {
                println!("FAILED  {wrong}");
            }
            if wrong.is_empty() { Ok(()) } else { bail!("{} things are wrong", wrong.len()) }
        }
        ["directory", files] => directory::measure(files.parse()?),
        _ => bail!("work SEED SECONDS, verify or directory FILES was expected"),
    }
}

/// Makes the runs that have not passed yet with this program, each from a seed. Passed runs are recorded in a file, so
/// the same command continues where the last one stopped. The records are in `cache`, the clusters in `dir`.
pub(crate) fn runs(
    machine: &Machine,
    program: &Path,
    cache: &Path,
    dir: &Path,
    (runs, seconds): (RangeInclusive<u64>, u64),
) -> Result<()> {
    let notes = cache.join("integrity.txt");
    let passed = format!("passed with {} in {seconds} s", name_of(program)?);
    let old = fs::read_to_string(&notes).unwrap_or_default();
    let begins = |seed: u64| format!("seed {seed} {passed}:");
    let due: Vec<u64> =
        runs.clone().filter(|seed| !old.lines().any(|line| line.starts_with(&begins(*seed)))).collect();
    println!("integrity: {} of the runs {runs:?} are due, see {}", due.len(), notes.display());
    let mut failed = Vec::new();
    for seed in due {
        let dir = dir.join(format!("integrity-{seed}"));
        match one(machine, program, &dir, seed, seconds) {
            Ok(said) => {
                println!("integrity: seed {seed}: {said}");
                let mut notes = File::options().create(true).append(true).open(&notes)?;
                writeln!(notes, "{} {said}", begins(seed))?;
                fs::remove_dir_all(&dir)?;
            }
            Err(error) => {
                println!("integrity: seed {seed} DID NOT PASS: {error:#}; see {}", dir.display());
                failed.push(seed);
            }
        }
    }
    if !failed.is_empty() {
        bail!("these seeds did not pass: {failed:?}");
    }
    println!("integrity: all of {runs:?} have passed");
    Ok(())
}

fn one(machine: &Machine, program: &Path, dir: &Path, seed: u64, seconds: u64) -> Result<String> {
    let trouble = Disturbance::Kills;
    let mut host = Host::start(dir, program, trouble.durability())?;
    let own = std::env::current_exe()?;
    let script = |what: &str| format!("umask 022\n'{}' kernel guest {what}\n", own.display());
    let worked = trouble.while_running(&host, || {
        machine.boot(&host, dir, &script(&format!("work {seed} {seconds}")))?.listen(|_| Ok(()))
    });
    let (lines, kills) = worked?;
    keep(dir, "worked.txt", &lines)?;
    let did = find(&lines, "worked: ")?;
    if kills == 0 {
        bail!("no primary was killed");
    }
    host.close()?;
    host.open(&[])?;
    let guest = machine.boot(&host, dir, &script("verify"))?;
    let lines = guest.listen(|line| {
        if line == verify::RESTART {
            host.close()?;
            host.open(&[])?;
            fs::write(dir.join(verify::RESTARTED), "")?;
        }
        Ok(())
    })?;
    keep(dir, "verified.txt", &lines)?;
    let (verified, held) = (find(&lines, "verified: ")?, find(&lines, "held: ")?);
    find(&lines, "guest: status 0")?;
    let (at, digest) = agree(&host)?;
    host.close()?;
    for replica in 0..REPLICAS {
        let found = host.fsck(replica)?;
        if found["clean"] != true || found["agrees"] != true {
            bail!("the file system of replica {replica}: {found}");
        }
    }
    Ok(format!(
        "{kills} kills; {did}; {verified}; {held}; {REPLICAS} replicas have state {digest:.16} at {at}, and clean"
    ))
}

/// Waits until all replicas say the same of one checkpoint, and returns that.
fn agree(host: &Host) -> Result<(u64, String)> {
    let begin = Instant::now();
    loop {
        let replicas = host.replicas()?;
        let said: Vec<(Option<u64>, Option<&str>)> = replicas
            .iter()
            .map(|replica| (replica["state_digest_at"].as_u64(), replica["state_digest"].as_str()))
            .collect();
        if let [(Some(at), Some(digest)), others @ ..] = said.as_slice()
            && others.len() == REPLICAS - 1
            && others.iter().all(|(other, _)| *other == Some(*at))
        {
            if others.iter().any(|(_, other)| *other != Some(*digest)) {
                bail!("states differ at {at}: {said:?}");
            }
            if *at > 0 {
                return Ok((*at, (*digest).to_owned()));
            }
        }
        if begin.elapsed() > PATIENCE {
            bail!("the replicas do not come to one checkpoint: {said:?}");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the line that begins with this; failures are reported first.
fn find(lines: &[String], begin: &str) -> Result<String> {
    let failed: Vec<&str> =
        lines.iter().filter(|line| line.starts_with("FAILED")).map(String::as_str).collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("\n  "));
    }
    let found = lines.iter().find(|line| line.starts_with(begin));
    found.cloned().with_context(|| format!("it did not come to `{begin}`"))
}

fn keep(dir: &Path, name: &str, lines: &[String]) -> Result<()> {
    Ok(fs::write(dir.join(name), lines.join("\n"))?)
}

/// A short name for what is in a file.
fn name_of(program: &Path) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(program)?);
    Ok(format!("{:016x}", hasher.finish()))
}

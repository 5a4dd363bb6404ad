//! The tests of Redis itself, in their external mode, on the gateway and on a Redis server.
//!
//! The sources are those of Debian's package. What Redis passes and the gateway does not has a reason in
//! `tests/redis/suite.txt`: it is not run on the gateway, and counts as failed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use xtask::{root, run as run_it};

const ARCHIVE: &str = "redis_7.0.15.orig.tar.gz";
const POOL: &str = "http://deb.debian.org/debian/pool/main/r/redis/";
const SHA256: &str = "4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982";
const UNITS: [&str; 9] = [
    "unit/type/string",
    "unit/type/incr",
    "unit/expire",
    "unit/keyspace",
    "unit/scan",
    "unit/protocol",
    "unit/multi",
    "unit/type/hash",
    "unit/type/set",
];
const TAGS: &str = "-needs:debug -needs:repl -needs:config-maxmemory -needs:save";
/// The share of what Redis passes that the gateway has to pass, in percent.
const WANTED: usize = 90;

/// Returns the directory of Redis's sources, which are fetched for the first run.
pub(super) fn source(home: &Path) -> Result<PathBuf> {
    let source = home.join("redis-7.0.15");
    if source.join("runtest").exists() {
        return Ok(source);
    }
    fs::create_dir_all(home)?;
    let archive = home.join(ARCHIVE);
    run_it(
        Command::new("curl")
            .args(["-sSfL", "--max-time", "300", "-o"])
            .arg(&archive)
            .arg(format!("{POOL}{ARCHIVE}")),
    )?;
    let sum = Command::new("sha256sum").arg(&archive).output().context("cannot start sha256sum")?;
    if !sum.stdout.starts_with(SHA256.as_bytes()) {
        bail!("{} is not Debian's", archive.display());
    }
    run_it(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(home))?;
    // Every unit begins with FUNCTION FLUSH, to have no functions. The gateway has none, and no such command.
    let setup = source.join("tests/support/server.tcl");
    let text = fs::read_to_string(&setup)?;
    let changed = text.replace("\n    r function flush\n", "\n    catch {r function flush}\n");
    if changed == text {
        bail!("{} is not as expected", setup.display());
    }
    fs::write(&setup, changed)?;
    Ok(source)
}

/// What a unit passed.
#[derive(Debug, Default)]
struct UnitResult {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// Why the unit ended early.
    ended: Option<String>,
}

impl UnitResult {
    fn read(text: &str) -> Self {
        let mut result = Self::default();
        for line in text.lines() {
            let line = plain(line);
            if let Some(name) = line.strip_prefix("[ok]: ") {
                let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
                result.passed.insert(name.to_owned());
            } else if let Some(name) = line.strip_prefix("[err]: ") {
                let name = name.rsplit_once(" in tests/").map_or(name, |(name, _)| name);
                result.failed.insert(name.to_owned());
            } else if line.starts_with("[exception]") {
                result.ended = Some(line);
            }
        }
        // A name is given to several tests in places: all of them have to pass.
        let failed = &result.failed;
        result.passed.retain(|name| !failed.contains(name));
        result
    }
}

/// Returns a line without the colours of a terminal.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut text = parts.next().unwrap_or("").to_owned();
    for part in parts {
        text += part.split_once('m').map_or("", |(_, rest)| rest);
    }
    text
}

/// Runs the units on the gateway and on the server, prints what each passes, and fails if there is less than is wanted, or a
/// failure without a reason.
pub(super) fn run(home: &Path, source: &Path, [gateway, server]: [u16; 2]) -> Result<()> {
    let reasons = reasons()?;
    let (mut wanted, mut got, mut unknown) = (0, 0, 0);
    println!("{:<20} {:>7} {:>9}  failures with their reasons", "unit", "Redis", "quorate");
    for unit in UNITS {
        let known = reasons.iter().filter(|(of, ..)| unit.ends_with(of));
        let skipped: Vec<&str> = known.map(|(_, name, _)| name.as_str()).collect();
        let redis = one(home, source, unit, server, &[])?;
        let quorate = one(home, source, unit, gateway, &skipped)?;
        let missing: Vec<&String> = redis.passed.difference(&quorate.passed).collect();
        let held = redis.passed.len() - missing.len();
        println!("{unit:<20} {:>7} {held:>9}", redis.passed.len());
        quorate.ended.iter().for_each(|why| println!("    ended early: {why}"));
        for name in missing {
            let reason = reasons.iter().find(|(of, test, _)| unit.ends_with(of) && test == name);
            unknown += usize::from(reason.is_none());
            println!("    {name}: {}", reason.map_or("NO REASON IS KNOWN", |(.., why)| why));
        }
        wanted += redis.passed.len();
        got += held;
    }
    println!(
        "together: {got} of {wanted}, {}.{} %",
        got * 100 / wanted.max(1),
        got * 1000 / wanted.max(1) % 10
    );
    if got * 100 < wanted * WANTED || wanted == 0 {
        bail!("less than {WANTED} % of what Redis passes");
    }
    if unknown > 0 {
        bail!("{unknown} failures have no reason in tests/redis/suite.txt");
    }
    Ok(())
}

/// Runs a unit on a server, without some of its tests.
fn one(home: &Path, source: &Path, unit: &str, port: u16, skipped: &[&str]) -> Result<UnitResult> {
    let output = Command::new("./runtest")
        .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--durable", "--ignore-encoding"])
        // Commands for debugging, replicas, eviction and snapshots of Redis are not what is asked about.
        .args(["--ignore-digest", "--tags", TAGS, "--single", unit])
        // A test that fails may leave its connection in a transaction, and then others fail as well.
        .args(skipped.iter().flat_map(|name| ["--skiptest", name]))
        .current_dir(source)
        .stdin(Stdio::null())
        .output()
        .context("cannot start Redis's runtest: it needs tclsh")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    fs::write(home.join(format!("{}-{port}.txt", unit.replace('/', "-"))), &text)?;
    Ok(UnitResult::read(&text))
}

/// Reads the reasons: unit, name of the test, reason.
fn reasons() -> Result<Vec<(String, String, String)>> {
    let text = fs::read_to_string(root().join("tests/redis/suite.txt"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.split(" | ").map(str::to_owned);
            match (parts.next(), parts.next(), parts.next()) {
                (Some(unit), Some(name), Some(reason)) => Ok((unit, name, reason)),
                _ => bail!("tests/redis/suite.txt: no line of unit | test | reason: {line}"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_unit_is_read() {
        let text = "[\u{1b}[0;32;49mok\u{1b}[0m]: SET and GET (with blanks) (12 ms)\n\
                    *** [err]: other in tests/unit/x.tcl\n\
                    [\u{1b}[0;31;49merr\u{1b}[0m]: twice in tests/unit/x.tcl\n\
                    [\u{1b}[0;32;49mok\u{1b}[0m]: twice (0 ms)\n\
                    [\u{1b}[0;31;49mexception\u{1b}[0m]: Executing test client: ERR no.\n";
        let result = UnitResult::read(text);
        assert_eq!(result.passed, BTreeSet::from(["SET and GET (with blanks)".to_owned()]));
        assert_eq!(result.failed, BTreeSet::from(["twice".to_owned()]));
        assert!(result.ended.is_some_and(|why| why.ends_with("ERR no.")));
    }
}

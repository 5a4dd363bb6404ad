//! Counts machine instructions, which do not depend on other load on the machine.
//!
//! A virtual machine often has no hardware counters, so valgrind counts. The same work is run with two numbers of
//! operations; the difference excludes the start and the key exchange.
//! (Valgrind has no AVX-512; the hash uses AVX2 under it, which takes more instructions.)

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Operations of the shorter run: past the warm-up, in which the replicas fill their window and their archive of batches.
const SHORT: u64 = 2048;
/// Operations of the longer run.
const LONG: u64 = 3072;

/// Returns the instructions of one operation in steady state; none where there is no valgrind. The child
/// process gets the number of operations as its last argument.
///
/// # Errors
///
/// Valgrind is installed, but its output is unexpected.
pub fn per_op(arguments: &[&str]) -> Result<Option<f64>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(None);
    }
    let (short, long) = (count(SHORT, arguments)?, count(LONG, arguments)?);
    Ok(Some(crate::figures::ratio(long.saturating_sub(short), LONG - SHORT)))
}

fn count(ops: u64, arguments: &[&str]) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(crate::processes::CHILD)
        .args(arguments)
        .arg(ops.to_string())
        .output()
        .context("valgrind does not start")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {text}");
    let line =
        text.lines().find_map(|line| line.split_once("I   refs:")).context("valgrind counts nothing")?;
    Ok(line.1.trim().replace(',', "").parse()?)
}

//! Runs other programs: what is run is printed first, and a failure says what failed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let root = Path::new(&here).ancestors().find(|directory| directory.join("Cargo.lock").exists());
    root.map(Path::to_path_buf).unwrap_or_default()
}

/// Returns a `cargo` command in the root of the workspace.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(args).current_dir(root());
    command
}

/// Runs to the end, with its output on ours.
///
/// # Errors
///
/// When it cannot be started or does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    announce(command)?;
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    if !status.success() {
        bail!("failed: {} ({status})", line(command));
    }
    Ok(())
}

/// Runs to the end like [`run`], and returns the lines of its standard output as well.
///
/// # Errors
///
/// As [`run`].
pub fn run_and_read(command: &mut Command) -> Result<Vec<String>> {
    announce(command)?;
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {}", line(command)))?;
    let mut lines = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).lines() {
            let text = text?;
            writeln!(std::io::stdout(), "{text}")?;
            lines.push(text);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("failed: {} ({status})", line(command));
    }
    Ok(lines)
}

/// Runs quietly and returns its standard output.
///
/// # Errors
///
/// When it cannot be started or does not succeed; the error holds what it printed.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        bail!("failed: {} ({})\n{}", line(command), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn announce(command: &Command) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "$ {}", line(command))?;
    Ok(out.flush()?)
}

/// The command as one would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

//! What the workloads of the demo have in common.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::load::{Account, Load};
use crate::code::Code;
use crate::fail::Failure;

/// The deadline of anything in the demo.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The workload of the demo.
pub(super) trait Usage {
    /// Describes what [`Self::write`] does.
    fn writes(&self) -> String;

    /// Writes the data that must not be lost.
    fn write(&mut self) -> Result<(), String>;

    /// Returns how many items to read while a replica lies: about a second or two under load.
    fn sample(&self) -> u32;

    /// Reads the data, or its first `most` items, and compares.
    fn read(&mut self, most: u32) -> Result<(), String>;

    /// Starts the load, which runs during the faults.
    fn load(&self) -> Result<Load, String>;

    /// Compares the load's acknowledged operations with the state, and describes the result.
    fn account(&mut self, account: Account) -> Result<String, String>;
}

/// Returns a command that runs this program.
pub(super) fn quorate() -> Result<Command, Failure> {
    let program = std::env::current_exe();
    let program = program.map_err(|error| {
        Failure::new(Code::Unreadable, format!("this program's own file cannot be found: {error}"))
    })?;
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    Ok(command)
}

/// Terminates a process and waits for it. If that takes too long, kills it and calls `then`.
pub(super) fn terminate(process: &mut Child, then: impl Fn()) {
    if let Ok(pid) = i32::try_from(process.id()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    let begin = Instant::now();
    while matches!(process.try_wait(), Ok(None)) {
        if begin.elapsed() > PATIENCE {
            let _ = process.kill();
            then();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A number with a space between thousands.
pub(super) fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let head = digits.len() % 3;
    let (first, rest) = digits.split_at(head);
    let groups = rest.as_bytes().chunks(3).map(String::from_utf8_lossy);
    let all: Vec<_> = [first.into()]
        .into_iter()
        .filter(|head: &std::borrow::Cow<'_, str>| !head.is_empty())
        .chain(groups)
        .collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        assert_eq!(
            ["0", "20", "200", "2 000", "20 000"].map(str::to_owned),
            [0, 20, 200, 2000, 20_000].map(grouped)
        );
    }
}

//! SIGTERM, SIGINT and SIGHUP: a flag that says stop.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::error::{NodeError, NodeErrorKind};

/// Returns a flag that is set when this process gets a stop signal. The same signal again ends it immediately, except
/// SIGHUP: a terminal that is closed sends it, and the shell there does, too. Call this before any thread is started:
/// threads inherit the signal mask.
///
/// # Errors
///
/// The signals cannot be handled.
pub fn stop_flag() -> Result<Arc<AtomicBool>, NodeError> {
    let cannot =
        |why: String| NodeError::new(NodeErrorKind::Network, format!("cannot handle signals: {why}"));
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    // A blocked signal arrives although it is ignored, as with `nohup`.
    if !ignores_hangup() {
        signals.add(Signal::SIGHUP);
    }
    signals.thread_block().map_err(|error| cannot(error.to_string()))?;
    let flag = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&flag);
    let wait = move || {
        let mut seen = SigSet::empty();
        while let Ok(signal) = signals.wait() {
            // `up` sends SIGTERM to processes that have received the SIGINT of Ctrl-C.
            if seen.contains(signal) && signal != Signal::SIGHUP {
                std::process::exit(130);
            }
            seen.add(signal);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    thread.map_err(|error| cannot(error.to_string()))?;
    Ok(flag)
}

/// Returns whether this process was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & 1 == 1)
}

/// Sends a stop signal to a process.
///
/// # Errors
///
/// It has exited, or belongs to another user.
pub fn ask_to_stop(process: u32) -> Result<(), NodeError> {
    let pid = i32::try_from(process).map(Pid::from_raw);
    let asked = pid.ok().map(|pid| kill(pid, Signal::SIGTERM));
    match asked {
        Some(Ok(())) => Ok(()),
        _ => Err(NodeError::new(NodeErrorKind::Network, format!("cannot signal process {process} to stop"))),
    }
}

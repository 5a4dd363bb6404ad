//! SIGTERM and SIGINT: a flag that says stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::error::{NodeError, NodeErrorKind};

/// Returns a flag that is set when this process gets a stop signal. A second signal ends it immediately. Call this
/// before any thread is started: threads inherit the signal mask.
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
    signals.thread_block().map_err(|error| cannot(error.to_string()))?;
    let flag = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&flag);
    let wait = move || {
        while signals.wait().is_ok() {
            if stop.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    thread.map_err(|error| cannot(error.to_string()))?;
    Ok(flag)
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

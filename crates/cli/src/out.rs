//! Standard output, whose reader may stop reading: `quorate sim replay --seed 7 | head`.

use std::io::{ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The flag that stops the command, if other processes depend on it.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Lets the command set `stop` and continue if its output has no reader any more: it must still stop the processes
/// that it has started.
pub(crate) fn stop_without_reader(stop: &Arc<AtomicBool>) {
    let _ = STOP.set(Arc::clone(stop));
}

/// Prints a line. If the reader has gone, ends the process silently.
pub(crate) fn line(text: impl std::fmt::Display) {
    part(format_args!("{text}\n"));
}

/// Prints a part of a line, and otherwise does the same as [`line`].
pub(crate) fn part(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) else { return };
    let is_gone = error.kind() == ErrorKind::BrokenPipe;
    if !is_gone {
        let _ = writeln!(std::io::stderr(), "error {}: standard output: {error}", crate::code::Code::Output);
    }
    match STOP.get() {
        Some(stop) if is_gone => stop.store(true, Ordering::Relaxed),
        Some(_) => {}
        None => std::process::exit(i32::from(!is_gone)),
    }
}

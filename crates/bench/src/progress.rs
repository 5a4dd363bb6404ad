//! A progress line on standard error, if that is a terminal.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// Reports that turn `index` of `count` begins.
pub(crate) fn turn(index: usize, count: usize, start: Instant) {
    let mut error = std::io::stderr();
    if !error.is_terminal() || index == 0 {
        return;
    }
    let of = |number: usize| u32::try_from(number).map_or(0.0, f64::from);
    let left = start.elapsed().as_secs_f64() / of(index) * of(count - index.min(count));
    // Nobody depends on it.
    let _ = write!(error, "\r  point {} of {count}, about {left:.0} s left   ", index + 1);
    if index + 1 == count {
        let _ = write!(error, "\r{:50}\r", "");
    }
    let _ = error.flush();
}

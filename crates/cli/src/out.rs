//! Standard output, whose reader may stop reading: `quorate sim replay --seed 7 | head`.

use std::io::{ErrorKind, Write as _};

/// Prints a line. If the reader has gone, ends the process silently.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        let status = if error.kind() == ErrorKind::BrokenPipe {
            0
        } else {
            eprintln!("error {}: standard output: {error}", crate::code::Code::Output);
            1
        };
        std::process::exit(status);
    }
}

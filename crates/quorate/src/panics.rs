//! Panics in the code of a service: they are caught, and a few of them are printed.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::thread;
#[cfg(feature = "program")]
use std::{
    io::Write,
    sync::Mutex,
    time::{Duration, Instant},
};

/// The time between two panics that are printed.
#[cfg(feature = "program")]
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of characters that are printed of a panic's text.
#[cfg(feature = "program")]
const TEXT_MAX: usize = 200;

thread_local! {
    /// Whether [`catch`] is to return a panic of this thread.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of a service, and returns its panic.
pub(crate) fn catch<R>(run: impl FnOnce() -> R) -> thread::Result<R> {
    let outer = CATCHES.replace(true);
    let ended = panic::catch_unwind(AssertUnwindSafe(run));
    CATCHES.set(outer);
    ended
}

/// Returns the text of a panic.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}

/// From now on, of the panics that [`catch`] returns only one in a second is printed, in a line of bounded length: any client
/// can cause them.
///
/// What cannot be written is left out: a panic here would end the process (L161).
#[cfg(feature = "program")]
pub(crate) fn print_few<W: Write>(output: impl Fn() -> W + Send + Sync + 'static) {
    let print_others = panic::take_hook();
    let printed_at = Mutex::new(None::<Instant>);
    panic::set_hook(Box::new(move |info| {
        if !CATCHES.get() {
            return print_others(info);
        }
        let Ok(mut printed_at) = printed_at.lock() else { return };
        if printed_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        *printed_at = Some(Instant::now());
        let place = info.location().map_or_else(String::new, ToString::to_string);
        let text: String = text(info.payload()).chars().take(TEXT_MAX).collect();
        let line = format!("the service panicked at {place}: {text:?}\n");
        let _ = output().write_all(line.as_bytes());
    }));
}

#[cfg(all(test, feature = "program"))]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    /// The hook is the process's.
    static TURN: Mutex<()> = Mutex::new(());

    /// Keeps what is printed, and then fails if the disk is full.
    #[derive(Clone, Default)]
    struct Output {
        lines: Arc<Mutex<Vec<String>>>,
        is_full: bool,
    }

    impl Write for Output {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.lines.lock().unwrap().push(String::from_utf8_lossy(line).into_owned());
            if self.is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(line.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Panics a hundred times. Returns the lines that were printed, and how many there can be.
    fn panics(output: Output) -> (Vec<String>, usize) {
        let _turn = TURN.lock();
        let lines = Arc::clone(&output.lines);
        let begun = Instant::now();
        print_few(move || output.clone());
        for _ in 0..100 {
            assert!(catch(|| panic!("{}", "x".repeat(10_000))).is_err());
        }
        drop(panic::take_hook());
        let lines = std::mem::take(&mut *lines.lock().unwrap());
        (lines, usize::try_from(begun.elapsed().as_secs()).unwrap() + 1)
    }

    /// L147: any client can make a service panic, again and again. Little is printed.
    #[test]
    fn l147_a_service_that_panics_does_not_fill_the_disk() {
        let (lines, most) = panics(Output::default());
        assert!((1..=most).contains(&lines.len()), "{} lines", lines.len());
        assert!(lines.iter().all(|line| line.len() < 500));
    }

    /// L161: a panic in the hook would end the process, so a line that cannot be printed is left out.
    #[test]
    fn l161_a_full_disk_does_not_end_a_process_whose_service_panics() {
        let (lines, _) = panics(Output { is_full: true, ..Output::default() });
        assert!(!lines.is_empty());
    }
}

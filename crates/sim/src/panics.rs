//! Panics in a run: caught, and reported with the seed.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether [`catch`] is to return a panic of this thread.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    /// Where the last of those was.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs what may panic. A panic is returned, with its place, instead of printed: it is reported with the seed.
pub(crate) fn catch<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CATCHES.get() {
                return print(info);
            }
            let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
            PLACE.with(|slot| *slot.borrow_mut() = place);
        }));
    });
    let outer = CATCHES.replace(true);
    let ended = panic::catch_unwind(AssertUnwindSafe(run));
    CATCHES.set(outer);
    ended.map_err(|panic| {
        let said =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let text = said.unwrap_or("panicked");
        PLACE.with(RefCell::take).map_or_else(|| text.to_owned(), |place| format!("{text} at {place}"))
    })
}

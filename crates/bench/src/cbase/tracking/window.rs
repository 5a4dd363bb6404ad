//! Runs that end in random order, while the oldest request is slow.

use anyhow::{Result, anyhow};
use quorate_service::parallel::{Rules, Runs};
use quorate_service::{Executor, Service};
use quorate_wire::Replies;

use crate::files::Chance;

/// Runs that are in progress.
const AT_ONCE: usize = 16;

/// Runs the requests that were inserted, of which the first is slow, and settles them.
pub(super) fn settle<S: Service, R: Rules>(
    runs: &mut Runs<R>,
    executor: &mut Executor<S>,
    ends: &mut Chance,
) -> Result<()> {
    // What a run has read when it began, and what it writes when it ends.
    let mut running = Vec::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(job) = runs.start(executor)
        {
            running.push(runs.run(executor, &job));
        }
        let ended = if running.len() > 1 { 1 + ends.below(running.len() - 1) } else { 0 };
        if running.is_empty() {
            break;
        }
        runs.finish(running.swap_remove(ended));
    }
    let mut replies = Replies::new();
    while !runs.parallelizer().is_empty() || runs.can_settle() {
        runs.settle(executor, &mut replies).map_err(|_| anyhow!("a page is missing"))?;
        replies.clear();
    }
    Ok(())
}

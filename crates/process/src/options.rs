//! Options of a process.

use quorate_pbft::config::Config;
use quorate_service::Options;

/// How many checkpoints may pass while the image of one is copied.
const COPYING_CHECKPOINTS: u64 = 30;

/// When the tasks of the executor are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// In the step that asked for them.
    #[default]
    Inline,
    /// Those that run code of the service at [`crate::event::Event::Work`], the others in the step that asked for them, all in order.
    ServiceDeferred,
    /// At [`crate::event::Event::Work`], one at a time.
    Deferred,
}

/// How much of an image is worked on between two bursts.
#[derive(Clone, Copy, Debug)]
pub struct ImagePace {
    /// Number of pages that are copied.
    pub pages_max: usize,
    /// Number of slots that are passed to the executor.
    pub slots_max: usize,
}

impl Default for ImagePace {
    /// A tenth of a millisecond's work.
    fn default() -> Self {
        Self { pages_max: 128, slots_max: 1024 }
    }
}

/// Returns an executor's options for these settings. `first_rid` is above the number of every FETCH that
/// this replica has sent (ST-3).
pub fn executor_options(config: &Config, first_rid: u64) -> Options {
    // More than the window needs, for the checkpoint whose image is being copied.
    let held = config.window / config.checkpoint_interval.max(1) + 2 + COPYING_CHECKPOINTS;
    Options {
        clients_max: u32::try_from(config.clients_max).unwrap_or(u32::MAX),
        lanes_max: u32::try_from(config.lanes_max).unwrap_or(u32::MAX),
        checkpoints_max: usize::try_from(held).unwrap_or(usize::MAX),
        first_rid,
        ..Options::default()
    }
}

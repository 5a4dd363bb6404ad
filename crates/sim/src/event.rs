//! The events of a world.

use crate::network::Frame;

/// Something that happens to one node.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process begins.
    Start {
        /// Which.
        life: u32,
    },
    /// A frame arrives.
    Arrive(Frame),
    /// A timer, or something else with a deadline, is due.
    Wake,
    /// The time of a job of the log's writer is over.
    Synced {
        /// The process that began it.
        life: u32,
        /// The number of the job.
        job: u64,
    },
    /// The time of the writer of the pages is over.
    Flushed {
        /// The process that began it.
        life: u32,
    },
    /// The service is done with its task, or goes on with a job.
    Ran {
        /// The process that began it.
        life: u32,
        /// The job. None: the task.
        job: Option<u64>,
    },
    /// A pause is over.
    Resume,
    /// A restart is due.
    Restart,
}

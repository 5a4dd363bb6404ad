//! Benchmarks: what the papers reported, measured again, and what they did not.
//!
//! | Part | Module |
//! |---|---|
//! | the protocol's own work, without sockets | [`core_step`] |
//! | the latency of one operation, over UDP | [`micro_latency`] |
//! | operations a second, over UDP | [`micro_throughput`] |
//! | what an experiment reports, and how that looks | [`report`], [`plot`] |
//! | allocations, instructions | [`allocations`], [`instructions`] |

pub mod allocations;
mod cluster;
pub mod core_step;
mod echo;
pub mod figures;
mod group;
pub mod instructions;
pub mod machine;
pub mod micro_latency;
pub mod micro_throughput;
pub mod plot;
mod processes;
pub mod report;
mod unreplicated;

use anyhow::{Result, bail};

pub use report::Report;

/// The arguments that make this program a part of an experiment: see [`child`].
pub const CHILD: [&str; 2] = ["bench", "child"];

/// How an experiment is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Within a minute.
    pub quick: bool,
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// The paper's table or figure that it repeats.
    pub source: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(Settings) -> Result<Report>,
}

/// Every experiment.
pub const EXPERIMENTS: &[Experiment] =
    &[core_step::EXPERIMENT, micro_latency::EXPERIMENT, micro_throughput::EXPERIMENT];

/// Runs one part of an experiment, in a process that the experiment has started with [`CHILD`] and these
/// arguments.
///
/// # Errors
///
/// The part failed, or there is none of that name.
pub fn child(arguments: &[String]) -> Result<()> {
    match arguments.split_first() {
        Some((name, rest)) if name == core_step::EXPERIMENT.name => core_step::child(rest),
        Some((name, rest)) if name == micro_latency::EXPERIMENT.name => micro_latency::child(rest),
        Some((name, rest)) if name == micro_throughput::EXPERIMENT.name => micro_throughput::child(rest),
        _ => bail!("no experiment has a part {arguments:?}"),
    }
}

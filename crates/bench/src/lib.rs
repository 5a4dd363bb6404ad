//! Benchmarks: what the papers reported, measured again, and what they did not.
//!
//! | Part | Module |
//! |---|---|
//! | the protocol's own work, without sockets | [`core_step`] |
//! | a datagram there and back | [`echoes`] |
//! | the latency of one operation, over UDP | [`micro_latency`] |
//! | operations a second, over UDP | [`micro_throughput`] |
//! | what each optimisation is worth | [`optimisations`] |
//! | what MACs buy, what a fault costs, what a disk costs | [`crypto`], [`recovery`], [`durable`] |
//! | the file system: as it is, unreplicated, and other servers | [`files`] |
//! | the digest of a checkpoint | [`checkpoint_cost`] |
//! | how experiments are run: arms that take turns, processes, loads | `arms`, `setup`, `load`, `processes`, `nodes` |
//! | what an experiment reports, and how that looks | [`report`], [`figure`], [`draw`], [`page`] |
//! | allocations, instructions | [`allocations`], [`instructions`] |

pub mod allocations;
mod arms;
pub mod checkpoint_cost;
pub mod core_step;
pub mod crypto;
pub mod draw;
pub mod durable;
mod echo;
pub mod echoes;
pub mod figure;
pub mod figures;
pub mod files;
mod group;
pub mod instructions;
mod link;
mod load;
pub mod machine;
pub mod micro_latency;
pub mod micro_throughput;
mod nodes;
pub mod optimisations;
pub mod page;
mod processes;
mod progress;
pub mod recovery;
pub mod report;
mod setup;
mod unreplicated;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub use figure::Figure;
pub use report::{Report, Row, Verdict};

/// The arguments that make this program a part of an experiment: see [`child`].
pub const CHILD: [&str; 2] = ["bench", "child"];

/// How much is measured, least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Just enough to see that it runs: the figures mean nothing.
    Tiny,
    /// Within a minute.
    Quick,
    /// As the papers did, as far as it makes sense.
    #[default]
    Full,
}

impl Effort {
    /// Chooses one of three.
    pub fn of<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Tiny => tiny,
        }
    }
}

/// How an experiment is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// How much is measured.
    pub effort: Effort,
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
    /// Draws what it has found.
    pub figures: fn(&[Row]) -> Vec<Figure>,
}

/// Every experiment.
pub const EXPERIMENTS: &[Experiment] = &[
    core_step::EXPERIMENT,
    echoes::EXPERIMENT,
    micro_latency::EXPERIMENT,
    micro_throughput::EXPERIMENT,
    optimisations::digest_replies::EXPERIMENT,
    optimisations::batching::EXPERIMENT,
    optimisations::separate::EXPERIMENT,
    optimisations::tentative::EXPERIMENT,
    optimisations::piggyback::EXPERIMENT,
    crypto::EXPERIMENT,
    recovery::EXPERIMENT,
    durable::EXPERIMENT,
    files::micro::EXPERIMENT,
    files::postmark::EXPERIMENT,
    files::andrew::EXPERIMENT,
    files::iozone::EXPERIMENT,
    checkpoint_cost::EXPERIMENT,
];

/// Finds an experiment.
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

/// Runs one part of an experiment, in a process that the experiment has started with [`CHILD`] and these
/// arguments.
///
/// # Errors
///
/// The part failed, or there is none of that name.
pub fn child(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.split_first() {
        Some((name, _)) if *name == core_step::EXPERIMENT.name => {
            core_step::child(arguments.get(1..).unwrap_or(&[]))
        }
        Some(_) => {
            processes::settle()?;
            arms::child(&words)
        }
        None => bail!("no part of an experiment is named"),
    }
}

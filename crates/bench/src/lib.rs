//! Benchmarks: the papers' experiments, repeated, and others.
//!
//! | Part | Module |
//! |---|---|
//! | the protocol's own work, without sockets | [`core_step`] |
//! | a UDP round trip | [`echoes`] |
//! | the latency of one operation, over UDP | [`micro_latency`] |
//! | operations per second, over UDP | [`micro_throughput`] |
//! | the effect of each optimisation | [`optimisations`] |
//! | the cost of MACs and signatures, of a fault, of the disk, of a busy machine | [`crypto`], [`recovery`], [`durable`], [`busy`] |
//! | the file system: replicated, unreplicated, and other servers | [`files`] |
//! | the digest of a checkpoint | [`checkpoint_cost`] |
//! | running experiments: arms that take turns, processes, loads | `arms`, `setup`, `load`, `processes`, `nodes` |
//! | reports, figures and the page | [`report`], [`figure`], [`draw`], [`page`] |
//! | allocations, instructions | [`allocations`], [`instructions`] |

pub mod allocations;
mod arms;
pub mod busy;
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

/// The arguments that run a part of an experiment: see [`child`].
pub const CHILD: [&str; 2] = ["bench", "child"];

/// How much is measured, least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Just enough to test that it runs: the figures mean nothing.
    Tiny,
    /// Within a minute.
    Quick,
    /// As in the papers, as far as it makes sense.
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

/// The settings of an experiment.
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
    /// A description of what it measures.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(Settings) -> Result<Report>,
    /// Draws the results.
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
    busy::EXPERIMENT,
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

/// Runs one part of an experiment, in a process that the experiment started with [`CHILD`] and these
/// arguments.
///
/// # Errors
///
/// The part failed, or there is no part with that name.
pub fn child(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.split_first() {
        Some((name, _)) if *name == core_step::EXPERIMENT.name => {
            core_step::child(arguments.get(1..).unwrap_or(&[]))
        }
        Some((name, _)) if *name == busy::LOOP => busy::endless_loop(),
        Some(_) => {
            processes::settle()?;
            arms::child(&words)
        }
        None => bail!("the part of the experiment is missing"),
    }
}

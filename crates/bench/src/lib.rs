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
//! | parallel execution | [`cbase`] |
//! | registers without a leader, simulated | [`bqs`] |
//! | running experiments: arms that take turns, processes, loads | `arms`, `setup`, `load`, `processes`, `nodes` |
//! | what an experiment is | [`experiment`] |
//! | reports, figures and the page | [`report`], [`figure`], [`draw`], [`page`] |
//! | allocations, instructions | [`allocations`], [`instructions`] |

pub mod allocations;
mod arms;
pub mod attacks;
pub mod bqs;
pub mod busy;
mod cable;
pub mod cbase;
pub mod checkpoint_cost;
pub mod core_step;
pub mod crypto;
pub mod draw;
pub mod durable;
mod echo;
pub mod echoes;
mod effort;
pub mod experiment;
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
mod signatures;
mod unreplicated;

use anyhow::{Result, bail};

pub use cable::Cable;
pub use effort::{Effort, Settings};
pub use experiment::Experiment;
pub use figure::Figure;
pub use processes::CHILD;
pub use report::{Report, Row, Verdict};
pub use signatures::Signatures;

/// The experiments on replication and its files.
const REPLICATION: &[Experiment] = &[
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
    attacks::EXPERIMENT,
    files::micro::EXPERIMENT,
    files::postmark::EXPERIMENT,
    files::andrew::EXPERIMENT,
    files::iozone::EXPERIMENT,
    checkpoint_cost::EXPERIMENT,
    cbase::overhead::EXPERIMENT,
    cbase::scale::EXPERIMENT,
    cbase::cpu::EXPERIMENT,
    cbase::tracking::EXPERIMENT,
    cbase::mixed::EXPERIMENT,
    cbase::paging::EXPERIMENT,
    cbase::fs::EXPERIMENT,
    cbase::iozone::EXPERIMENT,
    cbase::postmark::EXPERIMENT,
    cbase::andrew::EXPERIMENT,
];

/// Every experiment.
pub static EXPERIMENTS: [Experiment; REPLICATION.len() + bqs::EXPERIMENTS.len()] = {
    let mut all = [core_step::EXPERIMENT; REPLICATION.len() + bqs::EXPERIMENTS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] =
            if at < REPLICATION.len() { REPLICATION[at] } else { bqs::EXPERIMENTS[at - REPLICATION.len()] };
        at += 1;
    }
    all
};

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
        Some((name, rest)) if *name == attacks::PART => attacks::attacker::run(rest),
        Some((name, _)) if *name == busy::LOOP => busy::endless_loop(),
        Some((name, [dir, wait_us, store])) if *name == files::replica::ROLE => {
            files::replica::run(dir, wait_us, store)
        }
        Some((name, [path, pace_us])) if *name == files::store::ROLE => files::store::run(path, pace_us),
        Some(_) => {
            processes::settle()?;
            arms::child(&words)
        }
        None => bail!("the part of the experiment is missing"),
    }
}

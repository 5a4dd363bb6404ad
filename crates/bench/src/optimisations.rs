//! The effect of each optimisation: the whole system with it and without it, in the same run (DSN01 §4.4).
//!
//! | Optimisation | Module | In the paper |
//! |---|---|---|
//! | one replica sends the result, the others its digest | [`digest_replies`] | Figure 5 |
//! | many requests in one protocol instance | [`batching`] | Figure 6 |
//! | long requests are sent separately from the PRE-PREPARE | [`separate`] | Figure 7 |
//! | execution before the commit | [`tentative`] | text |
//! | commits are sent as part of the next message | [`piggyback`] | text |

pub mod batching;
pub mod digest_replies;
pub mod piggyback;
pub mod separate;
pub mod tentative;

use anyhow::Result;

use crate::arms::{Arm, Figure as Unit, Place, Plan};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Of, Series, curve};
use crate::load::{Op, Until};
use crate::machine::Machine;
use crate::report::{Report, Row};
use crate::setup::Setup;

/// Number of client processes for throughput.
const HOSTS: usize = 2;

/// The measurements of an optimisation's experiment.
struct Trial<'t> {
    experiment: &'t Experiment,
    /// The variants: with it, without it, and others to compare.
    setups: &'t [Setup],
    /// Operations of one client, for latency.
    latencies: Vec<Op>,
    /// Operations and numbers of clients, for throughput.
    throughputs: Vec<(Op, Vec<u16>)>,
}

impl Trial<'_> {
    /// Measures latencies together with both echoes, and then throughput.
    fn run(self, settings: Settings) -> Result<Report> {
        let Self { experiment, setups, latencies, throughputs } = self;
        let pinning = format!(
            "for latencies: {}; for throughput: {}",
            Place::Pinned.in_words(),
            Place::Free(HOSTS).in_words()
        );
        let mut report = Report::new(experiment.name, experiment.source, Machine::look(pinning));
        let (repeats, count) = settings.effort.of((7, 3_000), (5, 400), (1, 10));
        if !latencies.is_empty() {
            let mut plan = Plan::new(Unit::Latency);
            for echo in Arm::echoes()? {
                let arm = plan.arm(echo);
                plan.point(arm, 1, Until::Ops(count), Op::rw(0, 0), None);
            }
            for setup in setups {
                let arm = plan.arm(Arm::cluster(*setup, Place::Pinned)?);
                for op in &latencies {
                    plan.point(arm, 1, Until::Ops(count), *op, None);
                }
            }
            report.rows.extend(plan.run(settings, repeats)?);
        }
        let (repeats, ms) = settings.effort.of((5, 1_000), (3, 250), (1, 20));
        let mut plan = Plan::new(Unit::Throughput);
        for setup in setups {
            let arm = plan.arm(Arm::cluster(*setup, Place::Free(HOSTS))?);
            for (op, counts) in &throughputs {
                for clients in counts {
                    plan.point(arm, *clients, Until::Ms(ms), *op, None);
                }
            }
        }
        report.rows.extend(plan.run(settings, repeats)?);
        report.notes.push(format!(
            "latency: {count} operations a repeat of one client; throughput: {ms} ms a point, {HOSTS} processes of \
             clients; no links, no multicast; durability memory"
        ));
        Ok(report)
    }
}

/// Numbers of clients on a curve.
fn many(settings: Settings) -> Vec<u16> {
    settings.effort.of(vec![1, 5, 10, 20, 50, 100, 200], vec![1, 10, 50, 200], vec![1, 5])
}

/// Looks rows up.
struct Rows<'r>(&'r [Row]);

impl<'r> Rows<'r> {
    /// Returns the rows of a variant with this unit: of latency or of throughput.
    fn of(&self, variant: &str, n: u16, unit: &str) -> impl Iterator<Item = &'r Row> {
        let (variant, unit) = (variant.to_owned(), unit.to_owned());
        self.0.iter().filter(move |row| row.variant == variant && row.n == Some(n) && row.unit == unit)
    }

    /// Returns the median latency of an operation, in microseconds.
    fn us(&self, variant: &str, op: Op) -> f64 {
        let result = usize::try_from(op.result).ok();
        let mut rows = self.of(variant, 4, "us");
        let row = rows.find(|row| {
            row.argument_bytes == Some(op.argument) && row.result_bytes == result && row.mode == op.mode()
        });
        row.and_then(|row| row.p50_us).unwrap_or(f64::NAN)
    }

    /// Returns the operations per second with this number of clients.
    fn ops(&self, variant: &str, n: u16, clients: u32) -> f64 {
        let row = self.of(variant, n, "op/s").find(|row| row.clients == clients);
        row.and_then(|row| row.ops_per_s).unwrap_or(f64::NAN)
    }

    /// Returns the maximum of operations per second.
    fn peak(&self, variant: &str, n: u16) -> f64 {
        self.of(variant, n, "op/s").filter_map(|row| row.ops_per_s).fold(f64::NAN, f64::max)
    }

    /// Returns the largest number of clients.
    fn clients_max(&self) -> u32 {
        self.0.iter().map(|row| row.clients).max().unwrap_or(0)
    }

    /// Returns a variant's curve.
    fn curve(&self, name: &str, variant: &str, n: u16, unit: &str, (x, y): (Of, Of)) -> Series {
        curve(name, self.of(variant, n, unit), x, y)
    }
}

/// Returns how far the first figure is below the second, in percent.
fn gain(with: f64, without: f64) -> f64 {
    (1.0 - with / without) * 100.0
}

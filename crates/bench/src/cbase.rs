//! Parallel execution: what it costs, and what it gains [CBASE04 §6].
//!
//! | Question | Module | In the paper |
//! |---|---|---|
//! | what do workers cost where they gain nothing? | [`overhead`] | Figure 4 |
//! | does throughput grow with the workers, and with the independent requests? | [`scale`] | Figure 5 |
//! | do two workers use two cores? | [`cpu`] | |
//! | what does it cost to track dependencies, and how much runs again? | [`tracking`] | |
//! | do short operations, reads and `status` wait for long operations? | [`mixed`] | |
//! | do workers help if the state is larger than the memory? | [`paging`] | |
//! | clients that each write a file | [`fs`] | Figure 6 |
//! | files on a store that writes synchronously | [`iozone`], [`postmark`] | Figures 7, 8 |
//! | one client that computes | [`andrew`] | section 6.3 |
//!
//! BASE is one worker with tentative execution, as in the paper. CBASE is several workers without it.

pub mod andrew;
pub mod cpu;
mod files;
pub mod fs;
pub mod iozone;
mod live;
pub mod mixed;
pub mod overhead;
pub mod paging;
pub mod postmark;
pub mod scale;
pub mod tracking;

use anyhow::Result;

use crate::arms::{Arm, Figure as Unit, Place, Plan};
use crate::effort::Settings;
use crate::load::{Op, Until};
use crate::report::{Row, Shape};
use crate::setup::Setup;

/// The name of the arm with one worker, as in the paper.
const BASE: &str = "BASE";

/// A cluster, and the numbers of clients of its points.
struct Curve {
    setup: Setup,
    clients: Vec<u16>,
}

/// Measures the throughput of each curve with this operation, for `ms` milliseconds a point.
fn throughput(
    settings: Settings,
    curves: &[Curve],
    (op, hosts): (Op, usize),
    (repeats, ms): (usize, u64),
) -> Result<Vec<Row>> {
    let mut plan = Plan::new(Unit::Throughput);
    for Curve { setup, clients } in curves {
        let arm = plan.arm(Arm::cluster(*setup, Place::Free(hosts))?);
        for count in clients {
            plan.point(arm, *count, Until::Ms(ms), op, None);
        }
    }
    plan.run(settings, repeats)
}

/// Returns the rows of a variant.
fn of<'r>(rows: &'r [Row], variant: &str) -> impl Iterator<Item = &'r Row> {
    let variant = variant.to_owned();
    rows.iter().filter(move |row| row.variant == variant)
}

/// Returns the highest throughput of a variant.
fn peak(rows: &[Row], variant: &str) -> f64 {
    of(rows, variant).filter_map(|row| row.ops_per_s).fold(f64::NAN, f64::max)
}

/// Returns whether a figure is within 5 % of another.
fn is_near(figure: f64, other: f64) -> bool {
    (figure / other - 1.0).abs() <= 0.05
}

/// Returns the statement that a figure is between two bounds. Far above the paper's gain, one of its sides is wrong.
fn between(name: impl Into<String>, figure: f64, (least, most): (f64, f64), figures: &str) -> Shape {
    let held = (least..=most).contains(&figure);
    Shape::new(name, held, format!("{figures}: {figure:.2}, bounds {least:.2} and {most:.2}"))
}

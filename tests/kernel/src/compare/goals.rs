//! The papers' results and our goals, as one server's figure divided by another's.

use std::fmt;

use serde_json::{Value, json};

use super::order::{Load, Order};
use super::servers::{Arm, Reads, Store};
use super::table::Row;

/// A ratio of a paper's: transactions a second, or seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paper {
    pub(super) of: &'static str,
    pub(super) to: &'static str,
    pub(super) ratio: f64,
    pub(super) source: &'static str,
}

impl Paper {
    const fn new(of: &'static str, to: &'static str, ratio: f64, source: &'static str) -> Self {
        Self { of, to, ratio, source }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "of": self.of, "to": self.to, "ratio": self.ratio, "source": self.source })
    }
}

/// NFS-STD is a server on its disk.
const FIGURE_9: &str = "DSN01 Figure 9";
const FIGURE_8: &str = "DSN01 Figure 8";
const TABLE_2: &str = "OSDI99 Table 2";
const TABLE_3: &str = "OSDI99 Table 3";
const POSTMARK: &[Paper] =
    &[Paper::new("BFS", "NO-REP", 0.53, FIGURE_9), Paper::new("BFS", "NFS-STD", 0.87, FIGURE_9)];
const ANDREW: &[Paper] = &[
    Paper::new("BFS-strict", "BFS-nr", 1.26, TABLE_2),
    Paper::new("BFS-r/o lookup", "BFS-nr", 1.20, TABLE_2),
    Paper::new("BFS-strict", "NFS-std", 1.03, TABLE_3),
    Paper::new("BFS-r/o lookup", "NFS-std", 0.98, TABLE_3),
];
const ANDREW_100: &[Paper] =
    &[Paper::new("BFS", "NO-REP", 1.14, FIGURE_8), Paper::new("BFS", "NFS-STD", 1.15, FIGURE_8)];
const ANDREW_500: &[Paper] =
    &[Paper::new("BFS", "NO-REP", 1.22, FIGURE_8), Paper::new("BFS", "NFS-STD", 1.24, FIGURE_8)];

/// Returns what the papers found with this load.
pub(super) fn papers(order: &Order) -> &'static [Paper] {
    match (order.load, order.copies) {
        (Load::Postmark, _) => POSTMARK,
        (Load::Andrew, 1) => ANDREW,
        (Load::Andrew, 100) => ANDREW_100,
        (Load::Andrew, 500) => ANDREW_500,
        (Load::Andrew, _) => &[],
    }
}

/// What is to hold of two servers.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    pub(super) is_held: bool,
    of: String,
    to: String,
    ratio: f64,
    bound: f64,
    /// More is better.
    is_least: bool,
}

impl Goal {
    /// Returns what is to hold of the first divided by the second, if anything is.
    pub(super) fn of(load: Load, row: &Row, other: &Row, ratio: f64) -> Option<Self> {
        let (is_least, bound) = match (load, row.arm()?, other.arm()?) {
            (Load::Postmark, Arm::Bfs(Reads::Default, _), Arm::Alone(_)) => (true, 0.6),
            (Load::Postmark, Arm::Bfs(Reads::Default, "memory"), Arm::Ganesha(Store::Disk)) => (true, 1.2),
            (Load::Andrew, Arm::Bfs(Reads::Default, "memory"), Arm::Alone(_)) => (false, 1.1),
            (_, Arm::Alone("memory"), Arm::Ganesha(Store::Mem)) => (load == Load::Postmark, 1.0),
            _ => return None,
        };
        let is_held = if is_least { ratio >= bound } else { ratio <= bound };
        Some(Self { is_held, of: row.name(), to: other.name(), ratio, bound, is_least })
    }

    pub(super) fn json(&self) -> Value {
        let Self { is_held, of, to, ratio, bound, .. } = self;
        json!({ "held": is_held, "of": of, "to": to, "ratio": ratio, "bound": bound })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_held, of, to, ratio, bound, is_least } = self;
        let (how, which) =
            (if *is_held { "held" } else { "missed" }, if *is_least { "least" } else { "most" });
        write!(f, "{how}: {of} / {to} {ratio:.2}, at {which} {bound}")
    }
}

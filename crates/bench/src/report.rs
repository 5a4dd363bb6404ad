//! What an experiment has found: rows, and whether the paper's statements hold (`spec/interfaces.md`).

use std::fmt;

use serde::Serialize;

use crate::machine::Machine;

/// The results of one experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What it repeats.
    pub source: &'static str,
    /// Where it ran.
    pub machine: Machine,
    /// Measurements.
    pub rows: Vec<Row>,
    /// Statements, and whether they hold.
    pub shapes: Vec<Shape>,
    /// What a reader has to know besides.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns an empty report.
    pub fn new(experiment: &'static str, source: &'static str, machine: Machine) -> Self {
        Self { experiment, source, machine, rows: Vec::new(), shapes: Vec::new(), notes: Vec::new() }
    }

    /// Says whether every shape holds.
    pub fn holds(&self) -> bool {
        self.shapes.iter().all(|shape| shape.held)
    }
}

/// One measurement. Keys that do not apply are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// `quorate`, or the name of a baseline.
    pub system: &'static str,
    /// What is switched on or off.
    pub variant: String,
    /// Argument and result, in KB.
    pub op: &'static str,
    /// `rw` or `ro`.
    pub mode: &'static str,
    /// Replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u16>,
    /// Faults tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f: Option<u16>,
    /// Clients.
    pub clients: u32,
    /// Repeats.
    pub repeats: usize,
    /// Median latency, in microseconds: of the repeats' medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The 99th percentile, in microseconds: of the repeats, the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// Operations for each second of processor time that the replicas spend, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_core_s: Option<f64>,
    /// Requests sent again, or lost where nothing is sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resent: Option<f64>,
    /// Nanoseconds for each message received, all nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_message: Option<f64>,
    /// Messages received for each operation, all nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_op: Option<f64>,
    /// Allocations for each operation, at each replica.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocations_per_op: Vec<f64>,
    /// Machine instructions for each message received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_message: Option<f64>,
    /// Nanoseconds of each message that went into a part of the work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts_ns: Vec<(&'static str, f64)>,
    /// Operations that failed or had to be sent again.
    pub errors: u64,
    /// One figure for each repeat, in the unit of the row's first figure.
    pub samples: Vec<f64>,
}

/// A statement, and whether it holds.
#[derive(Clone, Debug, Serialize)]
pub struct Shape {
    /// The statement.
    pub name: String,
    /// It holds.
    pub held: bool,
    /// The figures that say so.
    pub evidence: String,
}

impl Shape {
    /// Returns the statement that `value` is at most `bound`, both in `unit`.
    pub fn at_most(name: impl Into<String>, value: f64, bound: f64, unit: &str) -> Self {
        let evidence = format!("{value:.1} {unit}, bound {bound} {unit}");
        Self { name: name.into(), held: value <= bound, evidence }
    }

    /// Returns the statement that `value` is at least `bound`, both in `unit`.
    pub fn at_least(name: impl Into<String>, value: f64, bound: f64, unit: &str) -> Self {
        let evidence = format!("{value:.0} {unit}, bound {bound:.0} {unit}");
        Self { name: name.into(), held: value >= bound, evidence }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n{}", self.experiment, self.source, self.machine)?;
        self.table(f)?;
        for row in self.rows.iter().filter(|row| !row.parts_ns.is_empty()) {
            let parts: Vec<String> =
                row.parts_ns.iter().map(|(name, ns)| format!("{name} {ns:.0}")).collect();
            writeln!(f, "{} {}: ns a message: {}", row.system, row.variant, parts.join(", "))?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        for shape in &self.shapes {
            let held = if shape.held { "held" } else { "not held" };
            writeln!(f, "{held}: {} ({})", shape.name, shape.evidence)?;
        }
        Ok(())
    }
}

/// A column: its head, and its figure in a row.
type Column = (&'static str, fn(&Row) -> Option<String>);

const COLUMNS: &[Column] = &[
    ("clients", |row| (row.clients > 1 || row.ops_per_core_s.is_some()).then(|| row.clients.to_string())),
    ("p50 us", |row| row.p50_us.map(|v| format!("{v:.1}"))),
    ("p99 us", |row| row.p99_us.map(|v| format!("{v:.1}"))),
    ("op/s", |row| row.ops_per_s.map(|v| format!("{v:.0}"))),
    ("op/core-s", |row| row.ops_per_core_s.map(|v| format!("{v:.0}"))),
    ("resent", |row| row.resent.map(|v| format!("{v:.0}"))),
    ("ns/message", |row| row.ns_per_message.map(|v| format!("{v:.0}"))),
    ("messages/op", |row| row.messages_per_op.map(|v| format!("{v:.1}"))),
    ("instructions/message", |row| row.instructions_per_message.map(|v| format!("{v:.0}"))),
    ("allocations/op", |row| {
        let most = row.allocations_per_op.iter().copied().reduce(f64::max)?;
        Some(format!("{most:.3}"))
    }),
    ("spread", |row| {
        let (least, most) =
            (row.samples.iter().copied().reduce(f64::min)?, row.samples.iter().copied().reduce(f64::max)?);
        Some(format!("{least:.1}-{most:.1}"))
    }),
];

impl Report {
    /// Writes the rows as a table of the columns that any of them has.
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used: Vec<&Column> =
            COLUMNS.iter().filter(|(_, figure)| self.rows.iter().any(|row| figure(row).is_some())).collect();
        let mut lines = vec![vec!["system".to_owned(), "variant".to_owned(), "op".to_owned()]];
        lines[0].extend(used.iter().map(|(head, _)| (*head).to_owned()));
        for row in &self.rows {
            let mut line =
                vec![row.system.to_owned(), row.variant.clone(), format!("{} {}", row.op, row.mode)];
            line.extend(used.iter().map(|(_, figure)| figure(row).unwrap_or_default()));
            lines.push(line);
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if column < 3 {
                    write!(f, "{cell:<width$}  ")?;
                } else {
                    write!(f, "{cell:>width$}  ")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

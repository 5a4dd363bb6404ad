//! The results of an experiment: rows, and whether the paper's statements hold.

mod cell;

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::effort::Effort;
use crate::machine::Machine;

pub use self::cell::Cell;

/// The results of one experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: String,
    /// The paper's table or figure that it repeats.
    pub source: String,
    /// How much was measured.
    #[serde(default)]
    pub effort: Effort,
    /// The machine.
    pub machine: Machine,
    /// Measurements.
    pub rows: Vec<Row>,
    /// Statements, and whether they hold.
    pub shapes: Vec<Shape>,
    /// Further notes.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Report {
    /// Returns an empty report.
    pub fn new(experiment: &'static str, source: &'static str, machine: Machine) -> Self {
        let (experiment, source) = (experiment.to_owned(), source.to_owned());
        Self {
            experiment,
            source,
            effort: Effort::default(),
            machine,
            rows: Vec::new(),
            shapes: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns whether every shape holds that can be compared.
    pub fn holds(&self) -> bool {
        self.count(Verdict::NotHeld) == 0
    }

    /// Leaves the measured statements unjudged if other programs used too much of the machine.
    #[must_use]
    pub fn judged(mut self) -> Self {
        let timed = |row: &Row| row.cell.as_ref().is_none_or(|cell| cell.model.starts_with("sockets"));
        if self.machine.others_percent > OTHERS_JUDGED_MAX && self.rows.iter().any(timed) {
            self.shapes.iter_mut().filter(|shape| !shape.counted).for_each(|shape| shape.judged = false);
        }
        self
    }

    /// Returns the number of shapes with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.shapes.iter().filter(|shape| shape.verdict() == verdict).count()
    }
}

/// One measurement. Keys that do not apply are left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// `quorate`, or the name of a baseline.
    pub system: String,
    /// The switches that are on or off.
    #[serde(default)]
    pub variant: String,
    /// Argument and result, in KB.
    #[serde(default)]
    pub op: String,
    /// `rw` or `ro`.
    #[serde(default)]
    pub mode: String,
    /// Replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u16>,
    /// Faults tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f: Option<u16>,
    /// Clients.
    #[serde(default)]
    pub clients: u32,
    /// Repeats.
    #[serde(default)]
    pub repeats: usize,
    /// Bytes of the argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_bytes: Option<usize>,
    /// Bytes of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<usize>,
    /// The durability: `memory`, `async` or `sync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// The first quartile of the latency, in microseconds: of the repeats, the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p25_us: Option<f64>,
    /// Median latency, in microseconds: of the repeats' medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The third quartile, in microseconds: of the repeats, the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p75_us: Option<f64>,
    /// The 99th percentile, in microseconds: of the repeats, the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// Operations per second of processor time of all servers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_core_s: Option<f64>,
    /// Processor time of the client processes, in microseconds an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_us: Option<f64>,
    /// How often a client process slept, an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_sleeps: Option<f64>,
    /// Total time in seconds: the median of the repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The longest time without a finished operation, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<f64>,
    /// Time until a healed replica takes part again, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_ms: Option<f64>,
    /// The share of the time in which the disk of a store was busy, in percent: the mean of the stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_percent: Option<f64>,
    /// Operations per second before the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_ops_per_s: Option<f64>,
    /// Operations per second after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ops_per_s: Option<f64>,
    /// Retransmitted requests, or lost ones where nothing is retransmitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent: Option<f64>,
    /// Nanoseconds for each message received, all nodes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_per_message: Option<f64>,
    /// Messages received for each operation, all nodes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_per_op: Option<f64>,
    /// Allocations for each operation, at each replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations_per_op: Vec<f64>,
    /// Machine instructions for each message received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_message: Option<f64>,
    /// Size of the measured object in bytes, such as an authenticator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Nanoseconds of each part of the work, per message or per operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts_ns: Vec<(String, f64)>,
    /// Seconds since the start, and operations per second at that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<(f64, f64)>,
    /// The figures of a register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// Operations that failed or were retransmitted.
    #[serde(default)]
    pub errors: u64,
    /// The paper's figure, in the unit of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
    /// The unit of the samples: `us`, `op/s`, `ns`, `ms`.
    #[serde(default)]
    pub unit: String,
    /// One figure for each repeat.
    #[serde(default)]
    pub samples: Vec<f64>,
}

/// A statement, and whether it holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key of the JSON, or decides about one")]
pub struct Shape {
    /// The statement.
    pub name: String,
    /// It holds.
    pub held: bool,
    /// The figures.
    pub evidence: String,
    /// False: it needs something that is missing here; the evidence says what.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub comparable: bool,
    /// False: other programs used too much of the machine.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub judged: bool,
    /// It does not depend on time: it counts, or its run was simulated.
    #[serde(skip)]
    counted: bool,
}

/// The verdict on a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Held,
    /// It does not.
    NotHeld,
    /// It cannot be compared here.
    NotComparable,
    /// Other programs used too much of the machine.
    NotJudged,
}

/// Above this share of the machine that other programs use, in percent, a measured statement cannot be judged.
pub(crate) const OTHERS_JUDGED_MAX: f64 = 20.0;

impl Verdict {
    /// Returns it as text.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::NotHeld => "not held",
            Self::NotComparable => "cannot be compared",
            Self::NotJudged => "cannot be judged",
        }
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_yes(value: &bool) -> bool {
    *value
}

impl Shape {
    /// Returns a statement.
    pub fn new(name: impl Into<String>, held: bool, evidence: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            held,
            evidence: evidence.into(),
            comparable: true,
            judged: true,
            counted: false,
        }
    }

    /// Returns a statement about a gain: more than none, and not more than `most`. A larger one is no good news: then one
    /// of its sides is wrong.
    pub fn gain(name: impl Into<String>, value: f64, most: f64, evidence: impl Into<String>) -> Self {
        let (mut evidence, held) = (evidence.into(), value > 0.0 && value <= most);
        if value > most {
            // Writing to a string does not fail.
            let _ = write!(evidence, "; more than {most:.0} cannot be right: look at both sides");
        }
        Self::new(name, held, evidence)
    }

    /// Returns it as a statement that does not depend on the load of the machine.
    #[must_use]
    pub fn counted(self) -> Self {
        Self { counted: true, ..self }
    }

    /// Returns a statement that cannot be compared here, with the reason.
    pub fn incomparable(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { comparable: false, ..Self::new(name, false, why) }
    }

    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        match (self.comparable, self.judged, self.held) {
            (false, ..) => Verdict::NotComparable,
            (true, false, _) => Verdict::NotJudged,
            (true, true, true) => Verdict::Held,
            (true, true, false) => Verdict::NotHeld,
        }
    }

    /// Returns the statement that `value` is at most `bound`, both in `unit`.
    pub fn at_most(name: impl Into<String>, value: f64, bound: f64, unit: &str) -> Self {
        let evidence = format!("{value:.1} {unit}, bound {bound} {unit}");
        Self::new(name, value <= bound, evidence)
    }

    /// Returns the statement that `value` is at least `bound`, both in `unit`.
    pub fn at_least(name: impl Into<String>, value: f64, bound: f64, unit: &str) -> Self {
        let evidence = format!("{value:.0} {unit}, bound {bound:.0} {unit}");
        Self::new(name, value >= bound, evidence)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n{}", self.experiment, self.source, self.machine)?;
        self.table(f)?;
        for row in self.rows.iter().filter(|row| !row.parts_ns.is_empty()) {
            let parts: Vec<String> =
                row.parts_ns.iter().map(|(name, ns)| format!("{name} {ns:.0}")).collect();
            writeln!(f, "{} {} {} {}: ns: {}", row.system, row.variant, row.op, row.mode, parts.join(", "))?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        for shape in &self.shapes {
            writeln!(f, "{}: {} ({})", shape.verdict().in_words(), shape.name, shape.evidence)?;
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
    ("client us/op", |row| row.client_us.map(|v| format!("{v:.1}"))),
    ("client sleeps/op", |row| row.client_sleeps.map(|v| format!("{v:.2}"))),
    ("s", |row| row.seconds.map(|v| format!("{v:.3}"))),
    ("store busy %", |row| row.store_percent.map(|v| format!("{v:.0}"))),
    ("gap ms", |row| row.gap_ms.map(|v| format!("{v:.0}"))),
    ("back ms", |row| row.back_ms.map(|v| format!("{v:.0}"))),
    ("before op/s", |row| row.before_ops_per_s.map(|v| format!("{v:.0}"))),
    ("after op/s", |row| row.after_ops_per_s.map(|v| format!("{v:.0}"))),
    ("bytes", |row| row.bytes.map(|v| v.to_string())),
    ("resent", |row| row.resent.map(|v| format!("{v:.0}"))),
    ("ns/message", |row| row.ns_per_message.map(|v| format!("{v:.0}"))),
    ("messages/op", |row| row.messages_per_op.map(|v| format!("{v:.1}"))),
    ("instructions/message", |row| row.instructions_per_message.map(|v| format!("{v:.0}"))),
    ("allocations/op", |row| {
        let most = row.allocations_per_op.iter().copied().reduce(f64::max)?;
        Some(format!("{most:.3}"))
    }),
    ("mean", |row| row.cell.as_ref().map(|cell| format!("{:.2}", cell.mean))),
    ("deviation", |row| row.cell.as_ref().map(|cell| format!("{:.2}", cell.deviation))),
    ("+- 95 %", |row| row.cell.as_ref().map(|cell| format!("{:.2}", cell.interval95))),
    ("fast %", |row| row.cell.as_ref().map(|cell| format!("{:.1}", cell.fast))),
    ("wrote back %", |row| row.cell.as_ref().map(|cell| format!("{:.1}", cell.write_back))),
    ("listener any %", |row| row.cell.as_ref().map(|cell| format!("{:.1}", cell.listener_any))),
    ("needed %", |row| row.cell.as_ref().map(|cell| format!("{:.1}", cell.listener_needed))),
    ("extra", |row| row.cell.as_ref().map(|cell| format!("{:.2}", cell.extra_msgs))),
    ("messages", |row| row.cell.as_ref().map(|cell| format!("{:.1}", cell.messages))),
    ("B", |row| row.cell.as_ref().map(|cell| format!("{:.0}", cell.bytes))),
    ("signed", |row| row.cell.as_ref().map(|cell| format!("{:.2}", cell.signatures))),
    ("verified", |row| row.cell.as_ref().map(|cell| format!("{:.2}", cell.verifications))),
    ("late us", |row| row.cell.as_ref()?.late_us.map(|(mean, p99)| format!("{mean:.0}, p99 {p99:.0}"))),
    ("spread", |row| {
        if row.samples.len() < 2 {
            return None;
        }
        let (least, most) =
            (row.samples.iter().copied().reduce(f64::min)?, row.samples.iter().copied().reduce(f64::max)?);
        Some(format!("{} {}", span(least, most), row.unit).trim_end().to_owned())
    }),
    ("paper", |row| row.paper.map(|v| format!("{v:.0}"))),
];

fn span(least: f64, most: f64) -> String {
    if most < 1000.0 { format!("{least:.1}-{most:.1}") } else { format!("{least:.0}-{most:.0}") }
}

/// Returns the variant of a row, with the number of replicas if that is not 4.
fn named(row: &Row) -> String {
    match row.n {
        Some(n) if n != 4 => format!("{} n={n}", row.variant),
        _ => row.variant.clone(),
    }
}

impl Report {
    /// Writes the rows as a table with all columns that some row has.
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used: Vec<&Column> =
            COLUMNS.iter().filter(|(_, figure)| self.rows.iter().any(|row| figure(row).is_some())).collect();
        let mut lines = vec![vec!["system".to_owned(), "variant".to_owned(), "op".to_owned()]];
        lines[0].extend(used.iter().map(|(head, _)| (*head).to_owned()));
        for row in &self.rows {
            let mut line = vec![row.system.clone(), named(row), format!("{} {}", row.op, row.mode)];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_that_is_too_large_does_not_hold() {
        let of = |value| Shape::gain("faster", value, 50.0, format!("-{value:.0} %"));
        assert_eq!([0.0, 27.0, 50.0].map(|value| of(value).held), [false, true, true]);
        let absurd = of(98.0);
        assert!(!absurd.held && absurd.evidence.starts_with("-98 %; more than 50 "), "{absurd:?}");
        assert!(!of(f64::NAN).held);
    }

    #[test]
    fn nothing_that_was_timed_is_judged_on_a_busy_machine() {
        let verdicts = |others, rows: Vec<Row>| {
            let mut report = Report::new("echo", "a test", Machine::look("none"));
            report.machine.others_percent = others;
            report.rows = rows;
            report.shapes = vec![
                Shape::new("timed", true, ""),
                Shape::new("counted", false, "").counted(),
                Shape::incomparable("elsewhere", ""),
            ];
            report.judged().shapes.iter().map(Shape::verdict).collect::<Vec<_>>()
        };
        let simulated =
            Row { cell: Some(Cell { model: "simulated".to_owned(), ..Cell::default() }), ..Row::default() };
        let (held, others) = (Verdict::Held, [Verdict::NotHeld, Verdict::NotComparable]);
        assert_eq!(verdicts(19.0, vec![Row::default()]), [&[held][..], &others].concat());
        assert_eq!(verdicts(21.0, vec![Row::default()]), [&[Verdict::NotJudged][..], &others].concat());
        assert_eq!(verdicts(21.0, vec![simulated]), [&[held][..], &others].concat());
    }
}

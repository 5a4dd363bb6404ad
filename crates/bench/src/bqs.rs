//! The evaluation of BQS08, simulated: 20 panels and 2 tables, and four experiments beyond it (§12 of `docs/quorum.md`).
//!
//! | Part | Module |
//! |---|---|
//! | a point of a figure, and its row | `point` |
//! | replication as a register, on the machines of the simulator | [`smr`], `register` |
//! | the statements of the paper | `statements` |
//! | what the paper does not have | `beyond` |
//! | what all have | `shared` |

use anyhow::Result;
use quorate_quorum_sim::history::Kind;
use quorate_quorum_sim::model::Model;

use self::point::{Arm, BC, C, F, PHX, Point, SMR};
use self::shared::{FAULTS, bars, dot, notes};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, Series};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

mod beyond;
mod point;
mod register;
mod shared;
pub mod smr;
mod statements;

/// What Fig. 6 has at f = 1: no fault, a faulty acceptor, a faulty acceptor that is the proposer as well.
const PROPOSERS: [(u16, bool); 3] = [(0, false), (1, false), (1, true)];

/// Points of a figure, by what is on its axis.
enum Along {
    /// Faults tolerated and faults, on machines of 2006.
    Faults,
    /// The same in the contention model, one operation a point.
    Contention,
    /// Other readers, at this f, with up to f faults.
    Readers(u16),
    /// Other readers, at f = 1 and f = 2 without faults.
    ReadersOnly,
    /// Readers, at all faults: percentages.
    Table,
    /// Whether the leader of replication is faulty.
    Proposer,
}

/// A figure or table of the paper.
struct Panel {
    id: &'static str,
    source: &'static str,
    arms: &'static [Arm],
    kind: Kind,
    along: Along,
    judge: fn(&[Row]) -> Vec<Shape>,
}

impl Panel {
    fn points(&self, operations: usize) -> Vec<Point> {
        let (kind, most) = (self.kind, if self.kind == Kind::Write { 5 } else { 4 });
        let mut points = Vec::new();
        for arm in self.arms {
            match self.along {
                Along::Faults => {
                    points.extend(FAULTS.map(|faults| Point::new(*arm, kind, faults, operations)));
                }
                Along::Contention => points.extend(FAULTS.map(|faults| Point {
                    model: Model::contention(100),
                    ..Point::new(*arm, kind, faults, 1)
                })),
                Along::Readers(f) => points.extend((0..=f).flat_map(|b| {
                    (0..=most).map(move |readers| Point::among(*arm, kind, (f, b), readers, operations))
                })),
                Along::ReadersOnly => points.extend([1, 2].into_iter().flat_map(|f| {
                    (0..=most).map(move |readers| Point::among(*arm, kind, (f, 0), readers, operations))
                })),
                Along::Table => points.extend(FAULTS.into_iter().flat_map(|faults| {
                    (0..=4).map(move |readers| Point::among(*arm, kind, faults, readers, operations))
                })),
                Along::Proposer => points.extend(
                    PROPOSERS.map(|(b, leads)| Point { leads, ..Point::new(*arm, kind, (1, b), operations) }),
                ),
            }
        }
        if self.id == "bqs-f3d" {
            // What f = 1 has at both ends, to compare with.
            points.extend([0, 4].map(|readers| Point::among(PHX, kind, (1, 0), readers, operations)));
        }
        points
    }

    fn run(&self, settings: Settings) -> Result<Report> {
        let operations = settings.effort.of(1000, 200, 3);
        let mut report = Report::new(self.id, self.source, Machine::look("simulated"));
        report.rows = self.rows(operations)?;
        report.shapes = (self.judge)(&report.rows);
        report.notes = notes();
        Ok(report)
    }

    fn rows(&self, operations: usize) -> Result<Vec<Row>> {
        self.points(operations).iter().map(Point::measure).collect()
    }

    /// Bars by faults, or curves by readers, with the standard deviation.
    fn figures(&self, rows: &[Row]) -> Vec<Figure> {
        let unit = rows.first().map_or("ms", |row| row.unit.as_str());
        let y = Axis::linear(&format!("mean latency, {unit}"));
        match self.along {
            Along::Faults | Along::Contention | Along::Proposer => {
                vec![bars(self.id, self.source, &y, rows, |row| {
                    row.op.trim_end_matches(" readers=0").to_owned()
                })]
            }
            Along::Readers(_) | Along::ReadersOnly | Along::Table => {
                let mut figure = Figure::new("readers", self.source, Axis::linear("other readers"), y);
                let mut names: Vec<String> = rows.iter().map(curve_of).collect();
                names.dedup();
                for name in names {
                    let of = rows.iter().filter(|row| curve_of(row) == name);
                    let points = of.filter_map(|row| Some(dot(f64::from(row.cell.as_ref()?.readers), row)));
                    figure = figure.with(Series { points: points.collect(), name, ..Series::default() });
                }
                vec![figure.caption("bars: the standard deviation")]
            }
        }
    }
}

fn curve_of(row: &Row) -> String {
    let (f, b) = (row.f.unwrap_or(0), row.cell.as_ref().map_or(0, |cell| cell.b));
    format!("{} f={f} b={b}", row.variant)
}

macro_rules! panels {
    ($($name:ident = $id:literal, $source:literal, $about:literal, $arms:expr, $kind:ident, $along:expr, $judge:expr;)*) => {
        $(static $name: Panel =
            Panel { id: $id, source: $source, arms: $arms, kind: Kind::$kind, along: $along, judge: $judge };)*

        /// The figures and tables of the paper.
        static PANELS: &[&Panel] = &[$(&$name),*];

        /// Every experiment of the paper, and four beyond.
        pub const EXPERIMENTS: &[Experiment] = &[
            $(Experiment {
                name: $id,
                source: $source,
                about: $about,
                run: |settings| $name.run(settings),
                figures: |rows| $name.figures(rows),
            },)*
            beyond::X1,
            beyond::X2,
            beyond::X3,
            beyond::X6,
        ];
    };
}

panels! {
    F2A = "bqs-f2a", "BQS08 Fig. 2a", "reads of MINIMAL-C and PHALANX, by faults, simulated", &[C, PHX], Read, Along::Faults, statements::f2a;
    F2B = "bqs-f2b", "BQS08 Fig. 2b", "the same in the contention model", &[C, PHX], Read, Along::Contention, statements::f2b;
    F2C = "bqs-f2c", "BQS08 Fig. 2c", "writes of MINIMAL-C and PHALANX, by faults, simulated", &[C, PHX], Write, Along::Faults, statements::f2c;
    F2D = "bqs-f2d", "BQS08 Fig. 2d", "the same in the contention model", &[C, PHX], Write, Along::Contention, statements::f2d;
    F3A = "bqs-f3a", "BQS08 Fig. 3a", "writes of MINIMAL-C and PHALANX with 0 to 5 readers, f = 1, simulated", &[C, PHX], Write, Along::Readers(1), statements::f3ab;
    F3B = "bqs-f3b", "BQS08 Fig. 3b", "the same with f = 2", &[C, PHX], Write, Along::Readers(2), statements::f3ab;
    F3C = "bqs-f3c", "BQS08 Fig. 3c", "reads of MINIMAL-C and PHALANX with a writer and 0 to 4 other readers, f = 1, simulated", &[C, PHX], Read, Along::Readers(1), statements::f3c;
    F3D = "bqs-f3d", "BQS08 Fig. 3d", "the same with f = 2", &[C, PHX], Read, Along::Readers(2), statements::f3d;
    T1 = "bqs-t1", "BQS08 Table 1", "share of reads of MINIMAL-C that received a forwarded store, and of PHALANX that wrote back, simulated", &[C, PHX], Read, Along::Table, statements::t1;
    F4A = "bqs-f4a", "BQS08 Fig. 4a", "reads of MINIMAL-F and BFT-BC, by faults, simulated", &[F, BC], Read, Along::Faults, statements::f4a;
    F4B = "bqs-f4b", "BQS08 Fig. 4b", "the same in the contention model", &[F, BC], Read, Along::Contention, statements::f4b;
    F4C = "bqs-f4c", "BQS08 Fig. 4c", "writes of MINIMAL-F and BFT-BC, by faults, simulated", &[F, BC], Write, Along::Faults, statements::f4c;
    F4D = "bqs-f4d", "BQS08 Fig. 4d", "the same in the contention model", &[F, BC], Write, Along::Contention, statements::f4d;
    F5A = "bqs-f5a", "BQS08 Fig. 5a", "writes of MINIMAL-F and BFT-BC with 0 to 5 readers, f = 1, simulated", &[F, BC], Write, Along::Readers(1), statements::f5ab;
    F5B = "bqs-f5b", "BQS08 Fig. 5b", "the same with f = 2", &[F, BC], Write, Along::Readers(2), statements::f5ab;
    F5C = "bqs-f5c", "BQS08 Fig. 5c", "reads of MINIMAL-F and BFT-BC with a writer and 0 to 4 other readers, f = 1, simulated", &[F, BC], Read, Along::Readers(1), statements::f5cd;
    F5D = "bqs-f5d", "BQS08 Fig. 5d", "the same with f = 2", &[F, BC], Read, Along::Readers(2), statements::f5cd;
    T2 = "bqs-t2", "BQS08 Table 2", "share of reads of MINIMAL-F that received a forwarded store, and of BFT-BC that wrote back, simulated", &[F, BC, C], Read, Along::Table, statements::t2;
    F6A = "bqs-f6a", "BQS08 Fig. 6a", "reads of replication and BFT-BC with a faulty acceptor and proposer, simulated", &[SMR, BC], Read, Along::Proposer, statements::f6a;
    F6B = "bqs-f6b", "BQS08 Fig. 6b", "writes of replication and BFT-BC with a faulty acceptor and proposer, simulated", &[SMR, BC], Write, Along::Proposer, statements::f6b;
    F6C = "bqs-f6c", "BQS08 Fig. 6c", "reads of replication and BFT-BC with a writer and 0 to 4 other readers, simulated", &[SMR, BC], Read, Along::ReadersOnly, statements::f6c;
    F6D = "bqs-f6d", "BQS08 Fig. 6d", "writes of replication and BFT-BC with 0 to 5 readers, simulated", &[SMR, BC], Write, Along::ReadersOnly, statements::f6d;
}

/// Judges every statement of the paper, with this number of operations a point (§13).
///
/// # Errors
///
/// A point could not be measured, or a history was not atomic.
pub fn shapes(operations: usize, mut each: impl FnMut(&str, &Shape)) -> Result<()> {
    for panel in PANELS {
        let rows = panel.rows(operations)?;
        for shape in (panel.judge)(&rows) {
            each(panel.id, &shape);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test may panic, and counts are exact")]
mod tests {
    use super::*;
    use crate::report::Verdict;

    /// The statements that few operations can show; A7 is missed at f = 2 (`docs/quorum.md` says why).
    #[test]
    fn the_statements_without_concurrency_hold() {
        let settled = [
            "bqs-f2a", "bqs-f2b", "bqs-f2c", "bqs-f2d", "bqs-f4a", "bqs-f4b", "bqs-f4c", "bqs-f4d",
            "bqs-f6a", "bqs-f6b",
        ];
        for panel in PANELS.iter().filter(|panel| settled.contains(&panel.id)) {
            let rows = panel.rows(20).unwrap();
            for shape in (panel.judge)(&rows) {
                let expected = !shape.name.starts_with("A7: writes");
                assert_eq!(shape.held, expected, "{}: {} ({})", panel.id, shape.name, shape.evidence);
            }
        }
    }

    /// No statement holds of nothing, and none where its figures are the wrong way round.
    #[test]
    fn statements_can_fail() {
        for panel in PANELS {
            for shape in (panel.judge)(&[]) {
                assert_eq!(shape.verdict(), Verdict::NotHeld, "{}: {}", panel.id, shape.name);
            }
        }
        let mut rows = F2A.rows(3).unwrap();
        for row in rows.iter_mut().filter(|row| row.variant == "minimal-c") {
            row.cell.as_mut().unwrap().mean += 100.0;
        }
        assert!((F2A.judge)(&rows)[0].verdict() == Verdict::NotHeld);
    }

    #[test]
    fn figures_have_bars_for_faults_and_curves_for_readers() {
        let rows = F2A.rows(2).unwrap();
        let bars = &F2A.figures(&rows)[0];
        assert_eq!((bars.categories.len(), bars.series.len()), (5, 2));
        let rows = F6D.rows(2).unwrap();
        let curves = &F6D.figures(&rows)[0];
        assert_eq!(curves.series.len(), 4);
        assert!(curves.series.iter().all(|series| series.points.len() == 6));
    }
}

//! The evaluation of BQS08, simulated and on sockets: 20 panels and 2 tables, and four experiments beyond it (§12 of
//! `docs/quorum-results.md`).
//!
//! | Part | Module |
//! |---|---|
//! | a point of a figure, and its row | `point` |
//! | replication as a register, on the machines of the simulator | [`smr`], `register` |
//! | real sockets, emulated machines, RSA | [`sockets`] |
//! | the statements of the paper | `statements` |
//! | what the paper does not have | `beyond` |
//! | what all have | `shared` |

use anyhow::Result;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::model::Model;
use quorate_quorum_sim::placement::Placement;

use self::point::{Arm, BC, C, EARLY, F, PHX, Place, Point, SMR, UNBATCHED};
use self::shared::{FAULTS, bars, dot, notes};
use crate::cable::Cable;
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, Series};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};
use crate::signatures::Signatures;

mod beyond;
mod point;
mod register;
mod shared;
pub mod smr;
pub mod sockets;
mod statements;

/// On emulated machines nothing is judged if jobs end later than this in the mean: a fifth of what a message takes.
const LATE_MAX_US: f64 = 54.0;

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

/// Where the points of a panel are measured: the suffix of its statements there, and whether the paper's five machines
/// are shared.
#[derive(Clone, Copy, Debug)]
struct Setting {
    name: &'static str,
    placement: Placement,
    place: Place,
    cable: Option<Cable>,
}

const SIMULATED: Setting =
    Setting { name: "", placement: Placement::Own, place: Place::Simulated, cable: None };
const ON_FIVE: Setting = Setting {
    name: " [simulated, five machines]",
    placement: Placement::Five,
    place: Place::Simulated,
    cable: None,
};
const SOCKETS: Setting = Setting {
    name: " [sockets]",
    placement: Placement::Own,
    place: Place::Sockets(Signatures::Emulated),
    cable: None,
};
const SOCKETS_ON_FIVE: Setting =
    Setting { name: " [sockets, five machines]", placement: Placement::Five, ..SOCKETS };

/// A figure or table of the paper.
struct Panel {
    id: &'static str,
    source: &'static str,
    arms: &'static [Arm],
    kind: OperationKind,
    along: Along,
    judge: fn(&[Row]) -> Vec<Shape>,
}

impl Panel {
    /// Returns where it is measured. Without concurrency, a machine for each process; the contention model has no machines
    /// of its own to emulate.
    fn settings(&self) -> &'static [Setting] {
        match self.along {
            Along::Contention => &[SIMULATED],
            Along::Faults | Along::Proposer => &[SIMULATED, SOCKETS],
            Along::Readers(_) | Along::ReadersOnly | Along::Table => &[SIMULATED, ON_FIVE, SOCKETS_ON_FIVE],
        }
    }

    fn points(&self, operations: usize, at: Setting) -> Vec<Point> {
        let (kind, most) = (self.kind, if self.kind == OperationKind::Write { 5 } else { 4 });
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
        for point in &mut points {
            (point.placement, point.place, point.cable) = (at.placement, at.place, at.cable);
        }
        points
    }

    fn run(&self, settings: Settings) -> Result<Report> {
        let mut report =
            Report::new(self.id, self.source, Machine::look("simulated, and threads on loopback"));
        for at in self.settings() {
            let mut at = Setting { cable: settings.cable, ..*at };
            let is_real = at.place != Place::Simulated;
            if let (true, Some(signatures)) = (is_real, settings.signatures) {
                at.place = Place::Sockets(signatures);
            }
            // Sockets take as long as they take.
            let operations =
                if is_real { settings.effort.of(1000, 20, 2) } else { settings.effort.of(1000, 200, 3) };
            let is_wanted = |point: &Point| !is_real || settings.effort != Effort::Tiny || point.readers == 0;
            let rows = self.rows(operations, at, is_wanted)?;
            report.shapes.extend(self.judge_at(&rows, at));
            report.rows.extend(rows);
        }
        report.notes = notes();
        Ok(report)
    }

    fn judge_at(&self, rows: &[Row], at: Setting) -> Vec<Shape> {
        let mut shapes = (self.judge)(rows);
        for shape in &mut shapes {
            shape.name.push_str(at.name);
        }
        let late = rows
            .iter()
            .filter_map(|row| row.cell.as_ref()?.late_us)
            .map(|(mean, _)| mean)
            .fold(0.0, f64::max);
        if late > LATE_MAX_US {
            let why = format!(
                "the machine was too busy to emulate others: jobs ended {late:.0} us late in a cell's mean"
            );
            shapes = shapes
                .into_iter()
                .map(|one| Shape::incomparable(one.name, format!("{why}; {}", one.evidence)))
                .collect();
        }
        shapes
    }

    fn rows(&self, operations: usize, at: Setting, is_wanted: impl Fn(&Point) -> bool) -> Result<Vec<Row>> {
        self.points(operations, at).iter().filter(|point| is_wanted(point)).map(Point::measure).collect()
    }

    /// Bars by faults, or curves by readers, with the standard deviation.
    fn figures(&self, rows: &[Row]) -> Vec<Figure> {
        let mut figures = Vec::new();
        for at in self.settings() {
            let is_at = |row: &&Row| {
                row.cell.as_ref().is_some_and(|cell| {
                    let is_real = at.place != Place::Simulated;
                    cell.model.starts_with("sockets") == is_real
                        && (cell.machines == "5") == (at.placement == Placement::Five)
                })
            };
            let of: Vec<Row> = rows.iter().filter(is_at).cloned().collect();
            if !of.is_empty() {
                figures.push(self.figure(&of, *at));
            }
        }
        figures
    }

    fn figure(&self, rows: &[Row], at: Setting) -> Figure {
        let unit = rows.first().map_or("ms", |row| row.unit.as_str());
        let y = Axis::linear(&format!("mean latency, {unit}"));
        let words = at.name.trim_matches([' ', '[', ']']).replace(", ", "-").replace(' ', "-");
        let title = format!("{}{}", self.source, at.name);
        let named = |name: &str| if words.is_empty() { name.to_owned() } else { format!("{name}-{words}") };
        match self.along {
            Along::Faults | Along::Contention | Along::Proposer => {
                bars(&named(self.id), &title, &y, rows, |row| {
                    row.op.split(" readers=").next().unwrap_or("").to_owned()
                })
            }
            Along::Readers(_) | Along::ReadersOnly | Along::Table => {
                let mut figure = Figure::new(&named("readers"), &title, Axis::linear("other readers"), y);
                let mut curves: Vec<String> = rows.iter().map(curve_of).collect();
                curves.dedup();
                for name in curves {
                    let of = rows.iter().filter(|row| curve_of(row) == name);
                    let points = of.filter_map(|row| Some(dot(f64::from(row.cell.as_ref()?.readers), row)));
                    figure = figure.with(Series { points: points.collect(), name, ..Series::default() });
                }
                figure.caption("bars: the standard deviation")
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
            Panel { id: $id, source: $source, arms: $arms, kind: OperationKind::$kind, along: $along, judge: $judge };)*

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
    F2A = "bqs-f2a", "BQS08 Fig. 2a", "reads of MINIMAL-C and PHALANX, by faults", &[C, PHX], Read, Along::Faults, statements::f2a;
    F2B = "bqs-f2b", "BQS08 Fig. 2b", "the same in the contention model", &[C, PHX], Read, Along::Contention, statements::f2b;
    F2C = "bqs-f2c", "BQS08 Fig. 2c", "writes of MINIMAL-C and PHALANX, by faults", &[C, PHX], Write, Along::Faults, statements::f2c;
    F2D = "bqs-f2d", "BQS08 Fig. 2d", "the same in the contention model", &[C, PHX], Write, Along::Contention, statements::f2d;
    F3A = "bqs-f3a", "BQS08 Fig. 3a", "writes of MINIMAL-C and PHALANX with 0 to 5 readers, f = 1", &[C, PHX], Write, Along::Readers(1), statements::f3ab;
    F3B = "bqs-f3b", "BQS08 Fig. 3b", "the same with f = 2", &[C, PHX], Write, Along::Readers(2), statements::f3ab;
    F3C = "bqs-f3c", "BQS08 Fig. 3c", "reads of MINIMAL-C and PHALANX with a writer and 0 to 4 other readers, f = 1", &[C, PHX], Read, Along::Readers(1), statements::f3c;
    F3D = "bqs-f3d", "BQS08 Fig. 3d", "the same with f = 2", &[C, PHX], Read, Along::Readers(2), statements::f3d;
    T1 = "bqs-t1", "BQS08 Table 1", "share of reads of MINIMAL-C that received a forwarded store, and of PHALANX that wrote back", &[C, PHX], Read, Along::Table, statements::t1;
    F4A = "bqs-f4a", "BQS08 Fig. 4a", "reads of MINIMAL-F and BFT-BC, by faults", &[F, BC], Read, Along::Faults, statements::f4a;
    F4B = "bqs-f4b", "BQS08 Fig. 4b", "the same in the contention model", &[F, BC], Read, Along::Contention, statements::f4b;
    F4C = "bqs-f4c", "BQS08 Fig. 4c", "writes of MINIMAL-F and BFT-BC, by faults", &[F, BC], Write, Along::Faults, statements::f4c;
    F4D = "bqs-f4d", "BQS08 Fig. 4d", "the same in the contention model", &[F, BC], Write, Along::Contention, statements::f4d;
    F5A = "bqs-f5a", "BQS08 Fig. 5a", "writes of MINIMAL-F and BFT-BC with 0 to 5 readers, f = 1", &[F, BC], Write, Along::Readers(1), statements::f5ab;
    F5B = "bqs-f5b", "BQS08 Fig. 5b", "the same with f = 2", &[F, BC], Write, Along::Readers(2), statements::f5ab;
    F5C = "bqs-f5c", "BQS08 Fig. 5c", "reads of MINIMAL-F and BFT-BC with a writer and 0 to 4 other readers, f = 1", &[F, BC], Read, Along::Readers(1), statements::f5cd;
    F5D = "bqs-f5d", "BQS08 Fig. 5d", "the same with f = 2", &[F, BC], Read, Along::Readers(2), statements::f5cd;
    T2 = "bqs-t2", "BQS08 Table 2", "share of reads of MINIMAL-F that received a forwarded store, and of BFT-BC that wrote back", &[F, BC, C], Read, Along::Table, statements::t2;
    F6A = "bqs-f6a", "BQS08 Fig. 6a", "reads of replication and BFT-BC with a faulty acceptor and proposer", &[SMR, BC, EARLY], Read, Along::Proposer, statements::f6a;
    F6B = "bqs-f6b", "BQS08 Fig. 6b", "writes of replication and BFT-BC with a faulty acceptor and proposer", &[SMR, BC, EARLY], Write, Along::Proposer, statements::f6b;
    F6C = "bqs-f6c", "BQS08 Fig. 6c", "reads of replication and BFT-BC with a writer and 0 to 4 other readers", &[SMR, BC, UNBATCHED, EARLY], Read, Along::ReadersOnly, statements::f6c;
    F6D = "bqs-f6d", "BQS08 Fig. 6d", "writes of replication and BFT-BC with 0 to 5 readers", &[SMR, BC, UNBATCHED, EARLY], Write, Along::ReadersOnly, statements::f6d;
}

/// Judges every statement of the paper, with this number of operations a point (§13).
///
/// # Errors
///
/// A point could not be measured, or a history was not atomic.
pub fn shapes(operations: usize, mut each: impl FnMut(&str, &Shape)) -> Result<()> {
    for panel in PANELS {
        for at in panel.settings().iter().filter(|at| at.place == Place::Simulated) {
            let rows = panel.rows(operations, *at, |_| true)?;
            for shape in panel.judge_at(&rows, *at) {
                each(panel.id, &shape);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test may panic, and counts are exact")]
mod tests {
    use super::*;
    use crate::report::Verdict;

    /// The statements that few operations can show; A7 is missed at f = 2, and A12 by writes (`docs/quorum-results.md` says why).
    #[test]
    fn the_statements_without_concurrency_hold() {
        let settled = [
            "bqs-f2a", "bqs-f2b", "bqs-f2c", "bqs-f2d", "bqs-f4a", "bqs-f4b", "bqs-f4c", "bqs-f4d",
            "bqs-f6a", "bqs-f6b",
        ];
        for panel in PANELS.iter().filter(|panel| settled.contains(&panel.id)) {
            let rows = panel.rows(20, SIMULATED, |_| true).unwrap();
            for shape in (panel.judge)(&rows) {
                let missed = ["A7: writes", "A12"].iter().any(|name| shape.name.starts_with(name));
                let expected = !(missed && ["bqs-f4c", "bqs-f6b"].contains(&panel.id));
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
        let mut rows = F2A.rows(3, SIMULATED, |_| true).unwrap();
        for row in rows.iter_mut().filter(|row| row.variant == "minimal-c") {
            row.cell.as_mut().unwrap().mean += 100.0;
        }
        assert!((F2A.judge)(&rows)[0].verdict() == Verdict::NotHeld);
    }

    #[test]
    fn figures_have_bars_for_faults_and_curves_for_readers() {
        let rows = F2A.rows(2, SIMULATED, |_| true).unwrap();
        let bars = &F2A.figures(&rows)[0];
        assert_eq!((bars.categories.len(), bars.series.len()), (5, 2));
        let rows = F6D.rows(2, SIMULATED, |_| true).unwrap();
        let curves = &F6D.figures(&rows)[0];
        assert_eq!(curves.series.len(), 8);
        assert!(curves.series.iter().all(|series| series.points.len() == 6));
    }
}

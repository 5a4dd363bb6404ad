//! The statements of the comparison [BQS08, on the evaluation], judged on simulated cells (§12, §13): machines of 2006 on a
//! switch, and the contention model. Absolute numbers are not asserted.

use quorate_quorum::Protocol;
use quorate_quorum::settings::Variant;

use crate::cell::{Cell, Row};
use crate::history::Kind;
use crate::model::Model;

/// A statement with what was measured.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its id (§13.3, §13.4).
    pub id: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Whether it holds.
    pub held: bool,
    /// The figures.
    pub figures: String,
}

const C: Protocol = Protocol::MinimalC;
const PHX: Protocol = Protocol::Phalanx;
const F: Protocol = Protocol::MinimalF;
const BC: Protocol = Protocol::BftBc(Variant::Optimized);
const FAULTS: [(u16, u16); 5] = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)];

/// Measures cells, and remembers nothing.
#[derive(Clone, Copy, Debug)]
struct Measure {
    operations: usize,
}

impl Measure {
    fn lan(
        self,
        protocol: Protocol,
        kind: Kind,
        faults: (u16, u16),
        readers: u16,
        both: bool,
    ) -> Result<Row, String> {
        let mut cell =
            Cell::new(protocol, faults.0, kind, Model::sim2006(if readers > 0 || both { 30 } else { 0 }));
        cell.faulty = faults.1;
        cell.readers = readers;
        cell.writer = both;
        cell.operations = self.operations;
        cell.warm_up = self.operations / 10;
        cell.think = if readers > 0 || both { 10_000 } else { 20_000 };
        let row = cell.run()?;
        row.verdict.clone()?;
        Ok(row)
    }

    fn unit(protocol: Protocol, kind: Kind, faults: (u16, u16)) -> Result<f64, String> {
        let mut cell = Cell::new(protocol, faults.0, kind, Model::contention(100));
        cell.faulty = faults.1;
        cell.operations = 1;
        cell.warm_up = 0;
        Ok(cell.run()?.latency.mean())
    }

    fn lan_means(self, protocol: Protocol, kind: Kind) -> Result<Vec<f64>, String> {
        let row = |faults| Ok(self.lan(protocol, kind, faults, 0, false)?.latency.mean());
        FAULTS.into_iter().map(row).collect()
    }

    fn unit_means(protocol: Protocol, kind: Kind) -> Result<Vec<f64>, String> {
        FAULTS.into_iter().map(|faults| Self::unit(protocol, kind, faults)).collect()
    }
}

fn show(name: &str, numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:.2}")).collect();
    format!("{name} {}", numbers.join(" "))
}

fn all(a: &[f64], b: &[f64], holds: impl Fn(f64, f64) -> bool) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| holds(*a, *b))
}

fn within(a: &[f64], b: &[f64], percent: f64) -> bool {
    all(a, b, |a, b| (a - b).abs() <= a.min(b) * percent / 100.0)
}

/// Judges every statement that simulation can judge, with `operations` operations a cell.
pub fn judge(operations: usize) -> Result<Vec<Shape>, String> {
    let measure = Measure { operations };
    let mut shapes = lan(measure)?;
    shapes.extend(concurrent(measure)?);
    shapes.extend(contention()?);
    Ok(shapes)
}

/// Without concurrency, on machines of 2006 (F2a, F2c, F4a, F4c).
fn lan(measure: Measure) -> Result<Vec<Shape>, String> {
    let reads = |protocol| measure.lan_means(protocol, Kind::Read);
    let writes = |protocol| measure.lan_means(protocol, Kind::Write);
    let (c, phx, f, bc) = (reads(C)?, reads(PHX)?, reads(F)?, reads(BC)?);
    let (wc, wphx, wf, wbc) = (writes(C)?, writes(PHX)?, writes(F)?, writes(BC)?);
    let growth = |means: &[f64]| {
        let base = [means[0], means[0], means[2], means[2], means[2]];
        means.iter().zip(base).map(|(mean, base)| mean / base - 1.0).fold(0.0, f64::max)
    };
    let most = growth(&c).max(growth(&phx));
    Ok(vec![
        Shape {
            id: "A1",
            says: "reads: MINIMAL-C below PHALANX in every cell, by about one verification (0.9 ms)",
            held: all(&c, &phx, |c, phx| (0.45..1.8).contains(&(phx - c))),
            figures: format!("{}; {}", show("C", &c), show("PHX", &phx)),
        },
        Shape {
            id: "A2",
            says: "reads grow little with faulty servers (below 30 % with the lowest numbers)",
            held: most < 0.3,
            figures: format!("at most {:.1} %", most * 100.0),
        },
        Shape {
            id: "A3",
            says: "writes: PHALANX above MINIMAL-C by about one signature (14 ms)",
            held: all(&wc, &wphx, |c, phx| (9.0..21.0).contains(&(phx - c))),
            figures: format!("{}; {}", show("C", &wc), show("PHX", &wphx)),
        },
        Shape {
            id: "A6",
            says: "MINIMAL-F below BFT-BC everywhere; the gap of writes grows with f",
            held: all(&f, &bc, |f, bc| f < bc)
                && all(&wf, &wbc, |f, bc| f < bc)
                && wbc[2] - wf[2] > wbc[0] - wf[0],
            figures: [show("read F", &f), show("BC", &bc), show("write F", &wf), show("BC", &wbc)].join("; "),
        },
        Shape {
            id: "A7",
            says: "BFT-BC / MINIMAL-F: writes 1.5 to 2.3, reads 1.6 to 2.7",
            held: all(&wf, &wbc, |f, bc| (1.5..=2.3).contains(&(bc / f)))
                && all(&f, &bc, |f, bc| (1.6..=2.7).contains(&(bc / f))),
            figures: format!(
                "write {:.2} and {:.2}, read {:.2} and {:.2} (f = 1, 2)",
                wbc[0] / wf[0],
                wbc[2] / wf[2],
                bc[0] / f[0],
                bc[2] / f[2]
            ),
        },
    ])
}

/// With a writer and readers at once (F3, F5, T1, T2).
fn concurrent(measure: Measure) -> Result<Vec<Shape>, String> {
    let mut shapes = Vec::new();
    let lines = |protocol, kind, f: u16| -> Result<Vec<f64>, String> {
        let most = if kind == Kind::Write { 5 } else { 4 };
        (0..=most)
            .map(|readers| Ok(measure.lan(protocol, kind, (f, 0), readers, true)?.latency.mean()))
            .collect()
    };
    let (mut writes, mut figures) = (true, Vec::new());
    let (mut reads, mut read_figures) = (true, Vec::new());
    for f in [1, 2] {
        let (c, phx) = (lines(C, Kind::Write, f)?, lines(PHX, Kind::Write, f)?);
        writes &= all(&c, &phx, |c, phx| c < phx);
        figures.push(format!("f = {f}: {}; {}", show("C", &c), show("PHX", &phx)));
        let (minimal, bc) = (lines(F, Kind::Read, f)?, lines(BC, Kind::Read, f)?);
        reads &= all(&minimal, &bc, |minimal, bc| minimal < bc);
        read_figures.push(format!("f = {f}: {}; {}", show("F", &minimal), show("BC", &bc)));
    }
    shapes.push(Shape {
        id: "A4",
        says: "writes with 0 to 5 readers: MINIMAL-C below PHALANX",
        held: writes,
        figures: figures.join("; "),
    });
    shapes.push(Shape {
        id: "A8",
        says: "reads with a writer and 0 to 4 other readers: BFT-BC slower than MINIMAL-F, always",
        held: reads,
        figures: read_figures.join("; "),
    });
    for (id, says, listener, back) in [
        (
            "T1",
            "listener_any of MINIMAL-C at least three times the write-backs of PHALANX, which are below 20 %",
            C,
            PHX,
        ),
        (
            "T2",
            "listener_any of MINIMAL-F at least three times the write-backs of BFT-BC, which are below 20 %",
            F,
            BC,
        ),
    ] {
        let mut held = true;
        let mut figures = Vec::new();
        for faults in FAULTS {
            let share = |protocol, of: fn(&Row) -> f64| -> Result<f64, String> {
                let rows: Result<Vec<f64>, String> = [0, 2, 4]
                    .into_iter()
                    .map(|readers| Ok(of(&measure.lan(protocol, Kind::Read, faults, readers, true)?)))
                    .collect();
                let rows = rows?;
                Ok(rows.iter().sum::<f64>() / 3.0)
            };
            let (any, wrote) = (share(listener, |row| row.listener_any)?, share(back, |row| row.write_back)?);
            held &= any >= 3.0 * wrote && wrote < 20.0;
            figures.push(format!("({}, {}) {any:.1} and {wrote:.1} %", faults.0, faults.1));
        }
        shapes.push(Shape { id, says, held, figures: figures.join(", ") });
    }
    Ok(shapes)
}

/// The contention model, one operation a cell (F2b, F2d, F4b, F4d).
fn contention() -> Result<Vec<Shape>, String> {
    let reads = |protocol| Measure::unit_means(protocol, Kind::Read);
    let writes = |protocol| Measure::unit_means(protocol, Kind::Write);
    let (c, phx, f, bc) = (reads(C)?, reads(PHX)?, reads(F)?, reads(BC)?);
    let (wc, wphx, wf, wbc) = (writes(C)?, writes(PHX)?, writes(F)?, writes(BC)?);
    let mean = |list: &[f64]| list.iter().sum::<f64>() / 5.0;
    let rises =
        |list: &[f64]| list[0] < list[1] && list[0] < list[2] && list[2] < list[3] && list[3] < list[4];
    Ok(vec![
        Shape {
            id: "W1",
            says: "reads of MINIMAL-C and PHALANX are equal within 2 %",
            held: within(&c, &phx, 2.0),
            figures: format!("{}; {}", show("C", &c), show("PHX", &phx)),
        },
        Shape {
            id: "W2",
            says: "writes of MINIMAL-C and PHALANX are equal within 5 %",
            held: within(&wc, &wphx, 5.0),
            figures: format!("{}; {}", show("C", &wc), show("PHX", &wphx)),
        },
        Shape {
            id: "W3",
            says: "reads of MINIMAL-F and BFT-BC are equal within 3 %",
            held: within(&f, &bc, 3.0),
            figures: format!("{}; {}", show("F", &f), show("BC", &bc)),
        },
        Shape {
            id: "W4",
            says: "writes of MINIMAL-F take longer than those of BFT-BC in the mean over the cells",
            held: mean(&wf) > mean(&wbc),
            figures: format!("{}; {}", show("F", &wf), show("BC", &wbc)),
        },
        Shape {
            id: "W5",
            says: "reads grow with f and with faulty servers, writes with f",
            held: [&c, &phx, &f, &bc].iter().all(|list| rises(list))
                && [&wc, &wphx, &wf, &wbc].iter().all(|list| list[0] < list[2]),
            figures: show("C", &c),
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All but A7, which is missed at f = 2: a server verifies the certificate of the client's last write
    /// within phase 1, which the paper's figures leave open (q verifications, 4.5 ms at f = 2).
    #[test]
    fn the_shapes_without_concurrency_hold() {
        let mut shapes = lan(Measure { operations: 30 }).unwrap();
        shapes.extend(contention().unwrap());
        for shape in shapes {
            let expected = shape.id != "A7";
            assert_eq!(shape.held, expected, "{} {}: {}", shape.id, shape.says, shape.figures);
        }
    }
}

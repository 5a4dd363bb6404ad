//! What the experiments share: faults, bars, notes.

use crate::figure::{Axis, Dot, Figure, Series};
use crate::report::Row;

/// Faults tolerated and faults, in the order of the paper's bars.
pub(super) const FAULTS: [(u16, u16); 5] = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)];
pub(super) fn notes() -> Vec<String> {
    vec![
        "simulated time: each process has a machine of its own; a message and a signature take what they took in 2006, and \
         in the contention model what they took in the paper's simulation"
            .to_owned(),
        "bytes are those of messages without frames; of replication, those of datagrams".to_owned(),
    ]
}

pub(super) fn dot(x: f64, row: &Row) -> Dot {
    let (y, error) = row.cell.as_ref().map_or((0.0, 0.0), |cell| (cell.mean, cell.deviation));
    Dot { x, y, error, ..Dot::default() }
}

/// Returns bars: a place for each name, a colour for each register.
pub(super) fn bars(id: &str, title: &str, y: &Axis, rows: &[Row], name: impl Fn(&Row) -> String) -> Figure {
    let mut figure = Figure::new(id.trim_start_matches("bqs-"), title, Axis::linear(""), y.clone());
    for row in rows {
        let place = name(row);
        if !figure.categories.contains(&place) {
            figure.categories.push(place);
        }
    }
    let mut arms: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| !arms.contains(&row.variant.as_str())).collect::<Vec<_>>() {
        if !arms.contains(&row.variant.as_str()) {
            arms.push(&row.variant);
        }
    }
    for arm in arms {
        let of = rows.iter().filter(|row| row.variant == arm);
        let at = |row: &Row| figure.categories.iter().position(|place| *place == name(row)).unwrap_or(0);
        let points = of.map(|row| dot(f64::from(u32::try_from(at(row)).unwrap_or(0)), row)).collect();
        figure = figure.with(Series { name: arm.to_owned(), points, ..Series::default() });
    }
    figure.caption("bars: the standard deviation")
}

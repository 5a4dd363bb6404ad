//! The content of a figure, before it is drawn: curves or bars, ours, the paper's and another system's.

use crate::report::Row;

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Part of the file's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The axes.
    pub x: Axis,
    /// The vertical one: from zero, unless it is logarithmic.
    pub y: Axis,
    /// Names of places on the x axis, at 0, 1, 2, ...: if there are any, the figure shows bars.
    pub categories: Vec<String>,
    /// The series, in the order of the legend.
    pub series: Vec<Series>,
    /// The text below: the source of the paper's figures.
    pub caption: String,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub log: bool,
}

/// The origin of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Measured here.
    #[default]
    Ours,
    /// From a paper: drawn hollow and grey.
    Paper,
    /// From a file given for comparison.
    Against,
}

/// A curve, or the bars of one colour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its origin.
    pub origin: Origin,
    /// Its points, from left to right.
    pub points: Vec<Dot>,
    /// Only points, without a line between them.
    pub is_scattered: bool,
    /// A horizontal line through its one point: a value without a place on the x axis.
    pub is_level: bool,
}

/// A point of a curve, or a bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dot {
    /// Its place on the x axis.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The samples of the median.
    pub samples: Vec<f64>,
    /// Half of an error bar; 0: there is none.
    pub error: f64,
}

/// The value of a row on an axis.
pub type Of = fn(&Row) -> Option<f64>;

impl Figure {
    /// Returns an empty figure.
    pub fn new(name: &str, title: &str, x: Axis, y: Axis) -> Self {
        Self { name: name.to_owned(), title: title.to_owned(), x, y, ..Self::default() }
    }

    /// Sets the text below.
    #[must_use]
    pub fn caption(self, caption: &str) -> Self {
        Self { caption: caption.to_owned(), ..self }
    }

    /// Adds a series, unless it has no point.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        if !series.points.is_empty() {
            self.series.push(series);
        }
        self
    }

    /// Adds the paper's points, if there are any.
    #[must_use]
    pub fn paper(self, name: &str, points: &[(f64, f64)]) -> Self {
        let points =
            points.iter().map(|(x, y)| Dot { x: *x, y: *y, samples: Vec::new(), ..Dot::default() }).collect();
        let (name, origin) = (name.to_owned(), Origin::Paper);
        self.with(Series { name, origin, points, is_scattered: true, ..Series::default() })
    }

    /// Adds a value of the paper that has no place on the x axis, as a horizontal line. Without other points there is
    /// nothing to compare it with.
    #[must_use]
    pub fn paper_level(self, name: &str, y: f64) -> Self {
        let first = self.series.iter().flat_map(|series| &series.points).map(|dot| dot.x).next();
        let points = first.map(|x| Dot { x, y, samples: Vec::new(), ..Dot::default() }).into_iter().collect();
        let (name, origin) = (name.to_owned(), Origin::Paper);
        self.with(Series { name, origin, points, is_level: true, ..Series::default() })
    }

    /// Returns whether the figure has no points.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    /// Returns the figure with the series of `other` for comparison.
    #[must_use]
    pub fn against(mut self, other: &Self, whose: &str) -> Self {
        for series in other.series.iter().filter(|series| series.origin == Origin::Ours) {
            let name = format!("{whose}: {}", series.name);
            self.series.push(Series { name, origin: Origin::Against, ..series.clone() });
        }
        self
    }
}

impl Axis {
    /// An axis from zero.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), log: false }
    }

    /// A logarithmic axis.
    pub fn log(label: &str) -> Self {
        Self { label: label.to_owned(), log: true }
    }
}

/// Returns the curve of these rows.
pub fn curve<'r>(name: &str, rows: impl Iterator<Item = &'r Row>, x: Of, y: Of) -> Series {
    let mut points: Vec<Dot> = rows
        .filter_map(|row| {
            let (x, y) = (x(row)?, y(row)?);
            // The samples belong to the row's first figure; they are used if their median is `y`.
            let is_theirs = (crate::figures::median(&row.samples) - y).abs() <= y.abs() * 1e-6;
            let samples = if is_theirs { row.samples.clone() } else { Vec::new() };
            Some(Dot { x, y, samples, ..Dot::default() })
        })
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Series { name: name.to_owned(), points, ..Series::default() }
}

/// Returns a curve divided by another, at the places that both have.
pub fn ratio_of(name: &str, above: &Series, below: &Series) -> Series {
    let at = |x: f64| below.points.iter().find(|dot| (dot.x - x).abs() < 1e-9 && dot.y > 0.0);
    let points = above.points.iter().filter_map(|dot| {
        let base = at(dot.x)?.y;
        Some(Dot {
            x: dot.x,
            y: dot.y / base,
            samples: dot.samples.iter().map(|s| s / base).collect(),
            ..Dot::default()
        })
    });
    Series { name: name.to_owned(), points: points.collect(), ..Series::default() }
}

/// The number of clients.
pub fn clients(row: &Row) -> Option<f64> {
    Some(f64::from(row.clients))
}

/// Bytes of the argument.
pub fn argument(row: &Row) -> Option<f64> {
    row.argument_bytes.and_then(|bytes| u32::try_from(bytes).ok()).map(f64::from)
}

/// Bytes of the result.
pub fn result(row: &Row) -> Option<f64> {
    row.result_bytes.and_then(|bytes| u32::try_from(bytes).ok()).map(f64::from)
}

/// The median latency.
pub fn p50(row: &Row) -> Option<f64> {
    row.p50_us
}

/// Operations per second.
pub fn ops(row: &Row) -> Option<f64> {
    row.ops_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_where_both_curves_have_a_point() {
        let of = |points: &[(f64, f64)]| Series {
            points: points
                .iter()
                .map(|(x, y)| Dot { x: *x, y: *y, samples: vec![*y], ..Dot::default() })
                .collect(),
            ..Series::default()
        };
        let ratio = ratio_of("r", &of(&[(1.0, 6.0), (2.0, 9.0)]), &of(&[(2.0, 3.0), (3.0, 1.0)]));
        assert_eq!(ratio.points, [Dot { x: 2.0, y: 3.0, samples: vec![3.0], ..Dot::default() }]);
    }
}

//! The figures of `micro-latency`: the papers' two figures and their table, each also divided by the unreplicated service.

use crate::figure::{Axis, Dot, Figure, Of, Series, argument, curve, p50, ratio_of, result};
use crate::report::Row;

/// The other size.
pub(super) const SMALL: usize = 8;

/// The paper's table, in microseconds: argument and result, read-write, read-only, unreplicated
/// [OSDI99 §7.2].
pub(super) const TABLE: [(usize, u32, f64, f64, f64); 3] =
    [(0, 0, 3350.0, 1620.0, 820.0), (4096, 0, 14_190.0, 6980.0, 4620.0), (0, 4096, 8010.0, 5940.0, 4660.0)];

/// The place of an asymptote on the axis of sizes.
const FAR: f64 = 8192.0;

pub(super) fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut figures = table(rows);
    figures.extend(over(rows, "result", result, |row| row.argument_bytes == Some(SMALL)));
    figures.extend(over(rows, "argument", argument, |row| row.result_bytes == Some(SMALL)));
    figures
}

/// Table 1 in absolute figures, and divided by NO-REP.
fn table(rows: &[Row]) -> Vec<Figure> {
    let find = |system: &str, mode: &str, place: usize| {
        let (argument, result, ..) = TABLE.get(place).copied()?;
        rows.iter().find(|row| {
            row.system == system
                && row.mode == mode
                && row.argument_bytes == Some(argument)
                && row.result_bytes == usize::try_from(result).ok()
                && matches!(row.variant.as_str(), "default" | "polling")
                && row.f.is_none_or(|f| f == 1)
        })
    };
    let absolute = |name: &str, system: &str, mode: &str| {
        let dot = |(x, place): (f64, usize)| {
            let row = find(system, mode, place)?;
            Some(Dot { x, y: row.p50_us?, samples: row.samples.clone(), ..Dot::default() })
        };
        let points = [(0.0, 0), (1.0, 1), (2.0, 2)].into_iter().filter_map(dot).collect();
        Series { name: name.to_owned(), points, ..Series::default() }
    };
    let ours = [
        absolute("read-write", "quorate", "rw"),
        absolute("read-only", "quorate", "ro"),
        absolute("NO-REP", "no-rep", "rw"),
        absolute("NO-REP+MAC", "no-rep+mac", "rw"),
    ];
    let categories = ["0/0", "4/0", "0/4"].map(str::to_owned).to_vec();
    let paper = |of: fn(&(usize, u32, f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
        [0.0, 1.0, 2.0].into_iter().zip(TABLE.iter().map(of)).collect()
    };
    let mut a = Figure::new(
        "table-1",
        "OSDI99 Table 1: latency of a null operation",
        Axis::linear("operation, argument/result in KB"),
        Axis::log("microseconds"),
    );
    a.categories.clone_from(&categories);
    for series in &ours {
        a = a.with(series.clone());
    }
    a = a
        .paper("read-write, paper", &paper(|row| row.2))
        .paper("read-only, paper", &paper(|row| row.3))
        .paper("NO-REP, paper", &paper(|row| row.4))
        .caption("Medians; dots: repeats. Grey: OSDI99 Table 1, 133 MHz Alphas and 10 Mbit/s Ethernet; ours is loopback.");
    let mut b = Figure::new(
        "table-1-normalised",
        "OSDI99 Table 1, divided by the unreplicated service",
        Axis::linear("operation, argument/result in KB"),
        Axis::linear("times NO-REP"),
    );
    b.categories = categories;
    let [rw, ro, base, mac] = &ours;
    for (name, above) in [("read-write", rw), ("read-only", ro), ("NO-REP+MAC", mac)] {
        b = b.with(ratio_of(name, above, base));
    }
    b = b
        .paper("read-write, paper", &paper(|row| row.2 / row.4))
        .paper("read-only, paper", &paper(|row| row.3 / row.4))
        .caption("Ours and the paper's (grey, OSDI99 Table 1), each divided by its own NO-REP.");
    vec![a, b]
}

/// A figure over sizes, the same divided by NO-REP, and seven replicas against four.
fn over(rows: &[Row], what: &str, x: Of, is_of_it: fn(&Row) -> bool) -> Vec<Figure> {
    let series = |name: &str, system: &str, f: Option<u16>, mode: &str| {
        let ours = rows.iter().filter(|row| {
            row.system == system
                && row.f == f
                && row.mode == mode
                && is_of_it(row)
                && matches!(row.variant.as_str(), "default" | "polling")
        });
        curve(name, ours, x, p50)
    };
    let label = format!("bytes of the {what}");
    let axis = || Axis::linear(&label);
    let base = series("NO-REP", "no-rep", None, "rw");
    let (rw, ro) =
        (series("read-write", "quorate", Some(1), "rw"), series("read-only", "quorate", Some(1), "ro"));
    let (rw7, ro7) = (
        series("read-write, f = 2", "quorate", Some(2), "rw"),
        series("read-only, f = 2", "quorate", Some(2), "ro"),
    );
    let a = Figure::new(
        &format!("{what}-size"),
        &format!("DSN01 Figure 2: latency over the size of the {what}"),
        axis(),
        Axis::linear("microseconds"),
    )
    .with(rw.clone())
    .with(ro.clone())
    .with(base.clone())
    .caption("Medians; dots: repeats. The paper's curve has no figures; its text is in the next figure.");
    let b = Figure::new(
        &format!("{what}-size-normalised"),
        &format!("DSN01 Figure 2: slowdown over the size of the {what}"),
        axis(),
        Axis::linear("times NO-REP"),
    )
    .with(ratio_of("read-write", &rw, &base))
    .with(ratio_of("read-only", &ro, &base))
    .paper("the paper's asymptote", &[(FAR, 1.26)])
    .caption("Divided by the unreplicated service. Grey: the asymptote in DSN01 section 4.2.");
    let c = Figure::new(&format!("{what}-size-seven"), &format!("DSN01 Figure 3: seven replicas against four, over the size of the {what}"), axis(), Axis::linear("latency with f = 2 / with f = 1"))
        .with(ratio_of("read-write", &rw7, &rw))
        .with(ratio_of("read-only", &ro7, &ro))
        .paper("the paper's largest: read-write 1.30, read-only 1.26", &[(0.0, 1.30), (0.0, 1.26)])
        .caption("Grey: the largest slowdown in DSN01 section 4.2. Eight processes share this machine's cores; the paper's had a machine each.");
    vec![a, b, c]
}

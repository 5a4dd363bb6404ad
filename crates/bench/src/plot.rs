//! Curves of a report as a drawing (SVG): operations a second over the number of clients, one chart.

use std::fmt::Write;

use crate::report::Row;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
/// Room at the left and below for figures; on the right for the curves' names.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BELOW: f64 = 50.0;
/// Told apart also by those who see colours otherwise.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// One curve: its name and its points, clients and operations a second.
type Curve = (String, Vec<(f64, f64)>);

/// Draws the curves of the rows that have an operation count for more than one number of clients; none if
/// there is no such row.
pub fn svg(title: &str, rows: &[Row]) -> Option<String> {
    let curves = curves(rows);
    let points = || curves.iter().flat_map(|(_, points)| points);
    let (x_max, y_max) = points().fold((1.0_f64, 0.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
    if curves.is_empty() || y_max <= 0.0 {
        return None;
    }
    let step = round_step(y_max);
    let y_end = (y_max / step).ceil() * step;
    let x_of = |clients: f64| {
        LEFT + (WIDTH - LEFT - RIGHT) * if x_max > 1.0 { clients.ln() / x_max.ln() } else { 0.0 }
    };
    let y_of = |ops: f64| HEIGHT - BELOW - (HEIGHT - TOP - BELOW) * ops / y_end;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, LEFT, 22.0, "start", &format!("{title}: operations a second over clients"));
    let mut ops = 0.0;
    while ops <= y_end {
        let y = y_of(ops);
        line(&mut out, (LEFT, y), (WIDTH - RIGHT, y), "#dddddd");
        text(&mut out, LEFT - 6.0, y + 4.0, "end", &format!("{ops:.0}"));
        ops += step;
    }
    let mut counts: Vec<f64> = points().map(|point| point.0).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    for clients in counts {
        let (x, y) = (x_of(clients), HEIGHT - BELOW);
        line(&mut out, (x, y), (x, y + 5.0), "black");
        text(&mut out, x, y + 20.0, "middle", &format!("{clients:.0}"));
    }
    line(&mut out, (LEFT, HEIGHT - BELOW), (WIDTH - RIGHT, HEIGHT - BELOW), "black");
    for (index, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let dots: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x_of(*x), y_of(*y))).collect();
        let path: Vec<String> = dots.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>", path.join(" "));
        for (x, y) in dots {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 18.0 * ratio(index));
        let _ = writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>");
        text(&mut out, x + 10.0, y + 4.0, "start", name);
    }
    out.push_str("</svg>\n");
    Some(out)
}

fn curves(rows: &[Row]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let Some(ops) = row.ops_per_s else { continue };
        let words = [row.system, row.variant.as_str(), row.op, row.mode];
        let name = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        let point = (f64::from(row.clients), ops);
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => curves.push((name, vec![point])),
        }
    }
    curves.retain(|(_, points)| points.len() > 1);
    curves
}

/// Returns the distance of the lines of a scale up to `max`: 1, 2 or 5 times a power of ten, at most ten of
/// them.
fn round_step(max: f64) -> f64 {
    let power = 10_f64.powf((max / 10.0).log10().floor());
    let fits = |factor: &f64| max / (power * factor) <= 10.0;
    [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0) * power
}

fn ratio(index: usize) -> f64 {
    u32::try_from(index).map_or(0.0, f64::from)
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: &'static str, clients: u32, ops: f64) -> Row {
        Row { system, op: "0/0", mode: "rw", clients, ops_per_s: Some(ops), ..Row::default() }
    }

    #[test]
    fn a_curve_has_its_points_and_its_name() {
        let rows = [row("a<b", 1, 10.0), row("a<b", 100, 950.0), row("lone", 1, 5.0)];
        let drawing = svg("x", &rows).unwrap_or_default();
        assert_eq!(drawing.matches("<polyline").count(), 1, "a point alone is no curve");
        assert_eq!(drawing.matches("r=\"3\"").count(), 2);
        assert!(drawing.contains("a&lt;b 0/0 rw") && drawing.contains(">1000</text>"));
        assert_eq!(svg("x", &rows[1..]), None);
    }

    #[test]
    fn scales_have_round_figures() {
        for (max, step) in [(950.0, 100.0), (1001.0, 200.0), (187_000.0, 20_000.0), (4.0, 0.5)] {
            assert!((round_step(max) - step).abs() < 1e-9, "{max}: {}", round_step(max));
        }
    }
}

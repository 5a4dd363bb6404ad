//! Draws a figure as SVG, and with the feature `png` as PNG with a built-in font, so that it looks the same on every
//! machine.
//!
//! The colours are safe for colour-blind readers, and every curve has its own kind of mark too. Our marks are filled, a
//! paper's are hollow and grey. Samples are dots next to their median.

#[cfg(feature = "png")]
pub mod png;
mod scale;

use std::fmt::Write;

use self::scale::{Scale, whole};
use crate::figure::{Dot, Figure, Origin, Series};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
/// Height of the part with the curves.
const PLOT: f64 = 300.0;
const LINE: f64 = 17.0;
/// Characters of a line of the caption.
const CAPTION: usize = 104;
/// Up to this number, samples are drawn one by one.
const DOTS_MAX: usize = 30;

/// The colours of Okabe and Ito, the two that are hard to see on white last.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6a00"];

/// The background of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// White: for a separate file.
    White,
    /// A page, whose colours it uses.
    Page,
}

impl Theme {
    fn ink(self) -> &'static str {
        if self == Self::White { "#222222" } else { "currentColor" }
    }

    fn grid(self) -> &'static str {
        if self == Self::White { "#dddddd" } else { "var(--grid)" }
    }

    fn grey(self) -> &'static str {
        if self == Self::White { "#777777" } else { "var(--grey)" }
    }
}

/// Draws a figure as SVG; none if it is empty.
pub fn svg(figure: &Figure, theme: Theme) -> Option<String> {
    if figure.is_empty() {
        return None;
    }
    let bars = !figure.categories.is_empty();
    let end = WIDTH - RIGHT;
    let dots = || figure.series.iter().flat_map(|series| &series.points);
    let x = if bars {
        Scale::places(figure.categories.len(), (LEFT, end))
    } else {
        Scale::new(dots().map(|dot| dot.x), figure.x.log, (LEFT + 8.0, end - 8.0))
    };
    let ys = dots().flat_map(|dot| dot.samples.iter().copied().chain([dot.y, dot.y + dot.error]));
    let y = Scale::new(ys, figure.y.log, (TOP + PLOT, TOP));
    let mut pen = Pen { out: String::new(), theme };
    pen.text((LEFT, 22.0), "start", "font-size=\"15\" font-weight=\"bold\"", &figure.title);
    grid(&mut pen, figure, &x, &y);
    let count = figure.series.len();
    for (place, series) in figure.series.iter().enumerate() {
        let look = Look::of(figure, place, theme);
        if bars {
            bar(&mut pen, series, &look, (&x, &y), (place, count));
        } else {
            line(&mut pen, series, &look, (&x, &y));
        }
    }
    let mut below = legend(&mut pen, figure, TOP + PLOT + 56.0);
    for line in wrapped(&figure.caption, CAPTION) {
        pen.text(
            (LEFT - 60.0, below),
            "start",
            &format!("font-size=\"11\" fill=\"{}\"", theme.grey()),
            &line,
        );
        below += 15.0;
    }
    let height = below + 4.0;
    let background =
        if theme == Theme::White { "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>" } else { "" };
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{}</title>{background}\n{}</svg>\n",
        escaped(&figure.title),
        pen.out
    ))
}

fn grid(pen: &mut Pen, figure: &Figure, x: &Scale, y: &Scale) {
    let (ink, colour) = (pen.theme.ink(), pen.theme.grid());
    let (bottom, end) = (TOP + PLOT, WIDTH - RIGHT);
    for (value, name) in y.ticks() {
        let at = y.at(value);
        pen.line((LEFT, at), (end, at), colour, "");
        pen.text((LEFT - 7.0, at + 4.0), "end", "", &name);
    }
    if figure.categories.is_empty() {
        for (value, name) in x.ticks() {
            let at = x.at(value);
            pen.line((at, bottom), (at, bottom + 5.0), ink, "");
            pen.text((at, bottom + 19.0), "middle", "", &name);
        }
    } else {
        for (index, name) in figure.categories.iter().enumerate() {
            pen.text((x.at(whole(index)), bottom + 19.0), "middle", "", name);
        }
    }
    pen.line((LEFT, bottom), (end, bottom), ink, "");
    let label = |axis: &crate::figure::Axis| {
        if axis.log { format!("{} (logarithmic)", axis.label) } else { axis.label.clone() }
    };
    pen.text((f64::midpoint(LEFT, end), bottom + 37.0), "middle", "", &label(&figure.x));
    let turn = format!("transform=\"rotate(-90 16 {0})\"", TOP + PLOT / 2.0);
    pen.text((16.0, TOP + PLOT / 2.0), "middle", &turn, &label(&figure.y));
}

/// How a series is drawn.
struct Look {
    colour: &'static str,
    hollow: bool,
    dashed: bool,
    mark: usize,
}

impl Look {
    /// Returns the style of the series at `place`. The paper's series have the same marks as ours, in the same order.
    fn of(figure: &Figure, place: usize, theme: Theme) -> Self {
        let hollow = |series: &Series| series.origin == Origin::Paper;
        let origin = figure.series.get(place).map(|series| series.origin).unwrap_or_default();
        let is_paper = origin == Origin::Paper;
        let mark = figure.series.iter().take(place).filter(|series| hollow(series) == is_paper).count();
        let colour = if is_paper { theme.grey() } else { COLOURS[mark % COLOURS.len()] };
        Self { colour, hollow: is_paper, dashed: origin != Origin::Ours, mark }
    }

    /// Draws the mark of the series.
    fn mark(&self, pen: &mut Pen, (x, y): (f64, f64)) {
        let fill = if self.hollow { "none" } else { self.colour };
        let paint = format!("fill=\"{fill}\" stroke=\"{}\" stroke-width=\"1.5\"", self.colour);
        let points = |list: &[(f64, f64)]| {
            list.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect::<Vec<_>>().join(" ")
        };
        let r = 4.0;
        let shape = match self.mark % 4 {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" {paint}/>"),
            1 => format!("<polygon points=\"{}\" {paint}/>", points(&[(-r, -r), (r, -r), (r, r), (-r, r)])),
            2 => format!("<polygon points=\"{}\" {paint}/>", points(&[(0.0, -5.0), (4.5, 4.0), (-4.5, 4.0)])),
            _ => format!(
                "<polygon points=\"{}\" {paint}/>",
                points(&[(0.0, -5.5), (5.0, 0.0), (0.0, 5.5), (-5.0, 0.0)])
            ),
        };
        pen.put(&shape);
    }
}

fn line(pen: &mut Pen, series: &Series, look: &Look, (x, y): (&Scale, &Scale)) {
    let many = series.points.len() > 60;
    let at = |dot: &Dot| (x.at(dot.x), y.at(dot.y));
    if series.is_level {
        for dot in &series.points {
            let at = y.at(dot.y);
            let more = "stroke-width=\"1.5\" stroke-dasharray=\"5 4\"";
            pen.line((LEFT, at), (WIDTH - RIGHT, at), look.colour, more);
            pen.text((WIDTH - RIGHT - 4.0, at - 4.0), "end", "font-size=\"10\"", &series.name);
        }
        return;
    }
    if !series.is_scattered && series.points.len() > 1 {
        let path: Vec<String> = series.points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if look.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        pen.put(&format!(
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{dash} points=\"{}\"/>",
            look.colour,
            path.join(" ")
        ));
    }
    for dot in series.points.iter().filter(|_| !many) {
        samples(pen, dot, look.colour, x.at(dot.x), y);
        look.mark(pen, at(dot));
    }
}

fn bar(
    pen: &mut Pen,
    series: &Series,
    look: &Look,
    (x, y): (&Scale, &Scale),
    (place, count): (usize, usize),
) {
    let room = x.step() * 0.8;
    let width = room / whole(count.max(1));
    for dot in &series.points {
        let left = x.at(dot.x) - room / 2.0 + width * whole(place);
        let (top, bottom) = (y.at(dot.y), TOP + PLOT);
        if y.is_log() {
            // On a logarithmic axis the length of a bar has no meaning.
            let middle = left + width / 2.0;
            samples(pen, dot, look.colour, middle, y);
            look.mark(pen, (middle, top));
            pen.text((middle, top - 9.0), "middle", "font-size=\"10\"", &scale::short(dot.y));
            continue;
        }
        let fill = if look.hollow { "none" } else { look.colour };
        pen.put(&format!(
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" stroke=\"{}\"/>",
            left + 1.0,
            (width - 2.0).max(1.0),
            (bottom - top).max(0.0),
            look.colour
        ));
        samples(pen, dot, pen.theme.ink(), left + width / 2.0, y);
        pen.text((left + width / 2.0, top - 4.0), "middle", "font-size=\"10\"", &scale::short(dot.y));
    }
}

/// Draws the samples of a point, and its error bar.
fn samples(pen: &mut Pen, dot: &Dot, colour: &str, x: f64, y: &Scale) {
    if dot.error > 0.0 {
        let (low, high) = (y.at((dot.y - dot.error).max(0.0)), y.at(dot.y + dot.error));
        pen.put(&format!(
            "<path d=\"M{x:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h6M{0:.1} {high:.1}h6\" stroke=\"{colour}\" opacity=\"0.7\"/>",
            x - 3.0
        ));
    }
    if (2..DOTS_MAX).contains(&dot.samples.len()) {
        for sample in &dot.samples {
            let at = y.at(*sample);
            pen.put(&format!(
                "<circle cx=\"{x:.1}\" cy=\"{at:.1}\" r=\"1.6\" fill=\"{colour}\" opacity=\"0.55\"/>"
            ));
        }
    }
}

/// Writes the names of the series, wrapped into lines, and returns the position of the next line.
fn legend(pen: &mut Pen, figure: &Figure, mut y: f64) -> f64 {
    let mut x = LEFT - 56.0;
    for (place, series) in figure.series.iter().enumerate() {
        let look = Look::of(figure, place, pen.theme);
        let width = 34.0 + 7.4 * whole(series.name.chars().count());
        if x + width > WIDTH - RIGHT && x > LEFT {
            (x, y) = (LEFT - 56.0, y + LINE);
        }
        look.mark(pen, (x, y - 4.0));
        pen.text((x + 10.0, y), "start", "", &series.name);
        x += width;
    }
    y + LINE + 4.0
}

/// The drawing so far.
struct Pen {
    out: String,
    theme: Theme,
}

impl Pen {
    fn put(&mut self, element: &str) {
        self.out.push_str(element);
        self.out.push('\n');
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str, more: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(
            self.out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" {more}/>"
        );
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, more: &str, text: &str) {
        let fill =
            if more.contains("fill=") { String::new() } else { format!("fill=\"{}\"", self.theme.ink()) };
        let text = escaped(text);
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {fill} {more}>{text}</text>"
        );
    }
}

/// Escapes a text for XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figure::Axis;

    pub(in crate::draw) fn example(log: bool) -> Figure {
        let axis = |label| Axis { label: String::from(label), log };
        let dot = |x, y| Dot { x, y, samples: vec![y, y * 1.1], ..Dot::default() };
        let points = vec![dot(1.0, 10.0), dot(100.0, 950.0)];
        Figure::new("name", "a <title>", axis("clients"), axis("op/s"))
            .with(Series { name: "ours & only".to_owned(), points, ..Series::default() })
            .paper("paper", &[(1.0, 20.0)])
            .caption("where it comes from")
    }

    #[test]
    fn a_curve_has_its_points_its_name_and_its_source() {
        for theme in [Theme::White, Theme::Page] {
            let drawing = svg(&example(false), theme).unwrap_or_default();
            assert_eq!(drawing.matches("<polyline").count(), 1, "the paper's points have no line");
            for part in
                ["ours &amp; only", "a &lt;title&gt;", "where it comes from", ">clients<", "fill=\"none\""]
            {
                assert!(drawing.contains(part), "{part}");
            }
        }
        assert!(svg(&example(true), Theme::White).unwrap_or_default().contains("op/s (logarithmic)"));
        let nothing = Figure::new("name", "title", Axis::default(), Axis::default());
        assert_eq!(svg(&nothing, Theme::White), None);
    }

    #[test]
    fn a_level_is_a_line_across_and_has_no_place_on_the_x_axis() {
        let paper = example(false).paper_level("paper's maximum", 500.0);
        let level = |figure: &Figure| {
            let drawing = svg(figure, Theme::White).unwrap_or_default();
            let line = drawing.lines().find(|line| line.starts_with("<line") && line.contains("dasharray"));
            line.map(str::to_owned)
        };
        let line = level(&paper).unwrap_or_default();
        assert!(line.contains(&format!("x1=\"{LEFT:.1}\"")), "{line}");
        assert!(line.contains(&format!("x2=\"{:.1}\"", WIDTH - RIGHT)), "{line}");
        let y = |name: &str| line.split(&format!("{name}=\"")).nth(1).map(|rest| rest.split('"').next());
        assert_eq!(y("y1"), y("y2"));
        assert_eq!(level(&example(false)), None);
        let empty = Figure::new("name", "title", Axis::default(), Axis::default()).paper_level("paper", 1.0);
        assert!(empty.is_empty(), "there is nothing of ours to compare it with");
    }
}

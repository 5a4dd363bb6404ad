//! `cbase-scale`: operations that wait 20 ms, by the number of workers, and by the number of requests that are independent
//! [CBASE04 Figure 5].

use anyhow::Result;

use super::live::{self, LONG_US, Live};
use super::{BASE, Curve, is_near, of, peak, throughput};
use crate::arms::Place;
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, clients, curve, ops};
use crate::load::Op;
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-scale",
    source: "CBASE04 Figure 5",
    about: "operations that wait 20 ms: throughput with 1 to 128 workers, and with 1 to 128 buckets of dependent requests",
    run,
    figures,
};

/// Operations a second that one worker can do: each waits 20 ms.
const EACH: f64 = 50.0;
/// The clusters that are asked for their status.
const LIVE: [live::Settings; 2] = [
    ("status, 1 worker", &[("tentative", "false")]),
    ("status, 128 workers", &[("tentative", "false"), ("workers", "128")]),
];
/// Number of client processes: the clients hardly work.
const HOSTS: usize = 1;
/// Maximum number of clients of a process.
const CLIENTS_MAX: u16 = 500;
/// The workers of the arms with buckets.
const WORKERS: u16 = 100;

/// An arm: its workers or buckets, and its set-up.
type Step = (u16, Setup);

macro_rules! steps {
    ($($number:literal $name:literal $switches:literal;)*) => {
        [$(($number, Setup::with($name, concat!("auth=mac,piggyback=off,tentative=off,", $switches)))),*]
    };
}

const SCALE: [Step; 8] = steps! {
    1 "1 worker" "workers=1";
    2 "2 workers" "workers=2";
    4 "4 workers" "workers=4";
    8 "8 workers" "workers=8";
    16 "16 workers" "workers=16";
    32 "32 workers" "workers=32";
    64 "64 workers" "workers=64";
    128 "128 workers" "workers=128";
};
const BUCKETS: [Step; 9] = steps! {
    1 "1 bucket" "workers=100,buckets=1";
    2 "2 buckets" "workers=100,buckets=2";
    4 "4 buckets" "workers=100,buckets=4";
    8 "8 buckets" "workers=100,buckets=8";
    16 "16 buckets" "workers=100,buckets=16";
    32 "32 buckets" "workers=100,buckets=32";
    64 "64 buckets" "workers=100,buckets=64";
    100 "100 buckets" "workers=100,buckets=100";
    128 "128 buckets" "workers=100,buckets=128";
};
/// The paper's points: workers or buckets, and operations a second. Those with buckets are the line that the text
/// describes.
const PAPER_SCALE: [(f64, f64); 2] = [(1.0, 50.0), (128.0, 4_700.0)];
const PAPER_BUCKETS: [(f64, f64); 1] = [(1.0, 50.0)];

/// Returns the numbers of clients: as many as run at once, twice and four times that.
fn counts(at_once: u16) -> Vec<u16> {
    let mut counts = [1, 2, 4].map(|times| (times * at_once).clamp(4, CLIENTS_MAX)).to_vec();
    counts.dedup();
    counts
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, ms) = settings.effort.of((3, 2_000), (1, 1_000), (1, 60));
    let every = settings.effort.of(1, 1, 7);
    let base = Curve { setup: Setup::with(BASE, "auth=mac,piggyback=off"), clients: counts(1) };
    let scale = SCALE.iter().step_by(every).map(|(workers, setup)| (*setup, *workers));
    let buckets = BUCKETS.iter().step_by(every).map(|(buckets, setup)| (*setup, *buckets));
    let curves = scale.chain(buckets).map(|(setup, at_once)| Curve { setup, clients: counts(at_once) });
    let curves: Vec<Curve> = [base].into_iter().chain(curves).collect();
    let machine = Machine::look(Place::Free(HOSTS).in_words());
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, machine);
    report.rows = throughput(settings, &curves, (Op::waiting(LONG_US), HOSTS), (repeats, ms))?;
    report.shapes = shapes(&report.rows);
    for arm in LIVE {
        let (row, shape) = Live::start(arm)?.ask(settings.effort.of(5_000, 2_000, 60))?;
        report.rows.push(row);
        report.shapes.push(shape);
    }
    report.notes.push(
        "status: a statement of each of four replicas, with replicas and clients as in production, and tentative off"
            .to_owned(),
    );
    report.notes.push(format!(
        "{ms} ms a point; each operation waits 20 ms at each replica before its reply; BASE: one worker, tentative on; all \
         other arms: tentative off; with buckets: {WORKERS} workers, and the rules assign requests to buckets in turn; the \
         checkpoint barrier of the paper (`sync`) is off; durability memory"
    ));
    Ok(report)
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let (base, one) = (peak(rows, BASE), peak(rows, SCALE[0].1.name));
    let mut shapes = vec![Shape::new(
        "C5a.1 the maxima of BASE and of one worker are within 5 % of 50/s",
        is_near(base, EACH) && is_near(one, EACH),
        format!("{base:.1} op/s, {one:.1} op/s"),
    )];
    for pair in SCALE.windows(2) {
        let (half, all) = (peak(rows, pair[0].1.name), peak(rows, pair[1].1.name));
        shapes.push(Shape::new(
            format!("C5a.2 {} do at least 1.7 times as much as {}", pair[1].1.name, pair[0].1.name),
            all >= 1.7 * half,
            format!("{all:.0} op/s: {:.2} times", all / half),
        ));
    }
    for (workers, setup) in SCALE {
        let ideal = EACH * f64::from(workers);
        let most = peak(rows, setup.name);
        shapes.push(Shape::new(
            format!("goal: {} do within 5 % of {ideal:.0}/s", setup.name),
            is_near(most, ideal),
            format!("{most:.0} op/s: {:.1} %", 100.0 * most / ideal),
        ));
        let at = |clients: u16| {
            of(rows, setup.name)
                .find(|row| row.clients == u32::from(clients))
                .and_then(ops)
                .unwrap_or(f64::NAN)
        };
        if let [.., twice, more] = counts(workers)[..] {
            shapes.push(Shape::new(
                format!("C5a.3 {}: more than {twice} clients add less than 5 %", setup.name),
                at(more) < 1.05 * at(twice),
                format!("{:.0} op/s with {twice}, {:.0} with {more}", at(twice), at(more)),
            ));
        }
    }
    shapes.extend(shapes_of_buckets(rows));
    shapes
}

fn shapes_of_buckets(rows: &[Row]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (buckets, setup) in BUCKETS {
        let (most, line) = (peak(rows, setup.name), EACH * f64::from(buckets));
        let said = format!("{most:.0} op/s: {:.1} % of {line:.0}", 100.0 * most / line);
        match buckets {
            1 => shapes.push(Shape::new("C5b.1 1 bucket: within 5 % of 50/s", is_near(most, line), said)),
            2..=WORKERS => shapes.push(Shape::new(
                format!("C5b.2 {}: at least 0.9 of 50/s each", setup.name),
                most >= 0.9 * line,
                said,
            )),
            _ => {
                let hundred = peak(rows, "100 buckets");
                shapes.push(Shape::new(
                    format!("C5b.3 {}: within 5 % of 100 buckets", setup.name),
                    is_near(most, hundred),
                    format!("{most:.0} op/s, {hundred:.0} with 100 buckets"),
                ));
            }
        }
    }
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |name: &str, what: &str, steps: &[Step]| {
        let title = format!("CBASE04 Figure {what}");
        let mut figure = Figure::new(name, &title, Axis::log("clients"), Axis::log("operations per second"));
        figure = figure.with(curve(BASE, of(rows, BASE), clients, ops));
        for (_, setup) in steps {
            figure = figure.with(curve(setup.name, of(rows, setup.name), clients, ops));
        }
        figure
    };
    let scale = figure("workers", "5a: all requests independent, by workers", &SCALE);
    let buckets = figure("buckets", "5b: 100 workers, by buckets of dependent requests", &BUCKETS);
    let caption =
        "Medians; dots: repeats. Grey: the paper's throughput with 1 and with 128 workers, from its text.";
    let mut scale = scale.caption(caption);
    for (workers, rate) in PAPER_SCALE {
        scale = scale.paper_level(&format!("paper, {workers:.0} workers"), rate);
    }
    let mut buckets = buckets.caption("Medians; dots: repeats. Grey: the paper's throughput with 1 bucket.");
    for (count, rate) in PAPER_BUCKETS {
        buckets = buckets.paper_level(&format!("paper, {count:.0} bucket"), rate);
    }
    vec![scale, buckets]
}

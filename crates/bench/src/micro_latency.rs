//! `micro-latency`: the latency of one operation over UDP, with a process for each replica and the client (OSDI99 Table 1,
//! DSN01 Figures 2 and 3).

mod drawn;
mod parts;

use anyhow::Result;

use self::drawn::{SMALL, TABLE};
use crate::arms::{Arm, ECHO_US_MAX, Figure as Unit, Place, Plan, echoes};
use crate::echo::Way;
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::load::{Op, Until};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "micro-latency",
    source: "OSDI99 Table 1, DSN01 Figures 2 and 3",
    about: "latency over UDP: ordered and read-only, by size, with f = 1 and 2, against the unreplicated service",
    run,
    figures: drawn::figures,
};

/// Maximum microseconds of a 0/0, ordered and read-only, on a machine where a polled echo takes less than
/// [`ECHO_US_MAX`].
const BOUNDS: [(&str, &str, f64); 2] = [("rw", "ordered", 45.0), ("ro", "read-only", 18.0)];

/// The sizes of arguments or results, in bytes; the other has 8 bytes [DSN01 §4.2].
const SIZES: [usize; 5] = [256, 1024, 2048, 4096, 8192];

fn op(argument: usize, result: usize, read_only: bool) -> Op {
    Op { argument, result: u32::try_from(result).unwrap_or(u32::MAX), read_only, wait_us: 0 }
}

/// Returns every operation of the sweeps over sizes.
fn sweeps(settings: Settings, read_only: bool) -> Vec<Op> {
    let sizes = settings.effort.of(&SIZES[..], &SIZES[1..], &SIZES[4..]);
    let arguments = sizes.iter().map(|size| op(*size, SMALL, read_only));
    let results = sizes.iter().map(|size| op(SMALL, *size, read_only));
    [op(SMALL, SMALL, read_only)].into_iter().chain(arguments).chain(results).collect()
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, count) = settings.effort.of((5, 10_000), (5, 400), (1, 10));
    let until = Until::Ops(count);
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look(Place::Pinned.in_words()));
    let mut plan = Plan::new(Unit::Latency);
    for echo in Arm::echoes()? {
        let arm = plan.arm(echo);
        plan.point(arm, 1, Until::Ops(count / 2), Op::rw(0, 0), None);
    }
    for (way, mac) in [(Way::Polling, false), (Way::Blocking, false), (Way::Polling, true)] {
        let arm = plan.arm(Arm::no_rep(way, mac, Place::Pinned)?);
        for (argument, result, _, _, paper) in TABLE {
            let paper = (!mac && way == Way::Polling).then_some(paper);
            plan.point(arm, 1, until, Op::rw(argument, result), paper);
        }
        if way == Way::Polling && !mac {
            for op in sweeps(settings, false) {
                plan.point(arm, 1, until, op, None);
            }
        }
    }
    let piggyback_off = Setup::with("piggyback off", "piggyback=off");
    for setup in [Setup::DEFAULT, Setup::DEFAULT.tolerating(2), piggyback_off] {
        let arm = plan.arm(Arm::cluster(setup, Place::Pinned)?);
        for (argument, result, rw, ro, _) in TABLE {
            let paper = |value| (setup.f == 1 && setup.switches.is_empty()).then_some(value);
            plan.point(arm, 1, until, Op::rw(argument, result), paper(rw));
            plan.point(arm, 1, until, Op::ro(argument, result), paper(ro));
        }
        if setup.switches.is_empty() {
            for read_only in [false, true] {
                for op in sweeps(settings, read_only) {
                    plan.point(arm, 1, until, op, None);
                }
            }
        }
    }
    report.rows = plan.run(settings, repeats)?;
    report.shapes = shapes(&report.rows);
    report.notes = parts::of(&mut report.rows, settings.effort.of(20_000, 2_000, 50))?;
    report.notes.push(format!(
        "{count} operations per repeat; processes poll, and yield when idle; durability memory, as in the paper; \
         Table 1 has no bytes beside the 4 KB, sizes of the figures have {SMALL} on the other side"
    ));
    Ok(report)
}

/// Finds the medians of a table's rows or of a sweep's.
pub(crate) struct Medians<'r>(&'r [Row]);

impl Medians<'_> {
    /// Returns the median in microseconds.
    fn at(&self, (system, f): (&str, u16), mode: &str, argument: usize, result: usize) -> f64 {
        let is_it = |row: &&Row| {
            let quorate = row.f.is_none_or(|own| own == f)
                && matches!(row.variant.as_str(), "default" | "polling" | "two cores");
            row.system == system
                && quorate
                && row.argument_bytes == Some(argument)
                && row.result_bytes == Some(result)
                && (row.mode == mode || mode == "-")
        };
        self.0.iter().find(is_it).and_then(|row| row.p50_us).unwrap_or(f64::NAN)
    }
}

const OURS: (&str, u16) = ("quorate", 1);
const MORE: (&str, u16) = ("quorate", 2);
const NO_REP: (&str, u16) = ("no-rep", 0);
const NO_REP_MAC: (&str, u16) = ("no-rep+mac", 0);

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let of = Medians(rows);
    let (polling, blocking) = echoes(rows);
    let mut shapes: Vec<Shape> = BOUNDS
        .into_iter()
        .map(|(mode, name, most)| {
            let took = of.at(OURS, mode, 0, 0);
            let name = format!("{name} 0/0 in under {most} us where a polled echo takes less than {ECHO_US_MAX} us");
            let said = format!(
                "{took:.1} us; polled echo {polling:.1} us: {:.1} times; blocking echo {blocking:.1} us: {:.1} times",
                took / polling,
                took / blocking
            );
            if polling < ECHO_US_MAX {
                Shape::new(name, took < most, said)
            } else {
                Shape::incomparable(name, said)
            }
        })
        .collect();
    shapes.push(read_only_is_faster(rows, &of));
    let over = |(argument, result, _, _, _): (usize, u32, f64, f64, f64)| {
        let result = usize::try_from(result).unwrap_or(0);
        of.at(OURS, "rw", argument, result) / of.at(NO_REP, "rw", argument, result) - 1.0
    };
    let [none, argument, result] = TABLE.map(over);
    shapes.push(Shape::new(
        "the relative overhead of 0/0 is larger than that of 4/0, which is larger than that of 0/4",
        none > argument && argument > result,
        format!(
            "{:.0} %, {:.0} %, {:.0} % over NO-REP (paper 309 %, 207 %, 72 %)",
            none * 100.0,
            argument * 100.0,
            result * 100.0
        ),
    ));
    for (what, argument, result) in [("result", SMALL, 8192), ("argument", 8192, SMALL)] {
        let slowdown =
            |argument, result| of.at(OURS, "rw", argument, result) / of.at(NO_REP, "rw", argument, result);
        let (small, large) = (slowdown(SMALL, SMALL), slowdown(argument, result));
        shapes.push(Shape::new(
            format!("the slowdown falls as the {what} grows"),
            large < small,
            format!("{small:.2} times NO-REP at 8 B, {large:.2} at 8 KB (paper: down to 1.26)"),
        ));
    }
    shapes.extend(["rw", "ro"].map(|mode| seven_replicas(rows, &of, mode)));
    let mac = |mode, argument| {
        of.at(OURS, mode, argument, 0) / of.at(NO_REP_MAC, "rw", argument, 0) * 100.0 - 100.0
    };
    shapes.push(Shape::new(
        "compared with NO-REP+MAC, read-only 4/0 has less overhead than read-write 0/0",
        mac("ro", 4096) < mac("rw", 0),
        format!("+{:.0} % and +{:.0} % (paper +4 % and +243 %)", mac("ro", 4096), mac("rw", 0)),
    ));
    shapes
}

/// Every operation that was measured both ways, with f = 1 and 2.
fn read_only_is_faster(rows: &[Row], of: &Medians<'_>) -> Shape {
    let mut broken = Vec::new();
    let reads =
        rows.iter().filter(|row| row.system == "quorate" && row.mode == "ro" && row.variant == "default");
    let mut count = 0;
    for row in reads {
        let (Some(f), Some(argument), Some(result), Some(read)) =
            (row.f, row.argument_bytes, row.result_bytes, row.p50_us)
        else {
            continue;
        };
        count += 1;
        let ordered = of.at(("quorate", f), "rw", argument, result);
        if read >= ordered {
            broken.push(format!("{argument}/{result} B, f = {f}: {read:.1} us against {ordered:.1} us"));
        }
    }
    let (read, ordered) = (of.at(OURS, "ro", 0, 0), of.at(OURS, "rw", 0, 0));
    let evidence = if broken.is_empty() {
        format!("{count} operations; 0/0: read-only {read:.1} us, read-write {ordered:.1} us")
    } else {
        broken.join("; ")
    };
    Shape::new(
        "read-only is faster than read-write for all operations",
        broken.is_empty() && count > 0,
        evidence,
    )
}

/// The largest cost of three more replicas, over all sizes.
fn seven_replicas(rows: &[Row], of: &Medians<'_>, mode: &str) -> Shape {
    let of_seven = rows.iter().filter(|row| row.f == Some(2) && row.mode == mode);
    let costs = of_seven.filter_map(|row| {
        let (argument, result) = (row.argument_bytes?, row.result_bytes?);
        let cost = of.at(MORE, mode, argument, result) / of.at(OURS, mode, argument, result) - 1.0;
        cost.is_finite().then_some((cost * 100.0, argument, result))
    });
    let most = costs.max_by(|a, b| a.0.total_cmp(&b.0));
    let (cost, argument, result) = most.unwrap_or((f64::NAN, 0, 0));
    let paper = if mode == "rw" { 30 } else { 26 };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    Shape::new(
        format!("f = 2 costs at most {paper} % ({mode})"),
        cost <= f64::from(paper),
        format!(
            "{cost:.0} % at {argument}/{result} B; 8 processes share {cores} cores, where the paper had a machine for each"
        ),
    )
}

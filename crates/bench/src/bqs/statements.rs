//! The statements of BQS08 (§13.3, §13.4 of `docs/quorum-results.md`), judged on the rows of a panel. Absolute figures are not
//! asserted. What is missing counts as not held.

use super::point::{Arm, BC, C, EARLY, F, PHX, SMR, UNBATCHED};
use super::shared::FAULTS;
use crate::report::{Cell, Row, Shape};

/// The limit of A2 with faulty servers that have the lowest numbers.
const GROWTH_MAX: f64 = 0.3;
/// MINIMAL-C is "nearly flat" if no point is so much above the lowest.
const FLAT: f64 = 1.25;

/// Returns the cell of a point.
fn cell(rows: &[Row], arm: Arm, (f, b): (u16, u16), readers: u16) -> Option<&Cell> {
    let is_it = |cell: &&Cell| cell.b == b && cell.readers == readers;
    let of = rows.iter().filter(|row| row.variant == arm.name() && row.f == Some(f));
    of.filter_map(|row| row.cell.as_ref()).find(is_it)
}

fn mean(rows: &[Row], arm: Arm, faults: (u16, u16), readers: u16) -> f64 {
    cell(rows, arm, faults, readers).map_or(f64::NAN, |cell| cell.mean)
}

/// Returns the means over faults, without other readers.
fn over_faults(rows: &[Row], arm: Arm) -> Vec<f64> {
    FAULTS.map(|faults| mean(rows, arm, faults, 0)).to_vec()
}

/// Returns the means of an arm over readers, at some faults.
fn over_readers(rows: &[Row], arm: Arm, (f, b): (u16, u16)) -> Vec<f64> {
    (0..).map_while(|readers| cell(rows, arm, (f, b), readers)).map(|cell| cell.mean).collect()
}

/// Returns the faults that the rows of a panel have.
fn faults_of(rows: &[Row], arm: Arm) -> Vec<(u16, u16)> {
    let of = rows.iter().filter(|row| row.variant == arm.name());
    let mut all: Vec<(u16, u16)> = of.filter_map(|row| Some((row.f?, row.cell.as_ref()?.b))).collect();
    all.dedup();
    all
}

fn show(name: &str, numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:.2}")).collect();
    format!("{name} {}", numbers.join(" "))
}

fn both(a: (&str, &[f64]), b: (&str, &[f64])) -> String {
    format!("{}; {}", show(a.0, a.1), show(b.0, b.1))
}

fn all(a: &[f64], b: &[f64], holds: impl Fn(f64, f64) -> bool) -> bool {
    !a.is_empty() && a.len() == b.len() && a.iter().zip(b).all(|(a, b)| holds(*a, *b))
}

fn within(a: &[f64], b: &[f64], percent: f64) -> bool {
    all(a, b, |a, b| (a - b).abs() <= a.min(b) * percent / 100.0)
}

fn average(list: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = list.clone().count();
    list.sum::<f64>() / f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX))
}

/// How much reads grow with faulty servers, at most. Infinite if something is missing.
fn growth(means: &[f64]) -> f64 {
    let Ok([one, one_b, two, two_b, two_bb]) = <[f64; 5]>::try_from(means) else { return f64::INFINITY };
    if means.iter().any(|mean| mean.is_nan()) {
        return f64::INFINITY;
    }
    [one_b / one, two_b / two, two_bb / two].into_iter().map(|ratio| ratio - 1.0).fold(0.0, f64::max)
}

fn rises_with_faults(means: &[f64]) -> bool {
    let Ok([one, one_b, two, two_b, two_bb]) = <[f64; 5]>::try_from(means) else { return false };
    one < one_b && one < two && two < two_b && two_b < two_bb
}

pub(super) fn f2a(rows: &[Row]) -> Vec<Shape> {
    let (c, phx) = (over_faults(rows, C), over_faults(rows, PHX));
    let most = growth(&c).max(growth(&phx));
    vec![
        Shape::new(
            "A1: MINIMAL-C below PHALANX in every cell, by about one verification (0.9 ms)",
            all(&c, &phx, |c, phx| (0.45..1.8).contains(&(phx - c))),
            both(("C", &c), ("PHX", &phx)),
        ),
        Shape::new(
            "A2: reads grow little with faulty servers (below 30 % with the lowest numbers)",
            most < GROWTH_MAX,
            format!("at most {:.1} %", most * 100.0),
        ),
    ]
}

pub(super) fn f2b(rows: &[Row]) -> Vec<Shape> {
    let (c, phx) = (over_faults(rows, C), over_faults(rows, PHX));
    vec![
        Shape::new(
            "W1: MINIMAL-C and PHALANX equal within 2 %",
            within(&c, &phx, 2.0),
            both(("C", &c), ("PHX", &phx)),
        ),
        grows(&[&c, &phx]),
    ]
}

fn grows(lists: &[&[f64]]) -> Shape {
    let held = lists.iter().all(|list| rises_with_faults(list));
    Shape::new(
        "W5: reads grow with f and with faulty servers",
        held,
        show("first", lists.first().unwrap_or(&&[][..])),
    )
}

fn writes_grow(lists: &[&[f64]]) -> Shape {
    let held = lists.iter().all(|list| matches!(list, [one, _, two, ..] if one < two));
    Shape::new("W5: writes grow with f", held, show("first", lists.first().unwrap_or(&&[][..])))
}

pub(super) fn f2c(rows: &[Row]) -> Vec<Shape> {
    let (c, phx) = (over_faults(rows, C), over_faults(rows, PHX));
    vec![Shape::new(
        "A3: PHALANX above MINIMAL-C by about one signature (14 ms)",
        all(&c, &phx, |c, phx| (9.0..21.0).contains(&(phx - c))),
        both(("C", &c), ("PHX", &phx)),
    )]
}

pub(super) fn f2d(rows: &[Row]) -> Vec<Shape> {
    let (c, phx) = (over_faults(rows, C), over_faults(rows, PHX));
    vec![
        Shape::new(
            "W2: MINIMAL-C and PHALANX equal within 5 %",
            within(&c, &phx, 5.0),
            both(("C", &c), ("PHX", &phx)),
        ),
        writes_grow(&[&c, &phx]),
    ]
}

pub(super) fn f3ab(rows: &[Row]) -> Vec<Shape> {
    let all_faults = faults_of(rows, C);
    let is_there = !all_faults.is_empty();
    let (mut below, mut flat, mut evidence, mut span) = (is_there, is_there, Vec::new(), Vec::new());
    for faults in all_faults {
        let (c, phx) = (over_readers(rows, C, faults), over_readers(rows, PHX, faults));
        below &= all(&c, &phx, |c, phx| c < phx);
        flat &= spread(&phx) < FLAT && spread(&c) < FLAT;
        span.push(format!("b = {}: C {:.2}, PHX {:.2}", faults.1, spread(&c), spread(&phx)));
        evidence.push(format!("b = {}: {}", faults.1, both(("C", &c), ("PHX", &phx))));
    }
    vec![
        Shape::new("A4: MINIMAL-C below PHALANX with 0 to 5 readers", below, evidence.join("; ")),
        Shape::new(
            "A4: both nearly flat in the readers (largest / smallest below 1.25)",
            flat,
            span.join("; "),
        ),
    ]
}

/// Returns the largest divided by the smallest.
fn spread(list: &[f64]) -> f64 {
    let least = list.iter().copied().fold(f64::INFINITY, f64::min);
    list.iter().copied().fold(0.0, f64::max) / least
}

fn rise(list: &[f64]) -> f64 {
    match list {
        [begin, .., end] => end / begin - 1.0,
        _ => f64::NAN,
    }
}

pub(super) fn f3c(rows: &[Row]) -> Vec<Shape> {
    let all_faults = faults_of(rows, C);
    let is_there = !all_faults.is_empty();
    let (mut flat, mut rises, mut evidence) = (is_there, is_there, Vec::new());
    for faults in all_faults {
        let (c, phx) = (over_readers(rows, C, faults), over_readers(rows, PHX, faults));
        flat &= spread(&c) < FLAT;
        rises &= rise(&phx) > 0.0;
        evidence.push(format!("f = {}, b = {}: {}", faults.0, faults.1, both(("C", &c), ("PHX", &phx))));
    }
    vec![
        Shape::new(
            "A5: MINIMAL-C nearly flat in the readers (largest / smallest below 1.25)",
            flat,
            evidence.join("; "),
        ),
        Shape::new("A5: PHALANX rises from 0 to 4 other readers", rises, evidence.join("; ")),
    ]
}

pub(super) fn f3d(rows: &[Row]) -> Vec<Shape> {
    let two: Vec<Row> = rows.iter().filter(|row| row.f == Some(2)).cloned().collect();
    let mut shapes = f3c(&two);
    let one = mean(rows, PHX, (1, 0), 4) - mean(rows, PHX, (1, 0), 0);
    let more = mean(rows, PHX, (2, 0), 4) - mean(rows, PHX, (2, 0), 0);
    shapes.push(Shape::new(
        "A5: PHALANX rises more at f = 2 than at f = 1",
        more > one && more > 0.0,
        format!("by {more:.2} and {one:.2} ms"),
    ));
    shapes
}

pub(super) fn f4a(rows: &[Row]) -> Vec<Shape> {
    let (f, bc) = (over_faults(rows, F), over_faults(rows, BC));
    let most = growth(&f).max(growth(&bc));
    vec![
        Shape::new(
            "A6: reads of MINIMAL-F below BFT-BC everywhere",
            all(&f, &bc, |f, bc| f < bc),
            both(("F", &f), ("BC", &bc)),
        ),
        Shape::new(
            "A6: only slight changes with faulty servers (below 30 %)",
            most < GROWTH_MAX,
            format!("at most {:.1} %", most * 100.0),
        ),
        ratio("A7: reads of BFT-BC / MINIMAL-F from 1.6 to 2.7", &f, &bc, (1.6, 2.7)),
    ]
}

fn ratio(name: &str, f: &[f64], bc: &[f64], (least, most): (f64, f64)) -> Shape {
    let ratios: Vec<f64> = f.iter().zip(bc).map(|(f, bc)| bc / f).collect();
    Shape::new(name, all(f, bc, |f, bc| (least..=most).contains(&(bc / f))), show("ratios", &ratios))
}

pub(super) fn f4b(rows: &[Row]) -> Vec<Shape> {
    let (f, bc) = (over_faults(rows, F), over_faults(rows, BC));
    vec![
        Shape::new(
            "W3: MINIMAL-F and BFT-BC equal within 3 %",
            within(&f, &bc, 3.0),
            both(("F", &f), ("BC", &bc)),
        ),
        grows(&[&f, &bc]),
    ]
}

pub(super) fn f4c(rows: &[Row]) -> Vec<Shape> {
    let (f, bc) = (over_faults(rows, F), over_faults(rows, BC));
    let gap = |at: usize| bc.get(at).unwrap_or(&f64::NAN) - f.get(at).unwrap_or(&f64::NAN);
    vec![
        Shape::new(
            "A6: writes of MINIMAL-F below BFT-BC everywhere",
            all(&f, &bc, |f, bc| f < bc),
            both(("F", &f), ("BC", &bc)),
        ),
        Shape::new(
            "A6: the gap grows with f",
            gap(2) > gap(0),
            format!("{:.2} and {:.2} ms", gap(0), gap(2)),
        ),
        ratio("A7: writes of BFT-BC / MINIMAL-F from 1.5 to 2.3", &f, &bc, (1.5, 2.3)),
    ]
}

pub(super) fn f4d(rows: &[Row]) -> Vec<Shape> {
    let (f, bc) = (over_faults(rows, F), over_faults(rows, BC));
    let (of_f, of_bc) = (average(f.iter().copied()), average(bc.iter().copied()));
    vec![
        Shape::new(
            "W4: MINIMAL-F above BFT-BC in the mean over the cells",
            of_f > of_bc,
            both(("F", &f), ("BC", &bc)),
        ),
        writes_grow(&[&f, &bc]),
    ]
}

pub(super) fn f5ab(rows: &[Row]) -> Vec<Shape> {
    let (mut slower, mut count, mut evidence) = (0, 0, Vec::new());
    for faults in faults_of(rows, F) {
        let (f, bc) = (over_readers(rows, F, faults), over_readers(rows, BC, faults));
        slower += f.iter().zip(&bc).filter(|(f, bc)| f < bc).count();
        count += f.len();
        evidence.push(format!("b = {}: {}", faults.1, both(("F", &f), ("BC", &bc))));
    }
    let held = count > 0 && 2 * slower > count;
    vec![Shape::new("A8: writes of BFT-BC slower than MINIMAL-F in most cells", held, evidence.join("; "))]
}

pub(super) fn f5cd(rows: &[Row]) -> Vec<Shape> {
    let all_faults = faults_of(rows, F);
    let is_there = !all_faults.is_empty();
    let (mut slower, mut faster_rise, mut evidence) = (is_there, is_there, Vec::new());
    for faults in all_faults {
        let (f, bc) = (over_readers(rows, F, faults), over_readers(rows, BC, faults));
        slower &= all(&f, &bc, |f, bc| f < bc);
        let by = |list: &[f64]| list.last().zip(list.first()).map_or(f64::NAN, |(last, first)| last - first);
        faster_rise &= by(&bc) > by(&f);
        evidence.push(format!("b = {}: {}", faults.1, both(("F", &f), ("BC", &bc))));
    }
    let evidence = evidence.join("; ");
    vec![
        Shape::new("A8: reads of BFT-BC slower than MINIMAL-F, always", slower, evidence.clone()),
        Shape::new("A8: reads of BFT-BC rise faster with the readers", faster_rise, evidence),
    ]
}

/// Returns a share of reads, pooled over the readers.
fn pooled(rows: &[Row], arm: Arm, faults: (u16, u16), of: fn(&Cell) -> f64) -> f64 {
    let cells: Vec<f64> = (0..).map_while(|readers| cell(rows, arm, faults, readers)).map(of).collect();
    average(cells.into_iter())
}

fn table(name: &str, rows: &[Row], listens: Arm, writes: Arm) -> Shape {
    let (mut held, mut evidence) = (!rows.is_empty(), Vec::new());
    for faults in FAULTS {
        let any = pooled(rows, listens, faults, |cell| cell.listener_any);
        let needed = pooled(rows, listens, faults, |cell| cell.listener_needed);
        let wrote = pooled(rows, writes, faults, |cell| cell.write_back);
        held &= any >= 3.0 * wrote && wrote < 20.0;
        evidence.push(format!(
            "({}, {}) any {any:.1}, needed {needed:.1}, wrote back {wrote:.1} %",
            faults.0, faults.1
        ));
    }
    Shape::new(name, held, evidence.join("; "))
}

pub(super) fn t1(rows: &[Row]) -> Vec<Shape> {
    let name =
        "T1: listener_any of MINIMAL-C at least three times the write-backs of PHALANX, which are below 20 %";
    vec![table(name, rows, C, PHX)]
}

pub(super) fn t2(rows: &[Row]) -> Vec<Shape> {
    let any = |arm, f: u16| {
        let of = FAULTS.into_iter().filter(move |faults| faults.0 == f);
        let shares: Vec<f64> = of.map(|faults| pooled(rows, arm, faults, |cell| cell.listener_any)).collect();
        average(shares.into_iter())
    };
    let means = [(any(C, 1), any(F, 1)), (any(C, 2), any(F, 2))];
    let name =
        "T2: listener_any of MINIMAL-F at least three times the write-backs of BFT-BC, which are below 20 %";
    vec![
        table(name, rows, F, BC),
        Shape::new(
            "T2: listener_any of MINIMAL-C above MINIMAL-F in the mean over b, for each f",
            means.iter().all(|(c, f)| c > f),
            format!(
                "f = 1: {:.1} and {:.1} %, f = 2: {:.1} and {:.1} %",
                means[0].0, means[0].1, means[1].0, means[1].1
            ),
        ),
    ]
}

/// Returns the means without a fault, with a faulty acceptor, and with one that is the proposer.
fn proposers(rows: &[Row], arm: Arm) -> [f64; 3] {
    let mut means =
        rows.iter().filter(|row| row.variant == arm.name()).filter_map(|row| Some(row.cell.as_ref()?.mean));
    [(); 3].map(|()| means.next().unwrap_or(f64::NAN))
}

pub(super) fn f6a(rows: &[Row]) -> Vec<Shape> {
    let (smr, bc) = (proposers(rows, SMR), proposers(rows, BC));
    let evidence = || both(("SMR", &smr), ("BC", &bc));
    vec![
        Shape::new("A9: without a fault, replication below BFT-BC", smr[0] < bc[0], evidence()),
        Shape::new("A9: with a faulty acceptor, BFT-BC below replication", bc[1] < smr[1], evidence()),
        Shape::new(
            "A9: with a faulty proposer, BFT-BC much lower (at least 5 times)",
            5.0 * bc[2] < smr[2],
            evidence(),
        ),
        hardly_affected(&bc),
        early(rows),
    ]
}

/// Early decision: replicas answer after two steps of communication among them, and not after three [BQS08, the
/// conclusion]. On a LAN a read that is not ordered gains nothing, and a write a step of at most 15 %.
fn early(rows: &[Row]) -> Shape {
    let (smr, early) = (proposers(rows, SMR)[0], proposers(rows, EARLY)[0]);
    Shape::new(
        "A12: without a fault, early decision in two steps gains almost nothing on a LAN (at most 15 %)",
        smr >= early && 1.0 - early / smr <= 0.15,
        format!("{smr:.2} and {early:.2} ms: {:.1} %", (1.0 - early / smr) * 100.0),
    )
}

/// Batches: what a request alone in its instance costs, with readers.
fn unbatched(rows: &[Row]) -> Shape {
    let means = |arm| [1, 2].map(|f| average(over_readers(rows, arm, (f, 0)).into_iter()));
    let (with, without) = (means(SMR), means(UNBATCHED));
    let below = [1, 2].iter().all(|f| {
        let (one, bc) = (over_readers(rows, UNBATCHED, (*f, 0)), over_readers(rows, BC, (*f, 0)));
        all(&one, &bc, |one, bc| one < bc)
    });
    Shape::new(
        "A11: replication without batches below BFT-BC for every number of readers, too",
        below,
        format!("mean over readers: {}", both(("with", &with), ("without", &without))),
    )
}

fn hardly_affected(bc: &[f64; 3]) -> Shape {
    let is_there = bc.iter().all(|mean| mean.is_finite());
    let most = bc.iter().skip(1).map(|mean| mean / bc[0] - 1.0).fold(0.0, f64::max);
    let name = "A9: BFT-BC hardly affected by the fault (below 10 %)";
    Shape::new(name, is_there && most < 0.1, format!("{:.1} %", most * 100.0))
}

pub(super) fn f6b(rows: &[Row]) -> Vec<Shape> {
    let (smr, bc) = (proposers(rows, SMR), proposers(rows, BC));
    let evidence = || both(("SMR", &smr), ("BC", &bc));
    // A step of this model: a message at both ends and on the wire, to all.
    let step = 2.0 * 0.27 * 3.0 + 0.1;
    vec![
        Shape::new(
            "A10: without a fault and with a faulty acceptor, replication below BFT-BC",
            smr[0] < bc[0] && smr[1] < bc[1],
            evidence(),
        ),
        Shape::new("A10: with a faulty proposer, replication above BFT-BC", smr[2] > bc[2], evidence()),
        Shape::new(
            "A10: a faulty acceptor costs replication at most one more step",
            smr[1] - smr[0] <= step,
            evidence(),
        ),
        hardly_affected(&bc),
        early(rows),
    ]
}

fn readers(rows: &[Row]) -> Vec<Shape> {
    let (mut below, mut steadier, mut evidence, mut deviations) = (true, true, Vec::new(), Vec::new());
    for f in [1, 2] {
        let (smr, bc) = (over_readers(rows, SMR, (f, 0)), over_readers(rows, BC, (f, 0)));
        below &= all(&smr, &bc, |smr, bc| smr < bc);
        evidence.push(format!("f = {f}: {}", both(("SMR", &smr), ("BC", &bc))));
        let of = |arm| {
            let cells = (0..).map_while(|readers| cell(rows, arm, (f, 0), readers));
            cells.map(|cell| cell.deviation).collect::<Vec<_>>()
        };
        let (smr, bc) = (of(SMR), of(BC));
        steadier &= average(smr.iter().copied()) < average(bc.iter().copied());
        deviations.push(format!("f = {f}: {}", both(("SMR", &smr), ("BC", &bc))));
    }
    vec![
        Shape::new("A11: replication below BFT-BC for every number of readers", below, evidence.join("; ")),
        Shape::new(
            "A11: the deviation of replication is smaller in the mean over the readers",
            steadier,
            deviations.join("; "),
        ),
        unbatched(rows),
    ]
}

pub(super) fn f6c(rows: &[Row]) -> Vec<Shape> {
    let mut shapes = readers(rows);
    let [one, two] = [1, 2].map(|f| pooled(rows, SMR, (f, 0), |cell| cell.fast));
    shapes.push(Shape::new(
        "A11: the share of optimistic reads falls from f = 1 to f = 2",
        two < one,
        format!("{one:.1} and {two:.1} %"),
    ));
    shapes
}

pub(super) fn f6d(rows: &[Row]) -> Vec<Shape> {
    readers(rows)
}

//! What the paper does not have: signatures of today (X1), the world (X2), the variants of BFT-BC (X3), every profile (X6).

use std::time::Instant;

use anyhow::{Context, Result};
use quorate_quorum::Protocol;
use quorate_quorum::settings::Variant;
use quorate_quorum_sim::geo;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::keys::Scheme;
use quorate_quorum_sim::model::{Costs, Model, UNIT};
use quorate_quorum_sim::profile::Profile;
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{Digest, Principal, ReplicaId};

use super::point::{Arm, BC, C, F, PHX, Place as On, Point, SMR};
use super::shared::{FAULTS, bars, notes};
use super::sockets::rsa::Long;
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};
use crate::signatures::Signatures;

/// See the module.
pub(super) const X1: Experiment = Experiment {
    name: "bqs-x1",
    source: "BQS08 Figs 2 and 4, signatures of today",
    about: "the registers by faults, simulated with Ed25519 at the speed of this machine, and on sockets with Ed25519 and RSA",
    run: x1,
    figures,
};

/// See the module.
pub(super) const X2: Experiment = Experiment {
    name: "bqs-x2",
    source: "none: regions of the world",
    about: "every register and replication between regions of the world, simulated",
    run: x2,
    figures,
};

/// See the module.
pub(super) const X3: Experiment = Experiment {
    name: "bqs-x3",
    source: "ICDCS06: variants of BFT-BC",
    about: "the variants of BFT-BC, by faults, simulated",
    run: x3,
    figures,
};

/// See the module.
pub(super) const X6: Experiment = Experiment {
    name: "bqs-x6",
    source: "none: every profile",
    about: "every register with every profile of a faulty server that it tolerates: atomic, live, and how much slower; simulated",
    run: x6,
    figures,
};

const REGISTERS: [Arm; 4] = [C, PHX, F, BC];
const BASE: Arm = Arm::Register(Protocol::BftBc(Variant::Base));
const VARIANTS: [Arm; 4] = [
    BASE,
    BC,
    Arm::Register(Protocol::BftBc(Variant::Strong)),
    Arm::Register(Protocol::BftBc(Variant::StrongOptimized)),
];

fn figures(rows: &[Row]) -> Vec<Figure> {
    ["read", "write"]
        .into_iter()
        .map(|mode| {
            let of: Vec<Row> = rows.iter().filter(|row| row.mode == mode).cloned().collect();
            let y = Axis::linear("mean latency, ms");
            bars(mode, &format!("{mode}s"), &y, &of, |row| row.op.trim_end_matches(" readers=0").to_owned())
        })
        .collect()
}

fn mean(rows: &[Row], arm: Arm, mode: &str, op: &str) -> f64 {
    let found =
        rows.iter().find(|row| row.variant == arm.name() && row.mode == mode && row.op.starts_with(op));
    found.and_then(|row| row.cell.as_ref()).map_or(f64::NAN, |cell| cell.mean)
}

/// Measures how often something is done in a nanosecond's ticks.
fn each(count: u32, act: &mut dyn FnMut()) -> u64 {
    let begin = Instant::now();
    (0..count).for_each(|_| act());
    u64::try_from((begin.elapsed() / count).as_nanos()).unwrap_or(u64::MAX)
}

/// Measures RSA on this machine, in ticks of a nanosecond.
fn rsa(bits: usize) -> Costs {
    let own = Principal::Replica(ReplicaId(0));
    let mut long = Long::new(bits);
    long.prepare(std::iter::once(own));
    let signature = long.sign(own, &Digest([9; 32]));
    let mut number = 0;
    let sign = each(20, &mut || {
        number += 1;
        std::hint::black_box(long.sign(own, &Digest([number; 32])));
    });
    let verify = each(50, &mut || _ = std::hint::black_box(long.verify(own, &Digest([9; 32]), &signature)));
    Costs { sign, verify }
}

/// Measures Ed25519 on this machine, in ticks of a nanosecond.
fn ed25519() -> Costs {
    const COUNT: u32 = 200;
    let (signer, own) = (Signer::ed25519([7; 32]), Principal::Replica(ReplicaId(0)));
    let mut verifier = Verifier::default();
    verifier.insert(own, &signer.public());
    let digest = Digest([9; 32]);
    let signature = signer.sign(&digest);
    let sign = each(COUNT, &mut || _ = std::hint::black_box(signer.sign(std::hint::black_box(&digest))));
    let verify = each(COUNT, &mut || _ = std::hint::black_box(verifier.verify(own, &digest, &signature)));
    Costs { sign, verify }
}

fn x1(settings: Settings) -> Result<Report> {
    let operations = settings.effort.of(1000, 200, 3);
    let costs = ed25519();
    // A message of today: 5 us of processor at each end, and 50 us on the wire of a switch.
    let model = Model::Lan { cpu: UNIT / 200, wire: UNIT / 20, jitter: 0 };
    let mut report = Report::new(X1.name, X1.source, Machine::look("simulated"));
    for kind in [OperationKind::Read, OperationKind::Write] {
        for arm in REGISTERS {
            for faults in FAULTS {
                let point = Point {
                    model: model.clone(),
                    costs: Some(costs),
                    ..Point::new(arm, kind, faults, operations)
                };
                report.rows.push(point.measure()?);
            }
        }
    }
    let at = |arm, mode: &str| mean(&report.rows, arm, mode, "f=1 b=0");
    let (gap, reads) = (at(PHX, "write") - at(C, "write"), at(PHX, "read") - at(C, "read"));
    report.shapes.push(Shape::new(
        "what a signature costs in a write is no longer most of it: PHALANX less than three times MINIMAL-C (4.8 times in 2006)",
        at(PHX, "write") < 3.0 * at(C, "write"),
        format!("{:.3} and {:.3} ms: {gap:.3} ms more; reads {reads:.3} ms more", at(PHX, "write"), at(C, "write")),
    ));
    report.shapes.push(Shape::new(
        "the order of the registers stays: writes of MINIMAL-C below MINIMAL-F below BFT-BC",
        at(C, "write") < at(F, "write") && at(F, "write") < at(BC, "write"),
        format!("{:.3}, {:.3}, {:.3} ms", at(C, "write"), at(F, "write"), at(BC, "write")),
    ));
    report.notes.push(format!(
        "simulated time: Ed25519 as measured here at the start, {} us to sign and {} us to verify; a message takes 5 us of \
         processor at each end and 50 us on the wire",
        costs.sign / 1000,
        costs.verify / 1000
    ));
    let chosen = settings.signatures.map_or(Signatures::REAL.to_vec(), |one| vec![one]);
    for signatures in chosen {
        on_sockets(signatures, settings, &mut report)?;
    }
    Ok(report)
}

/// The registers with these signatures, as fast as they are here, on loopback.
fn on_sockets(signatures: Signatures, settings: Settings, report: &mut Report) -> Result<()> {
    let operations = settings.effort.of(1000, 60, 2);
    let mut rows = Vec::new();
    for kind in [OperationKind::Read, OperationKind::Write] {
        for arm in REGISTERS {
            for faults in [(1, 0), (1, 1)] {
                let (place, think) = (On::Sockets(signatures), 2000);
                rows.push(
                    Point {
                        think,
                        place,
                        cable: settings.cable,
                        ..Point::new(arm, kind, faults, operations)
                    }
                    .measure()?,
                );
            }
        }
    }
    let at = |arm| mean(&rows, arm, "write", "f=1 b=0");
    let name = signatures.name();
    report.shapes.push(Shape::new(
        format!("on sockets with {name}: writes of MINIMAL-C below MINIMAL-F below BFT-BC"),
        at(C) < at(F) && at(F) < at(BC),
        format!("{:.3}, {:.3}, {:.3} ms", at(C), at(F), at(BC)),
    ));
    if let Signatures::Rsa(bits) = signatures {
        let costs = rsa(bits);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
        let ratio = costs.sign as f64 / costs.verify as f64;
        let says =
            format!("{} us to sign, {} us to verify: {ratio:.1}", costs.sign / 1000, costs.verify / 1000);
        report.shapes.push(Shape::new(
            format!("{name}: a signature takes as many verifications as in the paper (14 ms / 0.9 ms = 15.6), half to double"),
            (7.8..31.2).contains(&ratio),
            says,
        ));
    }
    report.rows.extend(rows);
    Ok(())
}

/// A client, four servers, and the latencies that the round trips give: a read, and a write of replication with the best
/// and with the worst leader, in milliseconds (§11.4).
struct Place {
    client: &'static str,
    servers: [&'static str; 4],
    read: f64,
    ordered: (f64, f64),
}

const PLACES: [Place; 3] = [
    Place { client: "WDC", servers: ["WDC", "FRA", "TOK", "SAO"], read: 119.0, ordered: (317.0, 377.0) },
    Place { client: "SYD", servers: ["WDC", "FRA", "TOK", "SAO"], read: 250.0, ordered: (425.0, 531.0) },
    Place { client: "SYD", servers: ["DAL", "WDC", "TOR", "LON"], read: 214.0, ordered: (250.0, 311.0) },
];
/// How far the simulation may be from what the round trips give, in milliseconds.
const NEAR_MS: f64 = 3.0;

fn x2(settings: Settings) -> Result<Report> {
    let operations = settings.effort.of(100, 20, 2);
    let mut report = Report::new(X2.name, X2.source, Machine::look("simulated"));
    for place in &PLACES {
        let title = format!("client {}, servers {}", place.client, place.servers.join(" "));
        for kind in [OperationKind::Read, OperationKind::Write] {
            for arm in [C, PHX, F, BASE, BC] {
                let row = far(place, arm, kind, 0, operations)?;
                let phases = match (kind, arm) {
                    (OperationKind::Read, _) => 1.0,
                    (OperationKind::Write, BASE) => 3.0,
                    (OperationKind::Write, _) => 2.0,
                };
                report.shapes.push(near(&title, &row, phases * place.read));
                report.rows.push(row);
            }
        }
        let row = far(place, SMR, OperationKind::Read, 0, operations)?;
        report.shapes.push(near(&title, &row, place.read));
        report.rows.push(row);
        let mut ordered = Vec::new();
        for leader in 0..place.servers.len() {
            let row = far(place, SMR, OperationKind::Write, leader, operations)?;
            ordered.push(row.cell.as_ref().context("a row without its cell")?.mean);
            report.rows.push(row);
        }
        let best = ordered.iter().copied().fold(f64::INFINITY, f64::min);
        let worst = ordered.iter().copied().fold(0.0, f64::max);
        let (least, most) = place.ordered;
        report.shapes.push(Shape::new(
            format!("{title}: a write of replication takes {least} ms with the best leader and {most} ms with the worst"),
            (best - least).abs() <= NEAR_MS && (worst - most).abs() <= NEAR_MS,
            format!("{best:.1} and {worst:.1} ms"),
        ));
    }
    report.notes.push(
        "simulated time: half of the mean round trip between two regions, without jitter; messages and signatures take no \
         processor time"
            .to_owned(),
    );
    Ok(report)
}

fn far(place: &Place, arm: Arm, kind: OperationKind, leader: usize, operations: usize) -> Result<Row> {
    let find = |name: &&str| geo::region(name).with_context(|| format!("no region {name}"));
    let mut regions = place.servers.iter().map(find).collect::<Result<Vec<_>>>()?;
    // Replica 0 leads.
    regions.rotate_left(leader);
    regions.push(find(&place.client)?);
    let model = Model::Geo { regions, jitter: 0, own: None };
    let mut row = Point { model, think: 1_000_000, ..Point::new(arm, kind, (1, 0), operations) }.measure()?;
    let led = if arm == SMR { format!(", led by {}", place.servers[leader]) } else { String::new() };
    row.op = format!("{} to {}{led}", place.client, place.servers.join("-"));
    Ok(row)
}

fn near(title: &str, row: &Row, expected: f64) -> Shape {
    let mean = row.cell.as_ref().map_or(f64::NAN, |cell| cell.mean);
    Shape::new(
        format!("{title}: a {} of {} takes {expected} ms", row.mode, row.variant),
        (mean - expected).abs() <= NEAR_MS,
        format!("{mean:.1} ms"),
    )
}

fn x3(settings: Settings) -> Result<Report> {
    let operations = settings.effort.of(1000, 200, 3);
    let mut report = Report::new(X3.name, X3.source, Machine::look("simulated"));
    for kind in [OperationKind::Read, OperationKind::Write] {
        for arm in VARIANTS {
            for faults in FAULTS {
                report.rows.push(Point::new(arm, kind, faults, operations).measure()?);
            }
        }
    }
    let [base, optimized, strong, both] = VARIANTS.map(|arm| mean(&report.rows, arm, "write", "f=1 b=0"));
    let evidence = format!("base {base:.2}, optimized {optimized:.2}, strong {strong:.2}, both {both:.2} ms");
    report.shapes.push(Shape::new(
        "undisturbed, the optimized write is faster than the base write, and saves more than two steps (1.3 ms)",
        optimized + 1.3 < base,
        evidence.clone(),
    ));
    report.shapes.push(Shape::new(
        "undisturbed, a strong write costs no more than a verified read beside the base write (10 %)",
        strong < 1.1 * base && both < 1.1 * base,
        evidence,
    ));
    report.notes = notes();
    Ok(report)
}

/// A profile may make an operation this much slower, before something is wrong with the register and not with its servers.
const FACTOR_MAX: f64 = 5.0;

fn x6(settings: Settings) -> Result<Report> {
    let operations = settings.effort.of(300, 60, 3);
    let mut report = Report::new(X6.name, X6.source, Machine::look("simulated"));
    for arm in REGISTERS {
        let Arm::Register(protocol) = arm else { continue };
        let (mut worst, mut count, mut wrong) = ((0.0, String::new()), 0, Vec::new());
        for kind in [OperationKind::Read, OperationKind::Write] {
            let point = |b, profile| Point { profile, ..Point::among(arm, kind, (1, b), 1, operations) };
            let free = point(0, Profile::FakeValue).measure()?;
            let base = free.cell.as_ref().map_or(f64::NAN, |cell| cell.mean);
            report.rows.push(free);
            for profile in Profile::of(protocol).into_iter().filter(|profile| is_of_lan(*profile)) {
                count += 1;
                match point(1, profile).measure() {
                    Ok(mut row) => {
                        let factor = row.cell.as_ref().map_or(f64::NAN, |cell| cell.mean) / base;
                        if factor > worst.0 {
                            worst = (factor, format!("{}, {}", profile.name(), row.mode));
                        }
                        row.op = format!("f=1 b=1 {}", profile.name());
                        report.rows.push(row);
                    }
                    Err(error) => wrong.push(format!("{}: {error:#}", profile.name())),
                }
            }
        }
        report.shapes.push(Shape::new(
            format!("{}: atomic and live with every profile", arm.name()),
            wrong.is_empty(),
            if wrong.is_empty() { format!("{count} cells") } else { wrong.join("; ") },
        ));
        report.shapes.push(Shape::new(
            format!("{}: no profile makes an operation {FACTOR_MAX} times as slow", arm.name()),
            worst.0 < FACTOR_MAX,
            format!("at most {:.2} times: {}", worst.0, worst.1),
        ));
    }
    report.notes = notes();
    report.notes.push(
        "accomplice and withhold need a Byzantine client, and late-entrance and slow a timer: the swarm has them".to_owned(),
    );
    Ok(report)
}

/// Cells have no faulty clients and no timers.
fn is_of_lan(profile: Profile) -> bool {
    !matches!(profile, Profile::Accomplice | Profile::Withhold | Profile::LateEntrance | Profile::Slow)
}

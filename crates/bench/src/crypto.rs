//! `crypto`: the benefit of MACs (OSDI99 §5.2, DSN01 §1): the cost of an authenticator, a MAC and a signature, and the
//! whole system with MACs, with signed requests, and with a signature on every message.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use quorate_wire::digest::Domains;
use quorate_wire::frame::{ENTRY_BYTES, SIGNATURE_BYTES};
use quorate_wire::keys::{Covered, SessionKey};
use quorate_wire::message::RequestFlags;
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClusterId, Digest, Principal, ReplicaId};

use crate::arms::{Arm, Figure as Unit, Place, Plan};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series, clients, curve, ops};
use crate::figures::{median, ratio};
use crate::load::{Op, Until};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "crypto",
    source: "OSDI99 section 5.2, DSN01 section 1",
    about: "authenticators for n = 4, 7, 13, 37, MACs, signatures; the whole system with MACs and with signatures",
    run,
    figures,
};

const SIZES: [u16; 4] = [4, 7, 13, 37];
/// Bytes of the paper's RSA signature, of 1024 bits, and of an RSA signature that is as hard to forge as Ed25519.
const PAPER_RSA_BYTES: usize = 128;
const RSA_BYTES: usize = 384;

const HOSTS: usize = 2;
const EVERYWHERE: Setup = Setup::with("signatures everywhere", "signatures=on");
const SETUPS: [Setup; 3] =
    [Setup::with("MACs", "auth=mac"), Setup::with("signed requests", "auth=sig+mac"), EVERYWHERE];

fn run(settings: Settings) -> Result<Report> {
    let pinning = format!(
        "for latencies: {}; for throughput: {}",
        Place::Pinned.in_words(),
        Place::Free(HOSTS).in_words()
    );
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look(pinning));
    report.rows = alone(settings.effort.of(15, 7, 2), settings.effort.of(20_000, 4_000, 50));
    let (repeats, count) = settings.effort.of((7, 3_000), (5, 300), (1, 10));
    let mut plan = Plan::new(Unit::Latency);
    for echo in Arm::echoes()? {
        let arm = plan.arm(echo);
        plan.point(arm, 1, Until::Ops(count), Op::rw(0, 0), None);
    }
    for setup in SETUPS {
        let arm = plan.arm(Arm::cluster(setup, Place::Pinned)?);
        plan.point(arm, 1, Until::Ops(count), Op::rw(0, 0), None);
        plan.point(arm, 1, Until::Ops(count), Op::ro(0, 0), None);
    }
    report.rows.extend(plan.run(settings, repeats)?);
    let (repeats, ms) = settings.effort.of((5, 1_000), (3, 300), (1, 20));
    let counts: &[u16] = settings.effort.of(&[1, 10, 50, 200], &[1, 10, 100], &[1, 5]);
    let mut plan = Plan::new(Unit::Throughput);
    for setup in SETUPS {
        let arm = plan.arm(Arm::cluster(setup, Place::Free(HOSTS))?);
        for clients in counts {
            plan.point(arm, *clients, Until::Ms(ms), Op::rw(0, 0), None);
        }
    }
    report.rows.extend(plan.run(settings, repeats)?);
    report.shapes = shapes(&report.rows);
    report.notes.push(
        "keyed BLAKE3 and Ed25519 here; UMAC32 or keyed MD5, and RSA of 1024 bits in the papers. Signatures everywhere: \
         each datagram has a signature in addition to its MACs, made once for all its receivers and verified first; the \
         papers' library never had that option"
            .to_owned(),
    );
    Ok(report)
}

/// Measures the primitives, in nanoseconds.
fn alone(repeats: usize, count: usize) -> Vec<Row> {
    let cluster = ClusterId([1; 32]);
    let (domains, digest) = (Domains::new(cluster), Digest([7; 32]));
    let own = Principal::Replica(ReplicaId(0));
    let signer = Signer::ed25519([9; 32]);
    let mut verifier = Verifier::default();
    verifier.insert(own, &signer.public());
    let flags = RequestFlags { read_only: false, signed: false };
    let key = |to: u64| SessionKey::derive(cluster, &[5; 32], (0, 0), (to, 0));
    let statement = domains.signature(&digest.0);
    let signature = signer.sign(&statement);
    let mut rows = Vec::new();
    let mut add = |name: String, n: Option<u16>, bytes: usize, paper: Option<f64>, work: &mut dyn FnMut()| {
        let samples: Vec<f64> = (0..repeats).map(|_| each_ns(count, work)).collect();
        rows.push(Row {
            system: "primitive".to_owned(),
            variant: name,
            op: "-".to_owned(),
            mode: "-".to_owned(),
            n,
            clients: 1,
            repeats,
            bytes: Some(bytes),
            parts_ns: vec![("each".to_owned(), median(&samples))],
            paper,
            unit: "ns".to_owned(),
            samples,
            ..Row::default()
        });
    };
    for n in SIZES {
        let keys: Vec<SessionKey> = (1..u64::from(n)).map(key).collect();
        let entries = keys.len();
        add(format!("authenticator, n = {n}"), Some(n), entries * ENTRY_BYTES, None, &mut || {
            let covered = Covered::request(0, own, black_box(&digest), None, flags, None);
            for key in &keys {
                black_box(key.tag(&covered));
            }
        });
    }
    let one = key(1);
    add("MAC".to_owned(), None, ENTRY_BYTES, Some(10_300.0), &mut || {
        black_box(one.tag(&Covered::request(0, own, black_box(&digest), None, flags, None)));
    });
    add("signature, made".to_owned(), None, SIGNATURE_BYTES, Some(43e6), &mut || {
        black_box(signer.sign(black_box(&statement)));
    });
    add("signature, verified".to_owned(), None, SIGNATURE_BYTES, Some(0.6e6), &mut || {
        black_box(verifier.verify(own, black_box(&statement), &signature));
    });
    rows
}

/// Returns the mean time of `count` calls, in nanoseconds.
fn each_ns(count: usize, work: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        work();
    }
    start.elapsed().as_secs_f64() * 1e9 / ratio(u64::try_from(count).unwrap_or(1), 1)
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let primitive = |name: &str| rows.iter().find(|row| row.system == "primitive" && row.variant == name);
    let ns = |name: &str| primitive(name).map_or(f64::NAN, |row| median(&row.samples));
    let bytes = |name: &str| primitive(name).and_then(|row| row.bytes).unwrap_or(0);
    let (mac, made, verified) = (ns("MAC"), ns("signature, made"), ns("signature, verified"));
    let us = |variant: &str| {
        let row = rows.iter().find(|row| row.variant == variant && row.unit == "us" && row.mode == "rw");
        row.and_then(|row| row.p50_us).unwrap_or(f64::NAN)
    };
    let peak = |variant: &str| {
        let rows = rows.iter().filter(|row| row.variant == variant && row.unit == "op/s");
        rows.filter_map(|row| row.ops_per_s).fold(f64::NAN, f64::max)
    };
    let thirteen = bytes("authenticator, n = 13");
    vec![
        Shape::new(
            "a MAC is at least ten times cheaper than a signature",
            made > 10.0 * mac && verified > 10.0 * mac,
            format!(
                "MAC {mac:.0} ns, signature made in {:.0} us and verified in {:.0} us: {:.0} and {:.0} times; paper, MAC of \
                 64 bytes and RSA: 4175 and 58 times",
                made / 1000.0,
                verified / 1000.0,
                made / mac,
                verified / mac
            ),
        ),
        Shape::new(
            "an authenticator is smaller than an RSA signature up to n = 13",
            thirteen < PAPER_RSA_BYTES,
            format!(
                "{thirteen} bytes at n = 13, {} at 37; the paper's RSA of 1024 bits {PAPER_RSA_BYTES}, RSA as strong as ours \
                 {RSA_BYTES}, Ed25519 {SIGNATURE_BYTES}: our MACs have 128 bits and a number, the paper's tags 80 bits",
                bytes("authenticator, n = 37")
            ),
        ),
        Shape::new(
            "ours: an authenticator for 37 replicas is cheaper than one Ed25519 signature",
            ns("authenticator, n = 37") < made,
            format!("{:.1} us against {:.1} us", ns("authenticator, n = 37") / 1000.0, made / 1000.0),
        ),
        Shape::incomparable(
            "the paper's: an authenticator for 37 replicas is more than 100 times cheaper than an RSA signature",
            format!(
                "needs RSA of 1024 bits; an Ed25519 signature takes {:.0} times as long",
                made / ns("authenticator, n = 37")
            ),
        ),
        Shape::new(
            "end to end, MACs are faster than signatures on every message",
            us("MACs") < us(EVERYWHERE.name) && peak("MACs") > peak(EVERYWHERE.name),
            format!(
                "0/0: {:.0} us against {:.0} us, {:.1} times; maximum {:.0} op/s against {:.0}, {:.1} times",
                us("MACs"),
                us(EVERYWHERE.name),
                us(EVERYWHERE.name) / us("MACs"),
                peak("MACs"),
                peak(EVERYWHERE.name),
                peak("MACs") / peak(EVERYWHERE.name)
            ),
        ),
    ]
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let primitives: Vec<&Row> = rows.iter().filter(|row| row.system == "primitive").collect();
    let mut alone =
        Figure::new("primitives", "MACs and signatures", Axis::default(), Axis::log("nanoseconds"));
    alone.categories = primitives
        .iter()
        .map(|row| row.variant.replace("authenticator, ", "auth. ").replace("signature, ", "sig. "))
        .collect();
    let places = || (0_u32..).map(f64::from).zip(&primitives);
    let points = places().map(|(x, row)| Dot {
        x,
        y: median(&row.samples),
        samples: row.samples.clone(),
        ..Dot::default()
    });
    let paper: Vec<(f64, f64)> = places().filter_map(|(x, row)| Some((x, row.paper?))).collect();
    let alone = alone
        .with(Series { name: "here".to_owned(), points: points.collect(), ..Series::default() })
        .paper("paper", &paper)
        .caption(
            "Grey: OSDI99 section 5.2, 1024-bit RSA and the MAC of a message of 64 bytes, on its machine.",
        );
    let of =
        |variant: &'static str| rows.iter().filter(move |row| row.variant == variant && row.unit == "op/s");
    let mut whole = Figure::new(
        "throughput",
        "The whole system: throughput of 0/0",
        Axis::log("clients"),
        Axis::linear("operations per second"),
    );
    for setup in SETUPS {
        whole = whole.with(curve(setup.name, of(setup.name), clients, ops));
    }
    vec![alone, whole.caption("Medians; dots: repeats. None of the papers has this curve.")]
}

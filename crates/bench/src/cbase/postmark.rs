//! `cbase-postmark`: `PostMark`'s calls, mostly reads and mostly writes, with replicas that write changes to a store before
//! they answer [CBASE04 Figure 8].

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::between;
use super::files::{self, BASE, CBASE, compare, on_threads};
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::median;
use crate::files::noise;
use crate::files::postmark::{Amount, Mix, measure};
use crate::files::servers::{self, Arm, Server, Work};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-postmark",
    source: "CBASE04 Figure 8",
    about: "PostMark with 1, 2 and 4 clients on replicas with a synchronous store: transactions per second of BASE-FS and \
        CBASE-FS, mostly reads and mostly writes",
    run,
    figures,
};

const STORE: Work = Work::Store(0);
const ARMS: &[Arm] =
    &[files::base(STORE), files::cbase(STORE), files::control(STORE), files::keys(STORE), files::free(STORE)];
const FEW_ARMS: &[Arm] = &[files::base(STORE), files::cbase(STORE)];
const CLIENTS: [u64; 3] = [1, 2, 4];
/// The mixes of the paper, and one whose reads reach the servers.
const READS: &str = "mostly reads";
const WRITES: &str = "mostly writes";
const COLD: &str = "mostly reads, no cache";
/// The paper's files: 1 to 100 KB. What an append adds, it does not say.
const MIX: Mix =
    Mix { file_bytes: (1 << 10, 100 << 10), append_bytes: 16 << 10, reads: (9, 10), is_cold: false };
const MIXES: [(&str, Mix); 3] =
    [(READS, MIX), (WRITES, Mix { reads: (1, 10), ..MIX }), (COLD, Mix { is_cold: true, ..MIX })];
/// What CBASE-FS does with several clients, in times of BASE-FS: at least this, and in the paper at most this.
const GAIN_MIN: f64 = 1.15;
const GAIN_PAPER: f64 = 1.25;

/// Runs a client on each thread. Returns the transactions a second of all together, and how many calls were repeated.
fn run_all(server: &Server, clients: u64, amount: Amount, mix: Mix, data: &[u8]) -> Result<(f64, u64)> {
    // Clients prepare for as long as each other, and end together: the sum of their rates is that of all.
    let samples = on_threads((0..clients).collect(), |number| measure(server, number, amount, mix, data))?;
    Ok((samples.iter().map(|sample| sample.per_s).sum(), samples.iter().map(|sample| sample.delayed).sum()))
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, amount) = settings.effort.of((3, (100, 500)), (3, (10, 30)), (1, (2, 4)));
    let mut report =
        Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("replicas, one core each"));
    let arms = if settings.effort == Effort::Tiny { FEW_ARMS } else { ARMS };
    let servers = servers::start_all(arms, &mut report.notes)?;
    let data = noise(MIX.file_bytes.1);
    for server in &servers {
        run_all(server, CLIENTS[2], (2, 10), MIX, &data).with_context(|| server.name())?;
    }
    let (start, turns) = (Instant::now(), MIXES.len() * CLIENTS.len() * repeats * servers.len());
    let mut turn = 0;
    for (op, mix) in MIXES {
        for clients in CLIENTS {
            let mut samples = vec![(Vec::new(), 0); servers.len()];
            for _ in 0..repeats {
                for (server, (rates, delayed)) in servers.iter().zip(&mut samples) {
                    crate::progress::turn(turn, turns, start);
                    turn += 1;
                    let (per_s, again) =
                        run_all(server, clients, amount, mix, &data).with_context(|| server.name())?;
                    rates.push(per_s);
                    *delayed += again;
                }
            }
            report.rows.extend(servers.iter().zip(samples).map(|(server, (samples, errors))| Row {
                repeats: samples.len(),
                ops_per_s: Some(median(&samples)),
                errors,
                unit: "tx/s".to_owned(),
                samples,
                ..server.row(op, "rw", u32::try_from(clients).unwrap_or(u32::MAX))
            }));
        }
    }
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "{} files of 1 to 100 KB and {} transactions a client, each client in a directory of its own; mostly reads: 9 of 10 \
         transactions read, mostly writes: 1 of 10; the client has the files that it reads in its cache, except without cache",
        amount.0, amount.1
    ));
    report
        .notes
        .push("the paper does not say how many workers its CBASE-FS had, nor what an append adds".to_owned());
    files::note_store(&mut report);
    files::notes(&mut report);
    Ok(report)
}

fn rate(rows: &[Row], system: &str, op: &str, clients: u64) -> Option<f64> {
    let is_it = |row: &&Row| row.system == system && row.op == op && u64::from(row.clients) == clients;
    rows.iter().find(is_it)?.ops_per_s
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for op in [READS, WRITES] {
        for clients in CLIENTS {
            let figures = rate(rows, CBASE, op, clients).zip(rate(rows, BASE, op, clients));
            let (name, bounds) = match clients {
                1 => (format!("C8.1 {op}, 1 client: equal within 5 %"), (0.95, 1.05)),
                // More clients cannot gain more than their number.
                _ => (
                    format!(
                        "C8.2 {op}, {clients} clients: CBASE-FS does at least 1.15 times as much as BASE-FS"
                    ),
                    (GAIN_MIN, f64::from(u32::try_from(clients).unwrap_or(u32::MAX))),
                ),
            };
            shapes.push(compare(&name, figures, |name, a, b| {
                between(name, a / b, bounds, &format!("{a:.0} tx/s, {b:.0} tx/s"))
            }));
        }
    }
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |(op, _): (&str, Mix)| {
        let mut figure = Figure::new(
            &op.replace([' ', ','], "-"),
            &format!("CBASE04 Figure 8: PostMark, {op}"),
            Axis::linear("clients"),
            Axis::linear("transactions per second, divided by those of BASE-FS"),
        );
        figure.categories = CLIENTS.map(|clients| clients.to_string()).to_vec();
        let mut systems: Vec<&str> = rows.iter().map(|row| row.system.as_str()).collect();
        systems.dedup();
        systems.sort_unstable();
        systems.dedup();
        for system in systems {
            let dots = (0_u32..).zip(CLIENTS).filter_map(|(x, clients)| {
                let y = rate(rows, system, op, clients)? / rate(rows, BASE, op, clients)?;
                Some(Dot { x: f64::from(x), y, ..Dot::default() })
            });
            figure =
                figure.with(Series { name: system.to_owned(), points: dots.collect(), ..Series::default() });
        }
        if op == COLD { figure } else { figure.paper("paper: CBASE-FS", &PAPER) }.caption(
            "Medians of the repeats. Grey: the paper's CBASE-FS, from its text: equal, then 20 to 25 % more.",
        )
    };
    MIXES.into_iter().map(figure).collect()
}

/// The paper's CBASE-FS in times of its BASE-FS, by the place of the number of clients.
const PAPER: [(f64, f64); 3] = [(0.0, 1.0), (1.0, GAIN_PAPER), (2.0, GAIN_PAPER)];

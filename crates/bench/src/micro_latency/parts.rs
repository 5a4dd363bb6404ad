//! The parts of an operation's latency: cryptography and encoding in the authenticator, other computing, communication.
//!
//! Four replicas and a client run in one process, and the clock is read after each part of the work. Communication is the
//! rest of the latency that was measured between processes.

use std::time::{Duration, Instant};

use anyhow::Result;
use quorate_node::{Meter, Part};
use quorate_service::null;
use quorate_wire::Cluster;

use crate::figures::ratio;
use crate::group::Group;
use crate::report::Row;

/// A part of the work that took longer than this was interrupted by another process: it does not count.
const INTERRUPTED: Duration = Duration::from_micros(20);

/// Time spent in the authenticator, and elsewhere.
#[derive(Debug)]
struct Spent {
    last: Instant,
    door: Duration,
    other: Duration,
}

impl Meter for Spent {
    fn start(&mut self) {
        self.last = Instant::now();
    }

    fn lap(&mut self, part: Part) {
        let now = Instant::now();
        let took = now.duration_since(self.last);
        self.last = now;
        if took < INTERRUPTED {
            match part {
                Part::Admit | Part::Seal => self.door += took,
                Part::Step | Part::Execute => self.other += took,
            }
        }
    }
}

/// Adds the parts to the rows of Table 1, and returns them as text, together with the paper's.
pub(super) fn of(rows: &mut [Row], count: usize) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let is_of_table = |row: &&mut Row| {
        row.system == "quorate"
            && row.variant == "default"
            && row.f == Some(1)
            && row.argument_bytes.is_some_and(|bytes| bytes == 0 || bytes == 4096)
            && row.result_bytes.is_some_and(|bytes| bytes == 0 || bytes == 4096)
    };
    for row in rows.iter_mut().filter(is_of_table) {
        let (Some(argument), Some(result), Some(p50)) = (row.argument_bytes, row.result_bytes, row.p50_us)
        else {
            continue;
        };
        let read_only = row.mode == "ro";
        let (door, other) = measure(argument, result, read_only, count)?;
        let communication = (p50 * 1000.0 - door - other).max(0.0);
        row.parts_ns = vec![
            ("crypto and coding".to_owned(), door),
            ("other computing".to_owned(), other),
            ("communication".to_owned(), communication),
        ];
        let paper = match (row.op.as_str(), read_only) {
            ("0/0", false) => "; the paper's overhead: 550 crypto, 510 other computing, 1470 communication",
            ("0/0", true) => "; the paper's overhead: 230 crypto, 200 other computing, 370 communication",
            _ => "",
        };
        notes.push(format!(
            "{} {}: {:.1} us crypto and encoding, {:.1} other computing, {:.1} communication{paper}",
            row.op,
            row.mode,
            door / 1000.0,
            other / 1000.0,
            communication / 1000.0
        ));
    }
    notes.push(
        "crypto: the authenticators' work (MACs, digests, encoding) of the client, the primary and one backup; \
         communication: the rest of the latency"
            .to_owned(),
    );
    Ok(notes)
}

/// Returns the nanoseconds of one operation in the authenticator and elsewhere, of the client, the primary and, on
/// average, one backup: the other backups work in parallel.
fn measure(argument: usize, result: usize, read_only: bool, count: usize) -> Result<(f64, f64)> {
    let new = || Spent { last: Instant::now(), door: Duration::ZERO, other: Duration::ZERO };
    let mut group = Group::start(Cluster::tolerating(1)?, |_| (), new)?;
    let mut operation = Vec::new();
    null::operation(argument, u32::try_from(result)?, read_only, &mut operation);
    for _ in 0..count / 4 {
        group.invoke(&operation, read_only)?;
    }
    group.meters().for_each(|spent| *spent = new());
    for _ in 0..count {
        group.invoke(&operation, read_only)?;
    }
    let meters: Vec<&mut Spent> = group.meters().collect();
    let per_op = |spent: Duration| {
        ratio(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX), 1)
            / ratio(u64::try_from(count).unwrap_or(1), 1)
    };
    let backups = f64::from(u32::try_from(meters.len().saturating_sub(2)).unwrap_or(1));
    let on_the_way = |of: fn(&Spent) -> Duration| {
        let all = meters.iter().enumerate().map(|(index, spent)| {
            let is_backup = index > 0 && index + 1 < meters.len();
            per_op(of(spent)) / if is_backup { backups } else { 1.0 }
        });
        all.sum()
    };
    Ok((on_the_way(|spent| spent.door), on_the_way(|spent| spent.other)))
}

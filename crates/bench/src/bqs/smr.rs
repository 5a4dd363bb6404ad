//! One cell of the SMR register (§12 of `docs/quorum/cells.md`): the replicas and clients of `quorate-node` with their
//! authenticators, on the machines of `quorate-quorum-sim`, beside the cells of the other registers.
//!
//! Replies are not tentative, commits do not wait for a carrier, requests go to all replicas, and so do reads; the rule by
//! which a read is ordered is `ReadRule::FirstReplies`. That is the setting of BQS08. MACs take no time, and
//! signatures what those of 2006 took: view changes have some.

pub(super) mod host;
mod plan;
pub(super) mod start;
pub mod swarm;

use anyhow::{Context, Result, ensure};
use quorate_pbft::client::Path;
use quorate_quorum::version::{ObjectId, Version, value_digest};
use quorate_quorum_sim::cell::Row;
use quorate_quorum_sim::checker;
use quorate_quorum_sim::history::{History, Operation, OperationKind};
use quorate_quorum_sim::keys::Jobs;
use quorate_quorum_sim::machines::{Event, Machines};
use quorate_quorum_sim::model::{Model, UNIT};
use quorate_quorum_sim::stats::Samples;
use quorate_sim::core::AnyCore;
use quorate_wire::ClientId;

use self::host::{
    Datagram, Host, INVOKE, Out, Process, START_NS, TIMER, frames, is_signed, signed_by, time,
    without_proposals,
};
pub use self::plan::{Faulty, Leader, SmrCell};
use self::start::Started;
use super::register::{Stored, read, write};

/// The object of every history.
const OBJECT: ObjectId = ObjectId([6; 32]);
/// No operation takes longer, in ticks: a minute.
const HUNG: u64 = 60_000 * UNIT;
impl SmrCell {
    /// Measures it.
    ///
    /// # Errors
    ///
    /// The cell makes no sense, or an operation did not end.
    pub fn run(&self) -> Result<Row> {
        ensure!(
            !matches!(self.load.model, Model::Contention { .. }),
            "the timers of replication need a clock"
        );
        if self.faulty != Faulty::Proposer {
            return Lab::start(self, self.load.seed)?.measure();
        }
        ensure!(
            self.load.readers == 0 && !self.load.writer,
            "one client at a time where each has a cluster of its own"
        );
        let mut all: Vec<Row> = Vec::new();
        for count in 0..self.load.operations {
            let mut one = self.clone();
            (one.load.operations, one.load.warm_up) = (1, 0);
            let seed = self.load.seed.wrapping_add(u64::try_from(count)? << 20);
            all.push(Lab::start(&one, seed)?.measure()?);
        }
        merge(&all)
    }
}

/// One row out of those of single operations.
pub(super) fn merge(all: &[Row]) -> Result<Row> {
    let first = all.first().context("no operation was measured")?;
    let count = f64::from(u32::try_from(all.len())?);
    let mean = |of: fn(&Row) -> f64| all.iter().map(of).sum::<f64>() / count;
    Ok(Row {
        latency: Samples::new(all.iter().map(|row| row.latency.mean()).collect()),
        fast: mean(|row| row.fast),
        messages: mean(|row| row.messages),
        bytes: mean(|row| row.bytes),
        signs: mean(|row| row.signs),
        verifies: mean(|row| row.verifies),
        operations: all.len(),
        verdict: all.iter().find_map(|row| row.verdict.clone().err()).map_or(Ok(()), Err),
        ..first.clone()
    })
}

/// One cell under way.
#[derive(Debug)]
struct Lab {
    cell: SmrCell,
    machines: Machines<Datagram, Vec<(usize, Vec<u8>)>>,
    hosts: Vec<Host<AnyCore>>,
    measured: usize,
    written: u64,
    jobs: Jobs,
    history: History,
    last_done: u64,
}

impl Lab {
    fn start(cell: &SmrCell, seed: u64) -> Result<Self> {
        let Started { machines, hosts, measured } =
            Started::new(cell, seed, |replica, signer, config| cell.core(replica, signer, config))?;
        Ok(Self {
            cell: cell.clone(),
            machines,
            hosts,
            measured,
            written: 0,
            jobs: Jobs::default(),
            history: History::default(),
            last_done: 0,
        })
    }

    fn measure(mut self) -> Result<Row> {
        loop {
            let host = &self.hosts[self.measured];
            if host.finished >= host.job.operations {
                return self.row();
            }
            ensure!(self.machines.now() < self.last_done + HUNG, "the measured client hangs");
            match self.machines.next_event().context("the measured client hangs")? {
                Event::Called { host, tag: INVOKE } => self.invoke(host),
                Event::Called { host, .. } => self.expire(host),
                Event::Worked { host, work } => {
                    for (to, bytes) in work {
                        self.machines.send(host, to, Datagram(bytes));
                    }
                }
                Event::Received { host, message, .. } => self.receive(host, &message.0),
            }
        }
    }

    fn invoke(&mut self, at: usize) {
        let (now, ticks) = (time(self.machines.now()), self.machines.now());
        let n = usize::from(3 * self.cell.load.f + 1);
        let client = ClientId::new(u64::try_from(at - n).unwrap_or(0) + 1, 0);
        let kind = self.hosts[at].job.kind;
        let (operation, value) = match kind {
            OperationKind::Read => (read(), Vec::new()),
            OperationKind::Write => {
                self.written += 1;
                // 64 bytes, all different.
                let mut value = vec![0_u8; 64];
                value[..8].copy_from_slice(&self.written.to_le_bytes());
                (write(&value), value)
            }
        };
        let invoked = self.machines.next_number();
        let number = self.history.operations.len();
        self.history.operations.push(Operation {
            client,
            object: OBJECT,
            kind,
            invoked,
            responded: None,
            value,
            version: None,
        });
        let host = &mut self.hosts[at];
        host.started = Some((ticks, number));
        if let Process::Client(drive) = &mut host.process {
            drive.invoke(now, 0, &operation, kind == OperationKind::Read);
        }
        self.after(at, 0);
    }

    fn expire(&mut self, at: usize) {
        let now = time(self.machines.now());
        let host = &mut self.hosts[at];
        if host.timer_at > self.machines.now() {
            return; // another call was made since
        }
        host.timer_at = u64::MAX;
        host.process.expire(now);
        self.after(at, 0);
    }

    fn receive(&mut self, at: usize, datagram: &[u8]) {
        let now = time(self.machines.now());
        let mut signed = 0;
        frames(datagram, |frame| signed += u64::from(is_signed(frame.kind)));
        self.hosts[at].process.receive(now, datagram);
        self.after(at, signed);
    }

    /// A process has handled something: what it sends waits until its signatures are verified and made.
    fn after(&mut self, at: usize, verified: u64) {
        let ticks = self.machines.now();
        let host = &mut self.hosts[at];
        let mut out = Out::default();
        host.process.flush(time(ticks), &mut out);
        let due = host.process.due();
        if host.silent {
            without_proposals(&mut out);
        }
        let signed = signed_by(at, &out);
        self.jobs.signs += signed;
        self.jobs.verifies += verified;
        let costs = self.cell.load.costs();
        let due = due.saturating_sub(START_NS).max(ticks);
        if due < host.timer_at && due < u64::MAX - START_NS {
            host.timer_at = due;
            self.machines.call(at, due - ticks, TIMER);
        }
        self.done(at);
        self.machines.work(at, signed * costs.sign + verified * costs.verify, out.take());
    }

    /// Notes an operation that has ended, and begins the next one.
    fn done(&mut self, at: usize) {
        let ticks = self.machines.now();
        let responded = self.machines.next_number();
        let think = self.cell.load.think * (UNIT / 1000);
        let host = &mut self.hosts[at];
        let Process::Client(drive) = &mut host.process else { return };
        let Some(done) = drive.done().first() else { return };
        let (path, told) = (done.path, Stored::decode(drive.result(done)));
        drive.clear_done();
        let Some((started, number)) = host.started.take() else { return };
        let record = &mut self.history.operations[number];
        record.responded = Some(responded);
        if let Some(told) = told {
            let (number, digest) = (told.number, value_digest(&told.value));
            let version = Version { val: number, client: told.writer, digest };
            record.version = Some(if number == 0 { Version::GENESIS } else { version });
            record.value = told.value;
        }
        self.last_done = ticks;
        host.finished += 1;
        host.samples.push((in_units(ticks - started), path));
        if host.job.operations == 0 || host.finished < host.job.operations {
            self.machines.call(at, think, INVOKE);
        }
    }

    fn row(self) -> Result<Row> {
        let samples = self.hosts[self.measured].samples.get(self.cell.load.warm_up..).unwrap_or(&[]);
        let done = self.history.operations.iter().filter(|one| one.responded.is_some()).count();
        let count = f64::from(u32::try_from(done.max(1))?);
        #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let each = |number: u64| number as f64 / count;
        let fast = samples.iter().filter(|(_, path)| *path == Path::ReadOnly).count();
        let fast = 100.0 * f64::from(u32::try_from(fast)?) / f64::from(u32::try_from(samples.len().max(1))?);
        let sent = self.machines.sent();
        Ok(Row {
            latency: Samples::new(samples.iter().map(|(latency, _)| *latency).collect()),
            fast,
            write_back: 0.0,
            listener_any: 0.0,
            listener_needed: 0.0,
            two_phase: 0.0,
            extra: 0.0,
            messages: each(sent.messages),
            bytes: each(sent.bytes),
            signs: each(self.jobs.signs),
            verifies: each(self.jobs.verifies),
            operations: done,
            verdict: checker::check(&self.history),
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "times are far below 2^53 ticks")]
fn in_units(ticks: u64) -> f64 {
    ticks as f64 / UNIT as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test may panic, and counts are exact")]
mod tests {
    use quorate_pbft::config::ReadRule;

    use super::*;

    fn cell(kind: OperationKind, faulty: Faulty) -> Row {
        let mut cell = SmrCell::new(1, kind, Model::sim2006(0));
        (cell.load.operations, cell.load.warm_up, cell.load.think, cell.faulty) = (6, 2, 20_000, faulty);
        let row = cell.run().unwrap();
        assert_eq!(row.verdict, Ok(()));
        row
    }

    /// §13.3: an optimistic read takes two steps, an ordered operation five; a liar among the first replies orders
    /// the read; a leader that proposes nothing costs the time-out and a view change, whose signatures take their time.
    #[test]
    fn the_register_takes_the_steps_that_it_should() {
        let near = |row: &Row, expected: f64| {
            let mean = row.latency.mean();
            assert!((mean - expected).abs() < 0.05, "{mean} instead of {expected}");
        };
        let read = cell(OperationKind::Read, Faulty::Nobody);
        near(&read, 1.89);
        assert!(read.fast > 99.0 && read.signs == 0.0);
        let write = cell(OperationKind::Write, Faulty::Nobody);
        assert!((4.0..6.0).contains(&write.latency.mean()) && write.fast == 0.0, "{write:?}");
        let fooled = cell(OperationKind::Read, Faulty::Acceptors(1));
        near(&fooled, read.latency.mean() + write.latency.mean());
        assert!(fooled.fast == 0.0);
        for kind in [OperationKind::Read, OperationKind::Write] {
            let row = cell(kind, Faulty::Proposer);
            let timeout = 30.0;
            assert!(row.latency.mean() > timeout + 2.0 * 14.0 && row.signs >= 4.0, "{row:?}");
        }
    }

    /// A cell with a faulty leader: a row of writes, the first of which meets that leader.
    fn led_by(name: &str) -> Row {
        led(Faulty::Leader(Leader::from_name(name, 1).unwrap(), 0))
    }

    fn led(faulty: Faulty) -> Row {
        let mut cell = SmrCell::new(1, OperationKind::Write, Model::sim2006(0));
        (cell.load.operations, cell.load.warm_up, cell.load.think, cell.load.readers) = (10, 0, 20_000, 1);
        cell.faulty = faulty;
        let row = cell.run().unwrap();
        assert_eq!(row.verdict, Ok(()), "{faulty:?}");
        row
    }

    /// `smr-leader-silent` and `smr-leader-equivocate`: the first write waits for the time-out of 30 ms and the signatures of a
    /// view change. The writes after it have a correct leader.
    #[test]
    fn a_leader_that_nothing_commits_under_is_replaced() {
        for name in ["leader-silent", "leader-equivocate"] {
            let row = led_by(name);
            let (most, median) = (row.latency.percentile(100.0), row.latency.percentile(50.0));
            assert!(most > 30.0 + 2.0 * 14.0 && median < 10.0 && row.signs > 0.0, "{name}: {row:?}");
        }
    }

    /// `smr-leader-delay`: a leader below the time-out keeps its office, and each write takes nine tenths of it.
    #[test]
    fn a_leader_that_takes_its_time_costs_the_time() {
        let row = led_by("leader-delay");
        assert!(row.latency.percentile(50.0) > 27.0, "{row:?}");
    }

    /// `smr-leader-exclude` (R4): the excluded replica gets what was committed from the others, so the client gets q replies.
    #[test]
    fn what_a_leader_withholds_from_some_reaches_them() {
        let plain = led(Faulty::Nobody);
        for name in ["leader-exclude", "leader-exclude:1"] {
            let row = led_by(name);
            let (least, most) = (row.latency.percentile(1.0), row.latency.percentile(100.0));
            assert!(most < 10.0 && row.signs == 0.0, "without a view change: {name}: {row:?}");
            assert!(least > plain.latency.percentile(100.0), "a step more: {name}: {row:?} {plain:?}");
        }
        let row = led_by("leader-exclude:1,2,3");
        assert!(row.latency.percentile(100.0) > 30.0, "it proposes to nobody, and is replaced: {row:?}");
        led_by("leader-exclude:2,3");
        for name in ["leader-exclude:0", "leader-exclude:4", "leader-exclude:1,1", "leader-late"] {
            assert_eq!(Leader::from_name(name, 1), None, "{name}");
        }
    }

    /// With the other rule, one liar costs no order.
    #[test]
    fn a_read_by_the_first_quorum_survives_a_liar() {
        let mut cell = SmrCell::new(1, OperationKind::Read, Model::sim2006(0));
        (cell.load.operations, cell.load.warm_up, cell.faulty) = (5, 0, Faulty::Acceptors(1));
        cell.rule = ReadRule::FirstQuorum;
        let row = cell.run().unwrap();
        assert!(row.fast > 99.0 && row.latency.mean() < 3.0, "{row:?}");
    }

    /// Concurrent readers and a writer, at f = 2: the history is atomic, and reads are ordered when writes disturb them.
    #[test]
    fn concurrent_operations_are_atomic() {
        let mut cell = SmrCell::new(2, OperationKind::Read, Model::sim2006(30));
        (cell.load.operations, cell.load.warm_up, cell.load.readers, cell.load.writer) = (60, 5, 2, true);
        cell.load.think = 500;
        let row = cell.run().unwrap();
        assert_eq!(row.verdict, Ok(()));
        assert!(row.signs == 0.0, "no view changes, and no keys of replicas");
        assert!(row.operations > 120 && row.fast > 5.0 && row.fast < 100.0, "{row:?}");
    }
}

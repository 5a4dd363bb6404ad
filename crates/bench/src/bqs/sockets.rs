//! Cells on real sockets (§9, §11.3 of the pages in `docs/quorum`): each process is a thread with connections of its own on loopback
//! TCP or behind a link (`hosts.rs`), and emulates a machine of 2006, or works as fast as this machine does. The processes, liars, settings and
//! checkers are those of the simulator.

pub(super) mod clock;
pub mod hosts;
mod mesh;
mod register;
mod replication;
pub(super) mod rsa;
mod station;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use quorate_quorum::{Past, ServerId};
use quorate_quorum_sim::cell::{Cell, Load, Row};
use quorate_quorum_sim::checker;
use quorate_quorum_sim::guest;
use quorate_quorum_sim::history::{History, OperationKind};
use quorate_quorum_sim::keys::{Jobs, Keys};
use quorate_quorum_sim::lab::Traffic;
use quorate_quorum_sim::profile::Group;
use quorate_quorum_sim::rng::Rng;
use quorate_quorum_sim::stats::Samples;
use quorate_wire::{ClientId, Principal};

use self::clock::{Clock, Lateness, Machine, Prices};
use self::hosts::Hosts;
use self::register::{Parts, Register};
use self::replication::Replication;
use self::rsa::Long;
use self::station::{Berth, Job, Resident, Seen, Shared, Station};
use super::smr::start::Started;
use super::smr::{Faulty, SmrCell};
use crate::cable::Cable;
use crate::signatures::Signatures;

/// No operation takes longer.
const HUNG: Duration = Duration::from_secs(60);
/// Nobody has sent anything for this long: what was under way has ended.
const QUIET: Duration = Duration::from_millis(40);

/// Returns what jobs cost beyond what they take.
fn prices(of: Signatures) -> Prices {
    if of == Signatures::Emulated { Prices::OF_2006 } else { Prices::default() }
}

fn keys(of: Signatures, all: &[Principal], rng: &mut Rng) -> (Keys, Option<Long>) {
    match of {
        Signatures::Emulated => (Keys::toy(all.iter().copied(), rng), None),
        Signatures::Ed25519 => (Keys::ed25519(all.iter().copied(), rng), None),
        Signatures::Rsa(bits) => {
            let long = Long::new(bits);
            (Keys::Scheme(Box::new(long.clone())), Some(long))
        }
    }
}

/// What a cell on sockets measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// As in a simulation; latencies are in milliseconds.
    pub row: Row,
    /// How late emulated jobs ended, in microseconds: the mean and the 99th percentile. None: nothing is emulated.
    pub late_us: Option<(f64, f64)>,
}

/// A process before the cell begins: who it is, if it is a client, and its machine.
struct Seat {
    resident: Box<dyn Resident>,
    me: Option<ClientId>,
    machine: usize,
}

/// The processes of a cell, servers first, and what clients do.
struct Plan {
    cable: Option<Cable>,
    seats: Vec<Seat>,
    servers: usize,
    prices: Prices,
    /// Who writes a value before anybody lies.
    first: Option<usize>,
    jobs: Vec<(usize, Job)>,
    measured: usize,
    warm_up: usize,
    operations: usize,
}

/// Returns the client's place on the machines, by its number: the measured one has place 0.
fn place(kind: OperationKind, number: usize) -> usize {
    match (kind, number) {
        (OperationKind::Read, 0) => 1,
        (OperationKind::Read, 1) => 0,
        (_, number) => number,
    }
}

/// Returns the jobs of clients, of which number 0 writes, and which one is measured.
fn jobs(load: &Load, clients: usize) -> (Vec<(usize, Job)>, usize) {
    let think = load.think * 1000;
    let measured = usize::from(load.kind == OperationKind::Read);
    let mut jobs = Vec::new();
    for number in 0..clients {
        let endless = |kind, delay| Job { kind, operations: 0, think, delay };
        let job = if number == measured {
            Job { operations: load.operations + load.warm_up, ..endless(load.kind, 0) }
        } else if number > measured {
            endless(OperationKind::Read, u64::try_from(number).unwrap_or(0) * 140_000)
        } else if load.writer {
            endless(OperationKind::Write, 0)
        } else {
            continue;
        };
        jobs.push((number, job));
    }
    (jobs, measured)
}

/// Measures a register.
///
/// # Errors
///
/// The cell makes no sense, the sockets or the links failed, or an operation did not end.
pub fn register(cell: &Cell, signatures: Signatures, cable: Option<Cable>) -> Result<Measured> {
    let settings = Arc::new(cell.settings().map_err(|says| anyhow!(says))?);
    let load = &cell.load;
    let servers = settings.thresholds.servers().count();
    let clients = usize::from(load.readers) + 1 + usize::from(load.kind == OperationKind::Read);
    let mut names: Vec<Principal> = settings.thresholds.servers().map(Into::into).collect();
    names.extend((servers..servers + clients).map(|at| Principal::from(register::client(at))));
    let places: BTreeMap<u64, usize> =
        names.iter().enumerate().map(|(at, name)| (name.to_wire(), at)).collect();
    let (names, places) = (Arc::new(names), Arc::new(places));
    let liars = usize::from(cell.faulty);
    let group = Group { liars: (0..liars).map(ServerId::at).collect(), ..Group::default() };
    let group = Arc::new(Mutex::new(group));
    let mut seats = Vec::new();
    for (at, me) in names.iter().copied().enumerate() {
        // The same seed everywhere: all have the same keys, and each signs as itself.
        let (keys, long) = keys(signatures, &names, &mut Rng::new(load.seed, 7));
        if let Some(long) = &long {
            long.prepare(names.iter().copied());
        }
        let process = match me {
            Principal::Replica(id) => guest::server(cell.guest, id, &settings, Past::Whole),
            Principal::Client(id) => guest::client(cell.guest, id, &settings),
        };
        let resident = Register::new(Parts {
            me,
            process,
            lies: (at < liars).then(|| cell.behave()),
            settings: Arc::clone(&settings),
            keys,
            long,
            group: Arc::clone(&group),
            rng: Rng::new(load.seed, 100 + u64::try_from(at)?),
            places: Arc::clone(&places),
            names: Arc::clone(&names),
        });
        let (me, machine) = match me {
            Principal::Replica(_) => (None, load.placement.of_server(at)),
            Principal::Client(id) => {
                (Some(id), load.placement.of_client(place(load.kind, at - servers), servers))
            }
        };
        seats.push(Seat { resident: Box::new(resident), me, machine });
    }
    let (jobs, measured) = jobs(load, clients);
    Plan {
        cable,
        seats,
        servers,
        prices: prices(signatures),
        first: Some(servers),
        jobs: jobs.into_iter().map(|(number, job)| (servers + number, job)).collect(),
        measured: servers + measured,
        warm_up: load.warm_up,
        operations: load.operations,
    }
    .run()
}

/// Measures replication, whose signatures have the price of 2006.
///
/// # Errors
///
/// The cell makes no sense, the sockets or the links failed, or an operation did not end.
pub fn replication(cell: &SmrCell, cable: Option<Cable>) -> Result<Measured> {
    if cell.faulty != Faulty::Proposer {
        return replicated(cell, cell.load.seed, cable);
    }
    // Each operation is the first one of a new cluster, so that each begins with this leader.
    let mut all = Vec::new();
    for count in 0..cell.load.operations {
        let mut one = cell.clone();
        (one.load.operations, one.load.warm_up) = (1, 0);
        all.push(replicated(&one, cell.load.seed.wrapping_add(u64::try_from(count)? << 20), cable)?);
    }
    let rows: Vec<Row> = all.iter().map(|one| one.row.clone()).collect();
    let late = all.iter().filter_map(|one| one.late_us).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
    Ok(Measured { row: super::smr::merge(&rows)?, late_us: late })
}

fn replicated(cell: &SmrCell, seed: u64, cable: Option<Cable>) -> Result<Measured> {
    let load = &cell.load;
    let Started { hosts, .. } = Started::new(cell, seed, |replica, _, _| replica)?;
    let servers = usize::from(3 * load.f + 1);
    // Without a writer beside a measured reader, nobody is client 0.
    let clients =
        if load.kind == OperationKind::Write { 1 + usize::from(load.readers) } else { hosts.len() - servers };
    let mut seats = Vec::new();
    for (at, host) in hosts.into_iter().enumerate().take(servers + clients) {
        let (me, machine) = match at.checked_sub(servers) {
            None => (None, load.placement.of_server(at)),
            Some(number) => {
                let me = ClientId::new(u64::try_from(number)? + 1, 0);
                (Some(me), load.placement.of_client(place(load.kind, number), servers))
            }
        };
        seats.push(Seat { resident: Box::new(Replication::new(at, host)), me, machine });
    }
    let (jobs, measured) = jobs(load, clients);
    Plan {
        cable,
        seats,
        servers,
        prices: Prices::OF_2006,
        first: None,
        jobs: jobs.into_iter().map(|(number, job)| (servers + number, job)).collect(),
        measured: servers + measured,
        warm_up: load.warm_up,
        operations: load.operations,
    }
    .run()
}

/// The threads of a cell.
struct Running {
    shared: Arc<Shared>,
    orders: Vec<Sender<Job>>,
    told: Receiver<()>,
    threads: Vec<JoinHandle<std::io::Result<(Seen, mesh::Ends)>>>,
    _hosts: Option<Hosts>,
}

impl Running {
    /// Waits until the client with a last operation has ended it.
    fn wait(&self, operations: usize) -> Result<()> {
        let at_most = HUNG + Duration::from_secs(1) * u32::try_from(operations)?;
        match self.told.recv_timeout(at_most) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Timeout) => bail!("the measured client hangs"),
            Err(RecvTimeoutError::Disconnected) => bail!("a process has ended"),
        }
    }

    fn order(&self, to: usize, job: Job) {
        if let Some(order) = self.orders.get(to) {
            let _ = order.send(job);
        }
    }

    /// Waits until nobody sends anything any more, and forgets what was counted.
    fn settle(&self) -> Result<()> {
        let (mut last, mut since) = (u64::MAX, Instant::now());
        let begin = Instant::now();
        while since.elapsed() < QUIET {
            let now = self.shared.messages.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            ensure!(begin.elapsed() < HUNG, "the processes do not come to rest");
            std::thread::sleep(Duration::from_millis(1));
        }
        let Shared { messages, bytes, signs, verifies, .. } = &*self.shared;
        for count in [messages, bytes, signs, verifies] {
            count.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn end(self) -> Result<Vec<Seen>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        // No connection is closed before all have ended: a process that still sends would find it reset.
        let ended: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        let all = ended.into_iter().map(|ended| {
            let seen = ended.map_err(|_| anyhow!("a process has failed"))?;
            seen.map(|(seen, _)| seen).context("the sockets have failed")
        });
        all.collect()
    }
}

impl Plan {
    fn start(&mut self) -> Result<Running> {
        let shared = Arc::new(Shared::default());
        let (tell, told) = channel();
        let (clock, prices) = (Clock::new(), self.prices);
        let mut machines: BTreeMap<usize, Arc<Machine>> = BTreeMap::new();
        let at: Vec<usize> = self.seats.iter().map(|seat| seat.machine).collect();
        let count = at.iter().max().map_or(0, |last| last + 1);
        let hosts = self.cable.map(|cable| Hosts::new(count, cable)).transpose()?;
        let ends = mesh::connect(self.servers, &at, hosts.as_ref())?;
        let (mut orders, mut threads) = (Vec::new(), Vec::new());
        for ((number, seat), ends) in (0..).zip(self.seats.drain(..)).zip(ends) {
            let (order, jobs) = channel();
            let station = Station::new(Berth {
                resident: seat.resident,
                me: seat.me,
                ends,
                machine: Arc::clone(machines.entry(seat.machine).or_default()),
                prices,
                clock,
                shared: Arc::clone(&shared),
                jobs,
                tell: tell.clone(),
                rng: Rng::new(1, 700 + number),
            });
            orders.push(order);
            threads.push(std::thread::spawn(move || station.run()));
        }
        Ok(Running { shared, orders, told, threads, _hosts: hosts })
    }

    fn run(mut self) -> Result<Measured> {
        let running = self.start()?;
        let (before, warm_up) = (self.measure(&running), self.warm_up);
        let counts = [
            &running.shared.messages,
            &running.shared.bytes,
            &running.shared.signs,
            &running.shared.verifies,
        ];
        let [messages, bytes, signs, verifies] = counts.map(|count| count.load(Ordering::Relaxed));
        let mut all = running.end()?;
        let before = before?;
        let samples = all.get(self.measured).context("nobody was measured")?.samples.clone();
        let late: Vec<u32> = all.iter_mut().flat_map(|seen| std::mem::take(&mut seen.late).0).collect();
        let mut operations: Vec<_> = all.into_iter().flat_map(|seen| seen.operations).collect();
        operations.sort_by_key(|one| one.invoked);
        let done = operations.iter().filter(|one| one.invoked >= before && one.responded.is_some()).count();
        let history = History { operations, ..History::default() };
        let traffic = Traffic { messages, bytes, jobs: Jobs { signs, verifies } };
        let row = Row::of(samples.get(warm_up..).unwrap_or(&[]), traffic, done, checker::check(&history));
        Ok(Measured { row, late_us: error_of(Lateness(late)) })
    }

    /// Returns the number of the first event that counts.
    fn measure(&self, running: &Running) -> Result<u64> {
        if let Some(first) = self.first {
            running.order(first, Job { kind: OperationKind::Write, operations: 1, think: 0, delay: 0 });
            running.wait(1)?;
        }
        running.settle()?;
        running.shared.lying.store(true, Ordering::Relaxed);
        // Every process looks up from its nap.
        while running.shared.aware.load(Ordering::Relaxed) < running.threads.len() as u64 {
            ensure!(running.threads.iter().all(|thread| !thread.is_finished()), "a process has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = running.shared.next();
        for (client, job) in &self.jobs {
            running.order(*client, *job);
        }
        running.wait(self.operations)?;
        Ok(before)
    }
}

fn error_of(Lateness(late): Lateness) -> Option<(f64, f64)> {
    if late.is_empty() {
        return None;
    }
    let late = Samples::new(late.into_iter().map(|ns| f64::from(ns) / 1000.0).collect());
    Some((late.mean(), late.percentile(99.0)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test may panic, and counts are exact")]
mod tests {
    use quorate_quorum::Protocol;
    use quorate_quorum::settings::Variant;
    use quorate_quorum_sim::model::Model;

    use super::*;

    const OPTIMIZED: Protocol = Protocol::BftBc(Variant::Optimized);

    fn cell(protocol: Protocol, kind: OperationKind, operations: usize) -> Cell {
        let mut cell = Cell::new(protocol, 1, kind, Model::sim2006(0));
        (cell.load.operations, cell.load.warm_up, cell.load.think) = (operations, 1, 2000);
        cell
    }

    /// What each protocol sends and signs is what it sends and signs in the simulator, and nothing is faster than an
    /// emulated machine allows.
    #[test]
    fn messages_and_signatures_are_those_of_the_simulator() {
        for protocol in [Protocol::MinimalC, Protocol::Phalanx, Protocol::MinimalF, OPTIMIZED] {
            for kind in [OperationKind::Read, OperationKind::Write] {
                let mut cell = cell(protocol, kind, 4);
                cell.load.think = 40_000;
                let (there, here) =
                    (cell.run().unwrap(), register(&cell, Signatures::Emulated, None).unwrap());
                assert_eq!(here.row.verdict, Ok(()));
                let near = |a: f64, b: f64| (a - b).abs() <= 0.35 * b.max(1.0);
                let name = protocol.name();
                assert!(near(here.row.messages, there.messages), "{name} {kind:?}: {here:?} {there:?}");
                assert!(near(here.row.signs, there.signs), "{name} {kind:?}: {here:?} {there:?}");
                // The wire of the simulator is as long as 0.1 ms; the MACs of the sockets cost 0.02 ms.
                let least = there.latency.percentile(0.0) - 0.1 * 6.0;
                assert!(here.row.latency.percentile(0.0) >= least, "{name} {kind:?}: {here:?} {there:?}");
                assert!(here.late_us.is_some());
            }
        }
    }

    /// With a liar, readers and a writer on the paper's five machines; with RSA, whose signatures make messages longer.
    #[test]
    fn cells_with_liars_are_atomic_with_every_signature() {
        let mut bytes = Vec::new();
        for signatures in [Signatures::Ed25519, Signatures::Rsa(1024)] {
            for protocol in [Protocol::MinimalC, Protocol::Phalanx, Protocol::MinimalF, OPTIMIZED] {
                let mut cell = cell(protocol, OperationKind::Read, 10);
                (cell.faulty, cell.load.readers, cell.load.writer) = (1, 1, true);
                cell.load.placement = quorate_quorum_sim::placement::Placement::Five;
                let measured = register(&cell, signatures, None).unwrap();
                assert_eq!(measured.row.verdict, Ok(()), "{}", protocol.name());
                assert!(measured.late_us.is_none() && measured.row.latency.len() == 10);
                if protocol == OPTIMIZED {
                    bytes.push(measured.row.bytes);
                }
            }
        }
        assert!(bytes[1] > bytes[0] + 128.0, "{bytes:?}");
    }

    #[test]
    fn replication_runs_on_sockets() {
        for (faulty, kind) in [
            (Faulty::Nobody, OperationKind::Write),
            (Faulty::Acceptors(1), OperationKind::Read),
            (Faulty::Proposer, OperationKind::Write),
        ] {
            let mut cell = SmrCell::new(1, kind, Model::sim2006(0));
            (cell.load.operations, cell.load.warm_up, cell.faulty) = (3, 1, faulty);
            let Measured { row, .. } = replication(&cell, None).unwrap();
            assert_eq!(row.verdict, Ok(()));
            let mean = row.latency.mean();
            assert!(mean > 4.0 && (faulty == Faulty::Proposer) == (mean > 40.0), "{faulty:?} {mean}");
        }
    }
}

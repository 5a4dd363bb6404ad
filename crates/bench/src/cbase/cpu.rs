//! `cbase-cpu`: operations that compute, on one executor without agreement, by the number of workers.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use quorate_service::parallel::{
    Answer, Done, EngineKind, Job, KeyRules, Question, Questions, Runs, ServicePart, Settled,
};
use quorate_service::{Access, Context, Executor, Options, Service, Stop, View};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, clients, curve, ops};
use crate::figures::{median, ratio};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-cpu",
    source: "of our own",
    about: "operations that compute for 1 ms, on one executor without agreement: sequential, and with 1, 2 and 4 workers",
    run,
    figures,
};

const SEQUENTIAL: &str = "sequential";
/// What two workers must do, in times of sequential execution.
const GAIN_MIN: f64 = 1.8;
/// Requests of a batch, each of another lane.
const LANES: u64 = 64;
/// Rounds of the digest that an operation computes: about a millisecond.
const ROUNDS: u32 = 8_000;

/// Computes, and keeps no state.
#[derive(Clone, Copy, Debug)]
struct Computes;

impl Service for Computes {
    fn is_read_only(&self, _operation: &[u8]) -> bool {
        false
    }

    fn access(&self, _operation: &[u8], keys: &mut Access) {
        keys.long();
    }

    fn cost(&self, _operation: &[u8], _page_bytes: usize) -> Option<u32> {
        Some(0)
    }

    fn execute(
        &self,
        _cx: Context,
        operation: &[u8],
        _state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let digest = (0..ROUNDS)
            .fold(*blake3::hash(operation).as_bytes(), |digest, _| *blake3::hash(&digest).as_bytes());
        out.extend_from_slice(&digest);
        Ok(())
    }
}

fn executor(domains: &Domains) -> Executor<Computes> {
    let lanes = u32::try_from(LANES).unwrap_or(u32::MAX);
    let options = Options { clients_max: 2 * lanes, lanes_max: 2 * lanes, ..Options::default() };
    Executor::new(Computes, domains.clone(), options)
}

/// Returns batches with a request of each lane.
fn batches(domains: &Domains, count: u64) -> Vec<Batch> {
    let batch = |seq: u64| {
        let mut batch = Batch::default();
        for lane in 0..LANES {
            let client = ClientId::new(lane + 1, 0);
            let operation = [seq.to_le_bytes(), lane.to_le_bytes()].concat();
            batch.push_operation(domains, client, Timestamp(seq), &operation);
        }
        batch.seal(domains, &seq.to_le_bytes());
        batch
    };
    (1..=count).map(batch).collect()
}

/// Returns operations a second of sequential execution, and the root of the state.
fn sequential(domains: &Domains, batches: &[Batch]) -> Result<(f64, quorate_wire::Digest)> {
    let (mut executor, mut replies) = (executor(domains), Replies::new());
    let mut began = Instant::now();
    for (seq, batch) in (1..).zip(batches) {
        if seq == 2 {
            began = Instant::now(); // the first batch opens the lanes
        }
        executor
            .execute(SeqNum(seq), batch, false, &mut replies)
            .map_err(|_| anyhow!("a page is missing"))?;
        replies.clear();
    }
    finished(&mut executor, batches, began)
}

/// Returns the rate of all batches but the first, and the root.
fn finished(
    executor: &mut Executor<Computes>,
    batches: &[Batch],
    began: Instant,
) -> Result<(f64, quorate_wire::Digest)> {
    let rate = ratio((u64::try_from(batches.len())? - 1) * LANES, 1) / began.elapsed().as_secs_f64();
    Ok((rate, executor.checkpoint(SeqNum(u64::try_from(batches.len())?))))
}

/// What a worker says.
enum Word {
    Asks(Question, Sender<Option<Answer>>),
    Ran(Done),
}

#[derive(Debug)]
struct Way(Sender<Word>);

impl Questions for Way {
    fn ask(&self, question: Question) -> Option<Answer> {
        let (to, from) = mpsc::channel();
        self.0.send(Word::Asks(question, to)).ok()?;
        from.recv().ok()?
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, place: ServicePart, way: &Way) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let _ = way.0.send(Word::Ran(job.run(&Computes, &place, way)));
    }
}

/// Returns operations a second with workers, and the root of the state.
fn parallel(domains: &Domains, batches: &[Batch], workers: usize) -> Result<(f64, quorate_wire::Digest)> {
    let mut executor = executor(domains);
    let mut runs = Runs::new(EngineKind::GroupIndex, KeyRules::new(Computes), 7, true)
        .map_err(|error| anyhow!("{error}"))?;
    let ((give, jobs), (to, from)) = (mpsc::channel::<Job>(), mpsc::channel::<Word>());
    let (jobs, place) = (Arc::new(Mutex::new(jobs)), executor.service_part());
    for _ in 0..workers {
        let (jobs, way) = (Arc::clone(&jobs), Way(to.clone()));
        thread::spawn(move || work(&jobs, place, &way));
    }
    let (mut left, mut busy, mut replies) = ((1..).zip(batches), 0, Replies::new());
    let mut began = Instant::now();
    while executor.last_executed().0 < u64::try_from(batches.len())? {
        let is_first = executor.last_executed().0 == 0;
        if runs.parallelizer().is_empty() || !is_first && runs.parallelizer().len() < 1024 {
            for (seq, batch) in left.by_ref().take(1) {
                runs.insert(&mut executor, SeqNum(seq), batch).map_err(|_| anyhow!("no room"))?;
            }
        }
        // As in a node, each worker has one job that waits for it.
        while busy < 2 * workers
            && let Some(job) = runs.start(&mut executor)
        {
            give.send(job)?;
            busy += 1;
        }
        match runs.settle(&mut executor, &mut replies).map_err(|_| anyhow!("a page is missing"))? {
            Some(Settled::Batch(seq)) => {
                replies.clear();
                if seq == SeqNum(1) {
                    began = Instant::now();
                }
            }
            Some(Settled::Request(_)) => {}
            None => match from.recv().context("all workers are gone")? {
                Word::Asks(question, to) => _ = to.send(runs.answer(&executor, &question)),
                Word::Ran(done) => {
                    busy -= 1;
                    runs.finish(done);
                }
            },
        }
    }
    finished(&mut executor, batches, began)
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, count) = settings.effort.of((5, 24), (3, 8), (1, 2));
    let machine = Machine::look("none: the workers may run on all cores".to_owned());
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, machine);
    let domains = Domains::new(ClusterId([1; 32]));
    let batches = batches(&domains, count);
    let arms = [0_u32, 1, 2, 4];
    let mut samples = vec![Vec::new(); arms.len()];
    for _ in 0..repeats {
        let (rate, root) = sequential(&domains, &batches)?;
        samples[0].push(rate);
        for (workers, samples) in arms.iter().zip(&mut samples).skip(1) {
            let (rate, same) = parallel(&domains, &batches, usize::try_from(*workers)?)?;
            ensure!(root == same, "the state differs with {workers} workers");
            samples.push(rate);
        }
    }
    report.rows = arms.iter().zip(samples).map(|(workers, samples)| row(*workers, samples)).collect();
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "one executor without agreement; {count} batches of {LANES} operations, none of which depends on another; each \
         computes {ROUNDS} digests; the number of clients in the table is the number of workers"
    ));
    Ok(report)
}

fn row(workers: u32, samples: Vec<f64>) -> Row {
    let variant = match workers {
        0 => SEQUENTIAL.to_owned(),
        1 => "1 worker".to_owned(),
        _ => format!("{workers} workers"),
    };
    Row {
        system: "executor".to_owned(),
        variant,
        op: "compute".to_owned(),
        mode: "rw".to_owned(),
        clients: workers,
        repeats: samples.len(),
        ops_per_s: Some(median(&samples)),
        unit: "op/s".to_owned(),
        samples,
        ..Row::default()
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let rate = |variant: &str| super::peak(rows, variant);
    let (sequential, two) = (rate(SEQUENTIAL), rate("2 workers"));
    vec![Shape::new(
        "CP.1 two workers on two cores do 1.8 times sequential execution",
        two >= GAIN_MIN * sequential,
        format!("{two:.0} op/s, {sequential:.0} sequential: {:.2} times", two / sequential),
    )]
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let with_workers = rows.iter().filter(|row| row.variant != SEQUENTIAL);
    let figure = Figure::new(
        "workers",
        "Operations that compute, by workers",
        Axis::linear("workers"),
        Axis::linear("operations per second"),
    );
    let figure = figure.with(curve("workers", with_workers, clients, ops));
    vec![figure.caption("Medians; dots: repeats. One executor without agreement.")]
}

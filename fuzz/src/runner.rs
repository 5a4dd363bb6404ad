//! Runs a target on stable Rust: mutates a corpus, keeps what shows something new, and watches
//! time and memory. What libFuzzer learns from the compiler's coverage, it learns from the features
//! that a target returns.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::mutate::{Random, mutate};
use crate::{Target, alloc};

/// The most inputs that are kept.
const CORPUS_MAX: usize = 4096;
/// How often progress is printed.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How often an input that took too long is run again: when the machine pauses, the pause counts as time of
/// the thread.
const TRIES: usize = 3;
/// How often the runner checks whether an execution has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Executions.
    pub executions: u64,
    /// Inputs kept because they showed something new.
    pub corpus: usize,
    /// The most memory that one execution took, in bytes.
    pub peak_bytes: usize,
    /// The longest execution, in processor time, so that the load of other processes does not count.
    pub longest: Duration,
}

/// An input that breaks the target's promise.
#[derive(Debug)]
pub struct Failure {
    /// How.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        write!(f, "  input ({} bytes): ", self.input.len())?;
        self.input.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Runs `target` for `duration`, telling `progress` now and then.
///
/// # Errors
///
/// The first input on which the target panics, takes too long or takes too much memory.
pub fn run(
    target: &Target,
    duration: Duration,
    seed: u64,
    mut progress: impl FnMut(&Report),
) -> Result<Report, Failure> {
    let mut random = Random::new(seed);
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    let mut features = HashSet::new();
    let mut report = Report::default();
    let hung = Watchdog::start(target);
    let begin = Instant::now();
    let mut told = begin;
    for input in (target.seeds)() {
        let feature = execute(target, &input, &hung, &mut report)?;
        if features.insert(feature) {
            corpus.push(input);
        }
    }
    if corpus.is_empty() {
        corpus.push(Vec::new());
    }
    let mut input = Vec::new();
    while begin.elapsed() < duration {
        for _ in 0..100 {
            input.clone_from(&corpus[random.below(corpus.len())]);
            let other = random.below(corpus.len());
            mutate(&mut input, &corpus[other], target.input_bytes_max, &mut random);
            let feature = execute(target, &input, &hung, &mut report)?;
            if features.len() < CORPUS_MAX && features.insert(feature) {
                corpus.push(input.clone());
            }
        }
        report.corpus = corpus.len();
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            progress(&report);
        }
    }
    Ok(report)
}

/// Runs `target` once on `input`.
///
/// # Errors
///
/// The input breaks the target's promise.
pub fn run_once(target: &Target, input: &[u8]) -> Result<Report, Failure> {
    let mut report = Report::default();
    execute(target, input, &Watchdog::start(target), &mut report)?;
    Ok(report)
}

fn execute(target: &Target, input: &[u8], hung: &Watchdog, report: &mut Report) -> Result<u64, Failure> {
    let fail = |what: String| Failure { what, input: input.to_vec() };
    hung.begin(input);
    let before = alloc::begin();
    let limit = Duration::from_millis(target.millis_max);
    let (outcome, mut took) = timed(target, input);
    let peak = alloc::peak().saturating_sub(before);
    for _ in 1..TRIES {
        if took > limit && outcome.is_some() {
            took = took.min(timed(target, input).1);
        }
    }
    hung.end();
    report.executions += 1;
    report.peak_bytes = report.peak_bytes.max(peak);
    report.longest = report.longest.max(took);
    let Some(feature) = outcome else { return Err(fail(format!("{}: panicked, see above", target.name))) };
    if peak > target.memory_bytes_max {
        let says = format!(
            "{}: took {peak} bytes at its peak, {} are the most",
            target.name, target.memory_bytes_max
        );
        return Err(fail(says));
    }
    if took > limit {
        let says =
            format!("{}: took {} ms, {} are the most", target.name, took.as_millis(), target.millis_max);
        return Err(fail(says));
    }
    Ok(feature)
}

/// Returns what an input comes to, none if it panics, and how long it takes.
fn timed(target: &Target, input: &[u8]) -> (Option<u64>, Duration) {
    let start = processor_time();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    (outcome.ok(), processor_time().saturating_sub(start))
}

/// Returns the processor time of this thread. One that waits instead is the watchdog's.
#[expect(clippy::expect_used, reason = "every Linux has this clock")]
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the clock of a thread").into()
}

/// How often it was looked since an execution began, and its input.
type Running = Arc<Mutex<Option<(u64, Vec<u8>)>>>;

/// Ends the process if an execution does not end: a hang cannot be caught in its own thread.
struct Watchdog {
    running: Running,
}

impl Watchdog {
    fn start(target: &Target) -> Self {
        let running = Running::default();
        let watched = Arc::downgrade(&running);
        let limit = Duration::from_millis(target.millis_max) * 20;
        // Looks are counted and not the time between them: a machine that stands still looks as rarely as it works.
        let looks_max = u64::try_from(limit.as_millis() / LOOK_EVERY.as_millis()).unwrap_or(u64::MAX);
        let name = target.name;
        std::thread::spawn(move || {
            while let Some(running) = watched.upgrade() {
                if let Ok(mut guard) = running.lock()
                    && let Some((looks, input)) = guard.as_mut()
                {
                    *looks += 1;
                    if *looks > looks_max {
                        let what = format!("{name}: has not ended after {} s", limit.as_secs());
                        eprintln!("FAILED {}", Failure { what, input: input.clone() });
                        std::process::exit(1);
                    }
                }
                drop(running);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Self { running }
    }

    fn begin(&self, input: &[u8]) {
        if let Ok(mut running) = self.running.lock() {
            match running.as_mut() {
                Some((looks, kept)) => {
                    *looks = 0;
                    kept.clear();
                    kept.extend_from_slice(input);
                }
                None => *running = Some((0, input.to_vec())),
            }
        }
    }

    fn end(&self) {
        if let Ok(mut running) = self.running.lock()
            && let Some((looks, _)) = running.as_mut()
        {
            // Nothing runs: as if it had just begun.
            *looks = 0;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn target(run: fn(&[u8]) -> u64) -> Target {
        Target {
            name: "test",
            run,
            seeds: || vec![vec![0; 4]],
            input_bytes_max: 100,
            memory_bytes_max: 1 << 20,
            millis_max: 100,
        }
    }

    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn a_panic_deep_in_a_format_is_found() {
        let deep = target(|input| match input {
            [b'q', b'u', ..] => panic!("found"),
            [b'q', ..] => 2,
            _ => 1,
        });
        let failure = run(&deep, Duration::from_secs(20), 1, |_| ()).unwrap_err();
        assert_eq!(failure.input[..2], *b"qu");
    }

    #[test]
    fn memory_above_the_bound_is_found() {
        let greedy = target(|_| u64::try_from(std::hint::black_box(vec![1_u8; 2 << 20]).len()).unwrap());
        assert!(run(&greedy, SHORT, 1, |_| ()).unwrap_err().what.contains("bytes at its peak"));
    }

    #[test]
    fn a_long_execution_is_found() {
        let slow = target(|_| {
            let end = processor_time() + Duration::from_millis(150);
            while processor_time() < end {}
            0
        });
        assert!(run(&slow, SHORT, 1, |_| ()).unwrap_err().what.contains("ms"));
    }

    #[test]
    fn an_execution_that_is_long_once_is_none() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let slow_once = target(|_| {
            let millis = if RUNS.fetch_add(1, Ordering::Relaxed) == 0 { 150 } else { 1 };
            let end = processor_time() + Duration::from_millis(millis);
            while processor_time() < end {}
            0
        });
        assert!(run_once(&slow_once, b"x").unwrap().longest < Duration::from_millis(100));
        assert_eq!(RUNS.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_busy_machine_is_no_long_execution() {
        let waits = target(|_| {
            std::thread::sleep(Duration::from_millis(150));
            0
        });
        assert!(run_once(&waits, b"x").unwrap().longest < Duration::from_millis(100));
    }

    #[test]
    fn a_sound_target_is_run_to_the_end() {
        let sound = target(|input| u64::try_from(input.len()).unwrap());
        let report = run(&sound, SHORT, 1, |_| ()).unwrap();
        assert!(report.executions > 1000 && report.corpus > 10, "{report:?}");
        assert!(run_once(&sound, b"x").is_ok());
    }
}

//! Real processes for a long time: nothing grows (memory, descriptors, files), and idle costs next to nothing.
//!
//! Some seconds here; `QUORATE_SOAK_MINUTES=30 cargo test --release -p quorate-cli --test soak -- --nocapture` for long,
//! or `cargo xtask soak --processes --minutes 30`. `QUORATE_IDLE_SECONDS=30` measures idleness for longer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quorate_node::Caller;
use quorate_node::caller::CallerOptions;
use quorate_service::kv::{Answer, Operation};
use support::{Cluster, PATIENCE, own_address};

/// Operations in progress at a time.
const LANES: u16 = 8;
/// Keys, so that the state does not grow.
const KEYS: u64 = 500;
/// The growth that is allowed from the second to the last third, in addition to a twentieth: bytes of memory.
const MEMORY_SLACK: u64 = 8 << 20;
/// The same of descriptors.
const DESCRIPTORS_SLACK: u64 = 2;
/// The same of bytes in its directory: a log twice as long as it may become before the state is written out, and the
/// state.
const FILES_SLACK: u64 = 2 * LOG_BYTES + (1 << 20);
const LOG_BYTES: u64 = 1 << 20;

fn given(name: &str) -> Option<f64> {
    Some(std::env::var(name).ok()?.parse().unwrap())
}

/// What a replica takes at one time: bytes of memory, descriptors, bytes of files.
type Sample = [u64; 3];
const NAMES: [&str; 3] = ["memory (KiB)", "descriptors", "files (KiB)"];

fn sample(pid: u32, dir: &Path) -> Sample {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let memory: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    [memory * 1024, u64::try_from(descriptors).unwrap(), bytes_under(dir)]
}

fn bytes_under(dir: &Path) -> u64 {
    // Files go while one looks.
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_under(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// The largest of some samples, by what was sampled.
fn largest(samples: &[Sample]) -> Sample {
    std::array::from_fn(|what| samples.iter().map(|sample| sample[what]).max().unwrap())
}

/// Says what has grown: the first third is for warming up; what the last third has most of is hardly more than what
/// the second has.
fn grown(samples: &[Sample]) -> Option<String> {
    let third = samples.len() / 3;
    let (second, last) = (largest(&samples[third..2 * third]), largest(&samples[2 * third..]));
    let slack = [MEMORY_SLACK, DESCRIPTORS_SLACK, FILES_SLACK];
    let too_much = |what: &usize| last[*what] > second[*what] + second[*what] / 20 + slack[*what];
    let what = (0..3).find(too_much)?;
    Some(format!("{}: {} before, {} after", NAMES[what], second[what], last[what]))
}

#[test]
fn growth_is_noticed_and_waves_are_none() {
    let waves: Vec<Sample> = (0..60).map(|i| [90 << 20, 20 + i % 2, (i % 7) << 19]).collect();
    assert_eq!(grown(&waves), None);
    for (what, each) in [(0, 2 << 20), (1, 1), (2, 1 << 18)] {
        let mut growing = waves.clone();
        (0..).zip(&mut growing).for_each(|(i, sample)| sample[what] += i * each);
        assert!(grown(&growing).unwrap().starts_with(NAMES[what]));
    }
}

/// Has operations done until `stop`, `rate` a second in all, or as many as go. Returns how many.
fn load(caller: &Caller, rate: Option<f64>, stop: &AtomicBool) -> u64 {
    let (begin, tickets, done) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let ticket = tickets.fetch_add(1, Ordering::Relaxed);
                    if let Some(rate) = rate {
                        let due = begin + Duration::from_secs_f64(ticket as f64 / rate);
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                    let key = format!("key-{}", ticket.wrapping_mul(0x9e37_79b9) % KEYS);
                    let mut bytes = Vec::new();
                    let value = [b'v'; 200];
                    let read = ticket % 4 == 0;
                    let operation = if read {
                        Operation::Get { key: key.as_bytes() }
                    } else {
                        Operation::Put { key: key.as_bytes(), value: &value }
                    };
                    operation.encode(&mut bytes);
                    let answer = caller.call(&bytes, read).unwrap();
                    assert!(!matches!(Answer::decode(&answer), Ok(Answer::Failed(_)) | Err(_)));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.into_inner()
}

fn load_for(
    caller: &Caller,
    rate: Option<f64>,
    time: Duration,
    mut each: impl FnMut(),
    every: Duration,
) -> f64 {
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    let done = std::thread::scope(|scope| {
        let load = scope.spawn(|| load(caller, rate, &stop));
        while begin.elapsed() < time && !load.is_finished() {
            std::thread::sleep(every);
            each();
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    done as f64 / begin.elapsed().as_secs_f64()
}

/// Half of what the cluster can do, with everything on the disk before it is promised: nothing grows.
#[test]
fn nothing_grows() {
    let time = Duration::from_secs_f64(given("QUORATE_SOAK_MINUTES").map_or(20.0, |minutes| minutes * 60.0));
    let lines = "log_bytes_max = \"1MiB\"";
    let cluster = Cluster::start("soak", &[], lines);
    let dir = cluster.dir.path().join("c/client-0");
    let caller = Caller::open(&dir, CallerOptions { lanes: LANES, deadline: PATIENCE }).unwrap();
    let whole = load_for(&caller, None, Duration::from_secs(3), || {}, Duration::from_secs(3));
    let every = (time / 60).clamp(Duration::from_millis(250), Duration::from_secs(5));
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); 4];
    let take = || {
        for (i, (pid, samples)) in cluster.pids().into_iter().zip(&mut samples).enumerate() {
            samples.push(sample(pid, &cluster.replica_dir(i)));
        }
    };
    let half = load_for(&caller, Some(whole / 2.0), time, take, every);
    println!(
        "{whole:.0} operations a second at most; {half:.0} for {time:.0?}, {} samples",
        samples[0].len()
    );
    let mut trouble = Vec::new();
    for (i, samples) in samples.iter().enumerate() {
        let third = samples.len() / 3;
        for (what, name) in NAMES.iter().enumerate() {
            let shown = |sample: Sample| if what == 1 { sample[1] } else { sample[what] >> 10 };
            let thirds = [&samples[..third], &samples[third..2 * third], &samples[2 * third..]];
            let most = thirds.map(|third| shown(largest(third)));
            println!("replica {i} {name:14} most in each third: {most:?}");
        }
        trouble.extend(grown(samples).map(|what| format!("replica {i}: {what}")));
    }
    assert!(trouble.is_empty(), "{trouble:#?}");
}

/// Four replicas and a gateway that nobody uses: less than 2 % of a core, built for release. The bound here is generous:
/// the machine is shared, and builds for tests are slower.
#[test]
fn an_idle_cluster_and_its_door_sleep() {
    let seconds = given("QUORATE_IDLE_SECONDS").unwrap_or(5.0);
    let cluster = Cluster::start("idle-gateway", &[], "");
    let listen = format!("{}:6380", own_address());
    let mut door = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["resp", "--listen", &listen, "--dir", &cluster.dir.join("c/client-0")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pids: Vec<u32> = cluster.pids().into_iter().chain([door.id()]).collect();
    std::thread::sleep(Duration::from_secs(2));
    let ticks = || -> u64 {
        let of = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            // Behind the name: utime and stime are the fields 14 and 15 of the whole line.
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        };
        pids.iter().map(of).sum()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    // A tick is a hundredth of a second.
    let percent = (ticks() - before) as f64 / seconds;
    door.kill().unwrap();
    door.wait().unwrap();
    println!("an idle cluster and its gateway take {percent:.2} % of one core over {seconds} s");
    assert!(percent < 10.0, "{percent} % of a core");
}

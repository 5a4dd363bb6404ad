//! A large state: a wiped replica is back while the others go on; and a damaged disk, sector by sector, under
//! real processes.
//!
//! Some MiB here; `QUORATE_STATE_MIB=1024 cargo test --release -p quorate-cli --test processes a_wiped -- --nocapture`
//! for much. Few samples of damage here; `QUORATE_SAMPLES=200` for many.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quorate_node::{Clock, OpenClient};
use quorate_service::kv::{Answer, Operation};

use crate::hardships::recovers;
use crate::support::{Cluster, Load, PATIENCE, invoke, turn};

pub(crate) const VALUE: usize = 4000;
pub(crate) const LANES: u16 = 16;

pub(crate) fn number(name: &str, few: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(few)
}

/// A small generator of numbers that look random. Marsaglia's xorshift, 64 bits.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }
}

/// Stores values, as many lanes at a time as there are, while `next` names keys.
pub(crate) fn store(
    client: &mut OpenClient,
    clock: &Clock,
    mut next: impl FnMut() -> Option<u64>,
    done: &AtomicU64,
) {
    let put = |client: &mut OpenClient, lane: u16, key: u64| {
        let mut bytes = Vec::new();
        Operation::Put {
            key: format!("{key:012}").as_bytes(),
            value: &[u8::try_from(key % 251).unwrap(); VALUE],
        }
        .encode(&mut bytes);
        client.drive.invoke(clock.now(), lane, &bytes, false);
    };
    client.drive.clear_done();
    let mut outstanding = 0;
    for lane in 0..LANES {
        let Some(key) = next() else { break };
        put(client, lane, key);
        outstanding += 1;
    }
    let mut last = Instant::now();
    while outstanding > 0 {
        turn(client, clock);
        assert!(last.elapsed() < Duration::from_secs(120), "stuck: {:?}", client.drive.counters());
        let lanes: Vec<u16> = client.drive.done().iter().map(|done| done.lane).collect();
        for done in client.drive.done() {
            assert_eq!(Answer::decode(client.drive.result(done)), Ok(Answer::Done));
        }
        client.drive.clear_done();
        for lane in lanes {
            last = Instant::now();
            done.fetch_add(1, Ordering::Relaxed);
            match next() {
                Some(key) => put(client, lane, key),
                None => outstanding -= 1,
            }
        }
    }
}

/// A figure of a process, from its status: kilobytes.
pub(crate) fn status_kb(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

pub(crate) fn per_second(count: u64, time: Duration) -> u64 {
    count * 1000 / u64::try_from(time.as_millis()).unwrap().max(1)
}

/// Section 9: a replica without a disk gets everything while the others serve their clients, with the settings that everybody has.
#[test]
fn a_wiped_replica_is_back_while_the_others_go_on() {
    let mib = number("QUORATE_STATE_MIB", 8);
    let keys = mib * (1 << 20) / 4096;
    let mut cluster = Cluster::start("state", &[], "durability = \"memory\"");
    let (clock, mut client, done) = (Clock::new(), cluster.client(0, LANES), AtomicU64::new(0));
    let start = Instant::now();
    let mut all = 0..keys;
    store(&mut client, &clock, || all.next(), &done);
    println!(
        "filled: {mib} MiB, {keys} values of {VALUE} bytes, {} a second",
        per_second(keys, start.elapsed())
    );

    // The others go on with a sixteenth of the keys.
    let (stop, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, count) = (Arc::clone(&stop), Arc::clone(&counted));
    let load = std::thread::spawn(move || {
        let mut random = Random(7);
        let next = || (!stopped.load(Ordering::Relaxed)).then(|| random.below(keys / 16 + 1));
        store(&mut client, &Clock::new(), next, &count);
        client
    });
    let rate = || {
        let (start, already) = (Instant::now(), counted.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_secs(if mib > 64 { 15 } else { 2 }));
        per_second(counted.load(Ordering::Relaxed) - already, start.elapsed())
    };
    let before = rate();

    cluster.kill(3);
    for sub in ["log", "checkpoint"] {
        let _ = fs::remove_dir_all(cluster.replica_dir(3).join(sub));
    }
    let (start, already) = (Instant::now(), counted.load(Ordering::Relaxed));
    cluster.run(3);
    cluster.wait_long_for(3, "has rejoined", Duration::from_secs(600));
    let took = start.elapsed();
    let during = per_second(counted.load(Ordering::Relaxed) - already, took);
    let after = rate();
    stop.store(true, Ordering::Relaxed);
    let mut client = load.join().unwrap();
    let log = cluster.log(3);
    let brought = log.lines().rfind(|line| line.contains("has fetched the state")).unwrap_or("");
    println!("back after {:.1} s: {}", took.as_secs_f64(), brought.trim());
    let share = during * 200 / (before + after).max(1);
    println!("the others: {before} a second before, {during} during it, {after} after: {share} %");
    for pid in cluster.pids() {
        let mib = |name| status_kb(pid, name) >> 10;
        println!("process {pid}: {} MiB now, {} MiB at most", mib("VmRSS"), mib("VmHWM"));
    }
    // It is needed from here on: what it holds is what the others hold.
    cluster.kill(2);
    for key in (0..keys).step_by(usize::try_from(keys / 40 + 1).unwrap()) {
        let name = format!("{key:012}");
        let get = Operation::Get { key: name.as_bytes() };
        let expected = vec![u8::try_from(key % 251).unwrap(); VALUE];
        assert_eq!(Answer::decode(&invoke(&mut client, &clock, &get)), Ok(Answer::Value(&expected)), "{key}");
    }
}

/// What became of a damaged sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DamageOutcome {
    /// Nothing that counts was there, or there is another copy.
    Harmless,
    /// Pages of the state were damaged: they came from the others.
    PagesFetched,
    /// The log was damaged: it rejoined.
    Rejoined,
    /// A key or setting was damaged: it did not start, and said why.
    Refused,
    /// A setting was changed to another one that is allowed: what a file that people write cannot show.
    OtherSetting,
}

const SECTOR: usize = 512;

/// Damages a sector that holds something, of a file of the replica's. Returns the file and what it was.
fn damage(dir: &std::path::Path, random: &mut Random) -> (PathBuf, Vec<u8>) {
    // Most of the sectors are the log's and the state's; keys and settings get their share.
    let parts: &[&str] = [&["log"][..], &["checkpoint"], &["log"], &["checkpoint"], &["keys", "."]]
        [usize::try_from(random.below(5)).unwrap()];
    let mut files: Vec<PathBuf> = parts
        .iter()
        .flat_map(|part| fs::read_dir(dir.join(part)).unwrap().flatten().map(|entry| entry.path()))
        .filter(|path| path.is_file() && fs::metadata(path).unwrap().len() > 0)
        .filter(|path| {
            parts[0] != "keys" || path.extension().is_some_and(|end| end == "toml" || end == "key")
        })
        .collect();
    files.sort();
    let path = files.swap_remove(usize::try_from(random.below(u64::try_from(files.len()).unwrap())).unwrap());
    let good = fs::read(&path).unwrap();
    let sectors: Vec<usize> = (0..good.len())
        .step_by(SECTOR)
        .filter(|at| good[*at..].iter().take(SECTOR).any(|b| *b != 0))
        .collect();
    let mut bad = good.clone();
    if let Some(&at) =
        sectors.get(usize::try_from(random.below(u64::try_from(sectors.len()).unwrap().max(1))).unwrap())
    {
        let end = (at + SECTOR).min(good.len());
        match random.below(4) {
            0 => bad[at + usize::try_from(random.below(u64::try_from(end - at).unwrap())).unwrap()] ^= 0x40,
            1 => bad[at..end].fill(0),
            2 => bad[at + (end - at) / 2..end].fill(0),
            _ => {
                let other =
                    sectors[usize::try_from(random.below(u64::try_from(sectors.len()).unwrap())).unwrap()];
                let len = (end - at).min(good.len() - other);
                bad[at..at + len].copy_from_slice(&good[other..other + len]);
            }
        }
    }
    fs::write(&path, bad).unwrap();
    (path, good)
}

/// H3 to H5 on real processes: a sector of a replica's directory is damaged while it is down. It is noticed or
/// harmless, no client gets a wrong answer, and afterwards the replica is as good as the others: each time another
/// one goes, and the clients go on.
#[test]
fn a_damaged_sector_is_noticed_or_harmless() {
    let mut cluster = Cluster::start("sectors", &[], "log_bytes_max = \"1MiB\"");
    let mut load = Load::start(cluster.client(0, 8), vec![0; 8]);
    let (mut random, mut counts, start) =
        (Random(number("QUORATE_SEED", 5)), BTreeMap::new(), Instant::now());
    load.wait(2000);
    for sample in 0..usize::try_from(number("QUORATE_SAMPLES", 5)).unwrap() {
        let victim = sample % 4;
        load.wait(100);
        if sample % 2 == 0 {
            cluster.kill(victim);
        } else {
            cluster.stop(victim);
        }
        let (path, good) = damage(&cluster.replica_dir(victim), &mut random);
        let is_setting = !path.starts_with(cluster.replica_dir(victim).join("log"))
            && !path.starts_with(cluster.replica_dir(victim).join("checkpoint"));
        load.wait(300);
        let from = cluster.log(victim).len();
        cluster.run(victim);
        let runs = cluster.runs_or_ends(victim, from);
        let said = cluster.log(victim)[from..].to_owned();
        let outcome = if !runs {
            DamageOutcome::Refused
        } else if is_setting && fs::read(&path).unwrap() != good && !said.contains("state is lost") {
            DamageOutcome::OtherSetting
        } else if said.contains("state is lost") {
            DamageOutcome::Rejoined
        } else if said.contains("pages of the state on the disk")
            || said.contains("pages of the state that are on the disk")
        {
            DamageOutcome::PagesFetched
        } else {
            DamageOutcome::Harmless
        };
        if is_setting {
            // The operator restores the file.
            if runs {
                cluster.kill(victim);
            } else {
                cluster.forget(victim);
            }
            fs::write(&path, &good).unwrap();
            cluster.run(victim);
            assert!(cluster.runs_or_ends(victim, from + said.len()), "{}", cluster.log(victim));
        } else {
            assert!(runs, "{path:?}: {said}");
        }
        let again = cluster.log(victim)[from..].contains("state is lost");
        if again {
            cluster.wait_from(victim, from, "has rejoined");
        }
        if outcome == DamageOutcome::PagesFetched {
            // It fetches the state; or its own log still has every batch, and it executes them again.
            let data = cluster.dir.path().join("c");
            recovers(data.to_str().unwrap(), PATIENCE, "damaged pages");
        }
        *counts.entry(outcome).or_insert(0) += 1;
    }
    // The last one is needed too.
    load.wait(100);
    let (tally, client) = load.stop();
    load = Load::start(client, tally.acknowledged);
    load.wait(100);
    load.stop();
    println!("{counts:?} in {:.0} s", start.elapsed().as_secs_f64());
}

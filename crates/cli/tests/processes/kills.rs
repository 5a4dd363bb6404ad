//! The primary, or all replicas at once, are killed under load: how long nobody is served, and where the time goes.
//!
//! A few rounds here; for many:
//! `QUORATE_ROUNDS=50 cargo test --release -p quorate-cli --test processes kills:: -- --nocapture --test-threads 1`

use std::time::{Duration, SystemTime};

use crate::support::{Cluster, Gap, Load};

pub(crate) fn rounds(few: usize) -> usize {
    std::env::var("QUORATE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

/// One line of a replica's log: when, what, and of which view.
#[derive(Debug)]
struct Line {
    at_us: u64,
    what: What,
    view: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Suspects,
    Leaves,
    Enters,
}

const DAY_US: u64 = 24 * 3600 * 1_000_000;

fn us_of_day(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros()).unwrap() % DAY_US
}

/// Returns what a replica has said about views.
fn views(log: &str) -> Vec<Line> {
    let kinds = [
        ("suspects the primary", What::Suspects),
        ("started a view change", What::Leaves),
        ("entered the view", What::Enters),
    ];
    let line = |line: &str| {
        let (_, what) = kinds.iter().find(|(words, _)| line.contains(words))?;
        let view = line.split("view=").nth(1)?.split_whitespace().next()?.parse().ok()?;
        // 2026-01-31T12:34:56.123456Z
        let (hours, rest) = line.split_once('T')?.1.split_once(':')?;
        let (minutes, rest) = rest.split_once(':')?;
        let (seconds, rest) = rest.split_once('.')?;
        let number = |digits: &str| digits.parse::<u64>().ok();
        let whole = number(hours)? * 3600 + number(minutes)? * 60 + number(seconds)?;
        let at_us = whole * 1_000_000 + number(rest.get(..6)?)?;
        Some(Line { at_us, what: *what, view })
    };
    log.lines().filter_map(line).collect()
}

/// Returns the primary: of the newest view that f + 1 replicas have entered, once nobody has left that.
fn primary(cluster: &Cluster) -> usize {
    loop {
        let mut entered: Vec<u64> = Vec::new();
        let mut left = 0;
        for i in 0..4 {
            let lines = views(&cluster.log(i));
            let last = |what| lines.iter().filter(|l| l.what == what).map(|l| l.view).max().unwrap_or(0);
            entered.push(last(What::Enters));
            left = left.max(last(What::Leaves));
        }
        entered.sort_unstable();
        if entered[2] >= left {
            return usize::try_from(entered[2] % 4).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where the time of a gap went: what happened first after the one before, and how many milliseconds later.
fn phases(cluster: &Cluster, killed: usize, gap: &Gap) -> String {
    let (from, to) = (us_of_day(gap.from), us_of_day(gap.to));
    let lines: Vec<Line> = (0..4).filter(|i| *i != killed).flat_map(|i| views(&cluster.log(i))).collect();
    let inside = |l: &&Line| (from..=to).contains(&l.at_us);
    let first = |what| lines.iter().filter(inside).filter(|l| l.what == what).map(|l| l.at_us).min();
    let last = |what| lines.iter().filter(inside).filter(|l| l.what == what).map(|l| l.at_us).max();
    let steps = [
        ("asked again", gap.asked_again.map(us_of_day)),
        ("suspected", first(What::Suspects)),
        ("left", first(What::Leaves)),
        ("entered", first(What::Enters)),
        ("all entered", last(What::Enters)),
        ("served", Some(to)),
    ];
    let mut at = from;
    let mut said = Vec::new();
    for (name, when) in steps {
        if let Some(when) = when {
            let sign = if when < at { "-" } else { "+" };
            said.push(format!(
                "{name} {sign}{:.0}",
                Duration::from_micros(when.abs_diff(at)).as_secs_f64() * 1000.0
            ));
            at = when;
        }
    }
    let mut gone: Vec<u64> =
        lines.iter().filter(inside).filter(|l| l.what == What::Leaves).map(|l| l.view).collect();
    gone.sort_unstable();
    gone.dedup();
    format!("{}; views {gone:?}", said.join(", "))
}

fn summary(gaps: &mut [Duration]) -> String {
    gaps.sort_unstable();
    format!("median {:?}, maximum {:?}, of {}", gaps[gaps.len() / 2], gaps[gaps.len() - 1], gaps.len())
}

/// A primary that is killed is replaced, and comes back by itself.
#[test]
fn a_killed_primary_is_replaced_and_nothing_is_lost() {
    let mut cluster = Cluster::start("primary", &[], "");
    let mut acknowledged = vec![0; 8];
    let mut client = cluster.client(0, 8);
    let (mut before, mut gaps, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds(4) {
        let load = Load::start(client, acknowledged);
        load.wait(100);
        let started_at = SystemTime::now();
        load.wait(300);
        let primary = primary(&cluster);
        let killed_at = SystemTime::now();
        cluster.kill(primary);
        load.wait(300);
        let restarted_at = SystemTime::now();
        cluster.run(primary);
        load.wait(300);
        let (tally, back) = load.stop();
        (acknowledged, client) = (tally.acknowledged, back);
        let longest = |from: SystemTime, to: SystemTime| {
            tally.gaps.iter().filter(|gap| gap.to > from && gap.from < to).max_by_key(|gap| gap.length())
        };
        before.push(
            longest(started_at, killed_at)
                .filter(|gap| gap.to < killed_at)
                .map_or(Duration::ZERO, Gap::length),
        );
        let during = longest(killed_at, restarted_at);
        let after = longest(restarted_at, SystemTime::now());
        let length = |gap: Option<&Gap>| gap.map_or(Duration::ZERO, Gap::length);
        gaps.push(length(during));
        later.push(length(after));
        println!(
            "{round}: r{primary}, {:?}: {}; after its restart {:?}: {}",
            length(during),
            during.map_or(String::new(), |gap| phases(&cluster, primary, gap)),
            length(after),
            after.map_or(String::new(), |gap| phases(&cluster, 4, gap)),
        );
    }
    println!("undisturbed, before: {}", summary(&mut before));
    println!("without the primary: {}", summary(&mut gaps));
    println!("after its restart: {}", summary(&mut later));
    assert!(gaps[gaps.len() - 1] < Duration::from_secs(20), "{gaps:?}");
}

/// All replicas killed at once under load: everything acknowledged is there.
#[test]
fn after_the_power_went_everywhere_everything_acknowledged_is_there() {
    let mut cluster = Cluster::start("power", &[], "log_bytes_max = \"1MiB\"");
    let mut acknowledged = vec![0; 8];
    let mut client = cluster.client(0, 8);
    let mut gaps = Vec::new();
    for round in 0..rounds(3) {
        let load = Load::start(client, acknowledged);
        load.wait(400 + 137 * u64::try_from(round).unwrap());
        (0..4).for_each(|i| cluster.kill(i));
        (0..4).for_each(|i| cluster.run(i));
        load.wait(100);
        let (tally, back) = load.stop();
        gaps.push(tally.gaps.iter().map(Gap::length).max().unwrap_or_default());
        println!("{round}: {:?}, {} acknowledged", gaps[round], tally.acknowledged.iter().sum::<u64>());
        (acknowledged, client) = (tally.acknowledged, back);
    }
    println!("all killed: {}", summary(&mut gaps));
    (0..4).for_each(|i| assert!(!cluster.log(i).contains("state is lost"), "{}", cluster.log(i)));
}

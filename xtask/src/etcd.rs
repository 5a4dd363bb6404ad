//! `cargo xtask etcd`: durable writes on etcd and on quorate, with the same load generator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::ci::target;
use crate::servers::{Servers, free_port, listens, up};
use xtask::{cargo, read, root, run, run_and_read};

const VALUE_BYTES: &str = "256";
const CLIENTS: [u64; 3] = [1, 100, 400];
/// How long each number of clients is measured, in seconds.
const SECONDS: &str = "4";
const ROUNDS: usize = 3;
const MEMBERS: usize = 3;

/// A system, the protocol that the load generator uses with it, and what starts it on empty disks. The latter takes the
/// directory for the data and the program `quorate`, and returns the ports for clients.
type System = (&'static str, &'static str, fn(&Path, &Path) -> Result<(Servers, Vec<u16>)>);

const SYSTEMS: [System; 2] = [("etcd", "etcd", etcd_members), ("quorate", "redis", quorate_replicas)];

/// Measures etcd and quorate in turn, three times, and prints the medians. Needs etcd, Go, and a network for the first
/// run.
pub(crate) fn etcd(args: &[String]) -> Result<()> {
    let version = read(Command::new("etcd").arg("--version"))
        .context("etcd is not here: install the Debian package etcd-server")?;
    let quorate = match args {
        [] => {
            run(&mut cargo(&["build", "--release", "--locked", "--package", "quorate-cli"]))?;
            target()?.join("release/quorate")
        }
        [flag, file] if flag == "--program" => PathBuf::from(file),
        _ => bail!("etcd takes --program FILE or nothing"),
    };
    let home = target()?.join("etcd");
    fs::create_dir_all(&home)?;
    let load = home.join("load");
    run(Command::new("go").args(["build", "-o"]).arg(&load).current_dir(root().join("tests/etcd")))?;
    println!("{}; load at the start: {}", version.lines().next().unwrap_or_default(), load_average()?);
    let mut points = Vec::new();
    for _ in 0..ROUNDS {
        for system in SYSTEMS {
            let measured = round(system, &home.join("data"), &quorate, &load)?;
            points.extend(measured.into_iter().map(|point| (system.0, point)));
        }
    }
    println!("\nValues of {VALUE_BYTES} bytes; medians of {ROUNDS} rounds of {SECONDS} s (lowest, highest)");
    for clients in CLIENTS {
        for (system, ..) in SYSTEMS {
            let all = points.iter().filter(|(of, point)| *of == system && point.clients == clients);
            let of = |figure: fn(&Point) -> u64| spread(all.clone().map(|(_, point)| figure(point)));
            let (ops, p50, p99) = (of(|point| point.ops), of(|point| point.p50_us), of(|point| point.p99_us));
            println!("{clients:>3} clients, {system:8} ops/s {ops}, p50 µs {p50}, p99 µs {p99}");
        }
    }
    println!("load at the end: {}", load_average()?);
    Ok(())
}

/// Starts a system on an empty directory, and measures it with each number of clients.
fn round((_, protocol, start): System, data: &Path, quorate: &Path, load: &Path) -> Result<Vec<Point>> {
    let _ = fs::remove_dir_all(data);
    fs::create_dir_all(data)?;
    let (servers, ports) = start(data, quorate)?;
    ports.iter().copied().try_for_each(listens)?;
    let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut command = Command::new(load);
    command.args([protocol, VALUE_BYTES, SECONDS, &addresses.join(",")]);
    let lines = run_and_read(command.args(CLIENTS.map(|clients| clients.to_string())))?;
    drop(servers);
    fs::remove_dir_all(data)?;
    lines.iter().map(|line| Point::of(line).with_context(|| format!("no result: {line}"))).collect()
}

/// Three members. Each one's log is in a file in `data`.
fn etcd_members(data: &Path, _: &Path) -> Result<(Servers, Vec<u16>)> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let ports = || (0..MEMBERS).map(|_| free_port()).collect::<Result<Vec<u16>>>();
    let (for_clients, for_peers) = (ports()?, ports()?);
    let cluster: Vec<String> =
        for_peers.iter().enumerate().map(|(i, port)| format!("m{i}={}", url(*port))).collect();
    let mut servers = Servers::default();
    for (i, (client, peer)) in for_clients.iter().zip(&for_peers).enumerate() {
        let name = format!("m{i}");
        let mut member = Command::new("etcd");
        member
            .args(["--name", &name, "--initial-cluster", &cluster.join(","), "--data-dir"])
            .arg(data.join(&name));
        for flag in ["--listen-client-urls", "--advertise-client-urls"] {
            member.args([flag, &url(*client)]);
        }
        for flag in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            member.args([flag, &url(*peer)]);
        }
        servers
            .start(member.args(["--logger", "zap", "--log-outputs"]).arg(data.join(format!("{name}.log"))))?;
    }
    Ok((servers, for_clients))
}

/// Four replicas and a RESP gateway.
fn quorate_replicas(data: &Path, quorate: &Path) -> Result<(Servers, Vec<u16>)> {
    let gateway = free_port()?;
    let mut servers = Servers::default();
    servers.start(&mut up(quorate.as_os_str(), data, "127.93.71.2", "sync", gateway)?)?;
    Ok((servers, vec![gateway]))
}

/// The machine's load over 1, 5 and 15 minutes.
fn load_average() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

/// What the load generator measured with this number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    clients: u64,
    ops: u64,
    p50_us: u64,
    p99_us: u64,
}

impl Point {
    /// Reads a line of the load generator.
    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["clients", clients, "ops/s", ops, "p50_us", p50_us, "p99_us", p99_us] = words[..] else {
            return None;
        };
        let number = |word: &str| word.parse().ok();
        Some(Self {
            clients: number(clients)?,
            ops: number(ops)?,
            p50_us: number(p50_us)?,
            p99_us: number(p99_us)?,
        })
    }
}

/// The median, with the lowest and the highest value.
fn spread(values: impl Iterator<Item = u64>) -> String {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    match values[..] {
        [] => "none".to_owned(),
        [lowest, .., highest] => format!("{} ({lowest}, {highest})", values[values.len() / 2]),
        [only] => only.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_load_generator_is_read() {
        let line = "clients 100 ops/s 7600 p50_us 12800 p99_us 31000";
        assert_eq!(Point::of(line), Some(Point { clients: 100, ops: 7600, p50_us: 12_800, p99_us: 31_000 }));
        assert_eq!(Point::of("clients 100 ops/s NaN p50_us 0 p99_us 0"), None);
        assert_eq!(Point::of("connection refused"), None);
    }

    #[test]
    fn a_spread_has_the_median_and_both_ends() {
        assert_eq!(spread([30, 10, 20].into_iter()), "20 (10, 30)");
    }
}

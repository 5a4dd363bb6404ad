//! `cargo xtask kernel postmark` and `andrew`: programs in the guest, on the mount of one server after the other.
//!
//! ```text
//! postmark, cp, cc --> Linux, its NFS client --tap0--> quorate nfs --> 4 replicas      bfs
//!                                                 \--> quorate nfs --unreplicated      bfs-nr
//!                                                 \--> ganesha.nfsd                    on a disk, on tmpfs, in memory
//! ```
//!
//! All servers run all the time; a new guest is booted for each measurement, so that its cache is empty. They take
//! turns, so that other load on the machine affects all of them. Time is the host's.

mod andrew;
mod goals;
mod order;
mod postmark;
mod processor;
mod servers;
mod table;
mod tree;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::andrew::Andrew;
use self::order::{Load, Order};
use self::postmark::Postmark;
use self::servers::{Arm, Conditions, Reads, Server, Store};
use self::table::{Call, Row, Sample, Table};
use super::host::Host;
use super::machine::{Machine, has, need};

/// A line that the guest has said, and when.
#[derive(Clone, Debug)]
struct Heard {
    at_s: f64,
    line: String,
}

/// The script around every load: it prints the guest's clock, and at the end the calls that its client has made.
const BEGIN: &str = "echo \"clock $(date +%s%N)\"\n";
const END: &str = "echo \"clock $(date +%s%N)\"\n\
    sed -n '/per-op statistics/,$p' /proc/self/mountstats | grep ': [1-9]' | sed 's/^/rpc /'\n";
/// The guest's clock may differ from the host's by so much of what was measured.
const CLOCK: f64 = 0.02;

/// Says whether this is one of ours, and runs it.
pub(crate) fn run(
    args: &[String],
    ready: impl FnOnce(Option<&Path>) -> Result<(PathBuf, Machine, PathBuf)>,
) -> Result<bool> {
    let Some((load, rest)) = args.split_first().and_then(|(name, rest)| Some((Load::read(name)?, rest)))
    else {
        return Ok(false);
    };
    let Some(order) = Order::read(load, rest)? else {
        print!("{}", order::help(load));
        return Ok(true);
    };
    if load == Load::Postmark {
        need("postmark", "postmark")?;
    }
    let (cache, machine, program) = ready(order.program.as_deref())?;
    let dir = order.dir.clone().unwrap_or_else(|| cache.join("run")).join(load.name());
    let mut table = measure(&order, &machine, &program, &dir)?;
    table.load.push(load_average());
    print!("\n{}", table.text());
    let file = order.json.clone().unwrap_or_else(|| cache.join(format!("{}.json", load.name())));
    std::fs::write(&file, format!("{:#}\n", table.json())).with_context(|| file.display().to_string())?;
    println!("{}", file.display());
    let missed = table.goals().into_iter().filter(|goal| !goal.is_held).count();
    if missed > 0 {
        bail!("{missed} of the goals are missed");
    }
    Ok(true)
}

/// A load on one server, or on none: the client alone.
struct Turn<'a> {
    server: Option<&'a Server>,
    export: &'a super::machine::Export,
    samples: Vec<Sample>,
}

fn measure(order: &Order, machine: &Machine, program: &Path, dir: &Path) -> Result<Table> {
    let host = Host::without_cluster(dir, program)?;
    let options = order.mount_bytes.map_or_else(String::new, |bytes| format!(",rsize={bytes},wsize={bytes}"));
    let atime = if order.load == Load::Postmark { "none" } else { "relatime" };
    let on = Conditions { host: &host, program, dir, atime, options: &options };
    let mut table = Table::new(order);
    table.load.push(load_average());
    let mut servers: Vec<Server> = Vec::new();
    for (arm, number) in order.arms().into_iter().zip(0..) {
        let (system, variant) = arm.names(dir);
        let left_out = match arm.missing(dir) {
            Some(why) => why,
            None => match Server::start(on, arm, number) {
                Ok(server) => {
                    servers.push(server);
                    continue;
                }
                // Ours have to start.
                Err(error) if arm.durability().is_some() => {
                    return Err(error.context(format!("{system} {variant}")));
                }
                Err(error) => format!("{error:#}"),
            },
        };
        table.notes.push(format!("left out: {system} {variant}: {left_out}"));
    }
    let Some(first) = servers.first() else { bail!("no server is left: {}", table.notes.join("; ")) };
    let mut turns: Vec<Turn<'_>> = servers
        .iter()
        .map(|server| Turn { server: Some(server), export: &server.export, samples: Vec::new() })
        .collect();
    if order.has_client() {
        turns.push(Turn { server: None, export: &first.export, samples: Vec::new() });
    }
    if order.load == Load::Andrew {
        tree::write(&dir.join("tree"))?;
    }
    for repeat in 1..=order.repeats {
        for turn in &mut turns {
            let name = turn.server.map_or_else(|| table::ALONE.to_owned(), Server::name);
            println!("-- {name}, {repeat} of {}", order.repeats);
            let sample = one(order, &host, machine, dir, turn).with_context(|| name.clone())?;
            let figures: Vec<String> = sample.figures.iter().map(|figure| format!("{figure:.2}")).collect();
            println!("   {}", figures.join("  "));
            if (sample.clock - 1.0).abs() > CLOCK {
                table
                    .notes
                    .push(format!("{name}: the guest's clock ran at {:.3} of the host's", sample.clock));
            }
            turn.samples.push(sample);
        }
    }
    for turn in turns {
        table
            .rows
            .push(Row::new(turn.server.map(|server| (server.arm, server.variant.clone())), turn.samples));
    }
    Ok(table)
}

/// Boots a guest on the server, and measures once.
fn one(order: &Order, host: &Host, machine: &Machine, dir: &Path, turn: &Turn<'_>) -> Result<Sample> {
    let place = if turn.server.is_some() { "." } else { "/mnt/tmp" };
    let load = match order.load {
        Load::Postmark => order.postmark().script(),
        Load::Andrew => order.andrew().script(&dir.join("tree"), place),
    };
    let processor_s = || turn.server.map_or(0.0, Server::processor_s);
    let before = processor_s();
    let begin = Instant::now();
    let mut heard = Vec::new();
    // A subshell, so that a failure in the load does not prevent the report of its end.
    let script = format!("{BEGIN}( {load} )\nstatus=$?\n{END}exit $status\n");
    let guest = machine.boot_with(host, turn.export, dir, &script)?;
    let lines = guest.listen(|line| {
        heard.push(Heard { at_s: begin.elapsed().as_secs_f64(), line: line.to_owned() });
        Ok(())
    })?;
    std::fs::write(dir.join("said.txt"), lines.join("\n"))?;
    let ended = lines.iter().any(|line| line == "guest: status 0");
    let figures = match order.load {
        Load::Postmark => order.postmark().read(&heard),
        Load::Andrew => order.andrew().read(&heard),
    };
    let said = || format!("what was said is in {}", dir.join("said.txt").display());
    let figures = figures.with_context(said)?;
    if !ended {
        bail!("the load failed: {}", said());
    }
    Ok(Sample {
        figures,
        processor_s: processor_s() - before,
        clock: clock(&heard).with_context(said)?,
        own_s: heard.iter().find_map(|heard| postmark::own_figure(&heard.line)),
        calls: heard.iter().filter_map(|heard| Call::read(&heard.line)).collect(),
    })
}

/// Returns how fast the guest's clock ran, divided by the host's: in user mode it could be another one.
fn clock(heard: &[Heard]) -> Result<f64> {
    // A program's last prompt may stand before it.
    let said = |heard: &Heard| Some((heard.at_s, heard.line.split_once("clock ")?.1.parse::<u64>().ok()?));
    let clocks: Vec<(f64, u64)> = heard.iter().filter_map(said).collect();
    let [(host_begin, begin), (host_end, end)] = clocks[..] else {
        bail!("the guest did not come to the end")
    };
    let guest_s = std::time::Duration::from_nanos(end.saturating_sub(begin)).as_secs_f64();
    Ok(guest_s / (host_end - host_begin).max(1e-9))
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_guests_clock_is_compared_with_the_hosts() {
        let heard = |lines: &[(f64, &str)]| -> Vec<Heard> {
            lines.iter().map(|(at_s, line)| Heard { at_s: *at_s, line: (*line).to_owned() }).collect()
        };
        let half = [(2.0, "clock 1000000000"), (3.0, "something else"), (6.0, "pm>clock 3000000000")];
        assert!((clock(&heard(&half)).unwrap() - 0.5).abs() < 1e-9);
        assert!(clock(&heard(&half[..2])).is_err(), "it did not come to its end");
    }
}

//! `quorate status`: asks every replica about itself, and compares the answers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use quorate_gateways::page;
use quorate_node::observe::{Observer, Picture, Snapshot, Verdict, Watch, json, text};
use quorate_node::{descriptors, signals};

use crate::fail::CommandResult;
use crate::{out, values};

/// How often the status is updated.
const EVERY: Duration = Duration::from_secs(1);

/// Show the status of a cluster
///
/// Asks every replica for its state. Runs three test operations, which change no data: a read, a small ordered
/// operation, and a large one. Also reads the evidence of misbehaviour that clients have stored in their directories.
/// A replica is "silent" if it does not answer within 700 ms.
///
///   HEALTHY    every replica is healthy
///   DEGRADED   the cluster executes operations, but something needs repair
///   HALTED     too few replicas work: the cluster executes nothing
///   UNSAFE     too many replicas contradict the others: answers may be wrong
///
/// `status` connects with the key of a client in DIR. Of the clients that no other program is using, it takes the one
/// with the highest number.
///
/// Exit status: 0 HEALTHY; 1 DEGRADED, HALTED or UNSAFE; 2 the command was refused; 3 no replica answers.
///
/// Example:
///
///   quorate status --dir cluster
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Status {
    /// Directory that holds the nodes of the cluster
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// Print JSON: a line for the cluster, then a line for each replica
    #[arg(long)]
    json: bool,
    /// Print a line every second until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Serve the status page and /metrics on IP:PORT until Ctrl-C. There is no password
    #[arg(long, value_parser = values::address, value_name = "ADDR", conflicts_with_all = ["json", "watch"])]
    serve: Option<SocketAddr>,
}

impl Status {
    pub(crate) fn run(&self) -> CommandResult {
        let stop = signals::stop_flag()?;
        descriptors::raise();
        let listener =
            self.serve.map(|address| page::listen(address, "quorate status --serve")).transpose()?;
        let observer = Observer::open(&self.dir)?;
        let name =
            observer.dir().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        if let (Some(listener), Some(address)) = (listener, self.serve) {
            let watch = Watch::new(observer);
            page::serve(listener, watch.board(), name)?;
            out::line(format!("http://{address}/      for machines: http://{address}/metrics"));
            follow(&watch, &stop, |seen| out::line(text::line(&seen.picture, seen.rate)));
            return Ok(ExitCode::SUCCESS);
        }
        if self.watch {
            let mut status = 0;
            follow(&Watch::new(observer), &stop, |seen| {
                if self.json {
                    json::lines(&seen.picture).iter().for_each(out::line);
                } else {
                    out::line(text::line(&seen.picture, seen.rate));
                }
                status = status_of(&seen.picture);
            });
            return Ok(ExitCode::from(status));
        }
        let (picture, latency) = observer.look_well();
        if self.json {
            json::lines(&picture).iter().for_each(out::line);
        } else {
            out::line(text::page(&name, &picture, latency, &observer.addresses()));
        }
        Ok(ExitCode::from(status_of(&picture)))
    }
}

/// Checks the cluster once a second until `stop`, and passes on what it has seen.
pub(crate) fn follow(watch: &Watch, stop: &AtomicBool, mut say: impl FnMut(&Snapshot)) {
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        say(&watch.turn());
        while begin.elapsed() < EVERY && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the exit status for a verdict.
fn status_of(picture: &Picture) -> u8 {
    match picture.verdict {
        _ if picture.answered() == 0 => 3,
        Verdict::Healthy => 0,
        Verdict::Degraded | Verdict::Halted | Verdict::Unsafe => 1,
    }
}

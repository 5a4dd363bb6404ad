//! `quorate status`: what each replica says of itself, and what a reader makes of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use quorate_node::observe::{Observer, Picture, Verdict, Watch, json, text};
use quorate_node::signals;

use crate::fail::Outcome;
use crate::{out, page};

/// How often a stream has something new.
const EVERY: Duration = Duration::from_secs(1);

/// Show how a cluster is
///
/// Asks every replica how it is, has two small operations done, reads what the cluster's clients have seen, and
/// compares. No replica is believed about another. It speaks as one of the cluster's clients that nobody uses, the
/// last one first. Silent is who says nothing for 700 ms.
///
/// Ends with status 0 if the cluster is HEALTHY, 1 if it is DEGRADED, HALTED or UNSAFE, 3 if no replica answers.
/// With --json there is one object for the cluster, then one a replica.
///
///   quorate status --dir cluster
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Status {
    /// Where the cluster's directories are
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
    /// Go on, once a second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Serve a page and /metrics there, IP:PORT, until Ctrl-C; whoever can connect can read it
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["json", "watch"])]
    serve: Option<SocketAddr>,
}

impl Status {
    pub(crate) fn run(&self) -> Outcome {
        let stop = signals::stop_flag()?;
        let listener =
            self.serve.map(|address| page::listen(address, "quorate status --serve")).transpose()?;
        let observer = Observer::open(&self.dir)?;
        let name =
            observer.dir().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        if let (Some(listener), Some(address)) = (listener, self.serve) {
            let watch = Arc::new(Watch::new(observer));
            page::serve(listener, Arc::clone(&watch), name)?;
            out::line(format!("http://{address}/      for machines: http://{address}/metrics"));
            follow(&watch, &stop, |line| out::line(line));
            return Ok(ExitCode::SUCCESS);
        }
        loop {
            let begin = Instant::now();
            let (picture, latency) = observer.look_well();
            if self.json {
                json::lines(&picture).iter().for_each(out::line);
            } else if self.watch {
                out::line(text::line(&picture, None));
            } else {
                out::line(text::page(&name, &picture, latency));
            }
            if !self.watch {
                return Ok(ExitCode::from(status_of(&picture)));
            }
            while begin.elapsed() < EVERY {
                if stop.load(Ordering::Relaxed) {
                    return Ok(ExitCode::from(status_of(&picture)));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Looks once a second until `stop`, and says how the cluster is whenever that has changed.
pub(crate) fn follow(watch: &Watch, stop: &AtomicBool, mut say: impl FnMut(&str)) {
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let seen = watch.turn();
        say(&text::line(&seen.picture, seen.rate));
        while begin.elapsed() < EVERY && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The exit status that says how a cluster is.
fn status_of(picture: &Picture) -> u8 {
    match picture.verdict {
        _ if picture.answered() == 0 => 3,
        Verdict::Healthy => 0,
        Verdict::Degraded | Verdict::Halted | Verdict::Unsafe => 1,
    }
}

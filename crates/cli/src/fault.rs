//! `quorate fault`: break a replica of a cluster that `quorate up` runs, to see that it does not matter.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nix::sys::signal::Signal;

use crate::explain::Code;
use crate::fail::{Failure, Outcome};
use crate::local::{Local, unwritable};
use crate::out;

/// How long a killed process may take to be gone.
const GONE: Duration = Duration::from_secs(5);

/// Break a replica on purpose, or heal it
///
/// Only on clusters that `quorate up` runs. With f of them broken the service goes on; one more is refused, unless forced.
///
///   kill      ends the process at once, as a crash does (SIGKILL)
///   pause     lets it stand still, as a machine that hangs does (SIGSTOP)
///   wipe      kills it, empties its log and state, and starts it: it rejoins from the others
///   corrupt   kills it, damages its log and its newest state, and starts it: it notices, and repairs itself
///   heal      undoes kill and pause: it catches up with what it missed
///
///   quorate fault kill primary
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Fault {
    /// What befalls it
    #[arg(value_enum)]
    what: What,
    /// Which replica: its number, or primary
    replica: String,
    /// Where the cluster lives
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// Break it even if the service stops because of that
    #[arg(long = "yes-break-it", alias = "force")]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Kill,
    Pause,
    Wipe,
    Corrupt,
    Heal,
}

impl Fault {
    pub(crate) fn run(&self) -> Outcome {
        let local = Local::made(&self.dir)?;
        if !local.runs() {
            return Err(Failure::new(Code::Unreachable, "the cluster does not run")
                .at(self.dir.display().to_string())
                .next("quorate up"));
        }
        let names = local.replicas();
        let name = self.choose(&local, &names)?;
        let id = name.trim_start_matches("replica-").to_owned();
        if self.what == What::Heal {
            return heal(&local, name, &id);
        }
        self.check_margin(&local, &names, name)?;
        match self.what {
            What::Kill => {
                kill_now(&local, name)?;
                local.set_fault(name, Some("killed"))?;
                out::line(format!("r{id} killed. undo: quorate fault heal {id}"));
            }
            What::Pause => {
                local.signal(name, Signal::SIGSTOP);
                local.set_fault(name, Some("paused"))?;
                out::line(format!("r{id} stands still. undo: quorate fault heal {id}"));
            }
            What::Wipe => {
                kill_now(&local, name)?;
                for part in ["log", "checkpoint"] {
                    let path = local.node(name).join(part);
                    if path.exists() {
                        fs::remove_dir_all(&path).map_err(|error| unwritable(&path, &error))?;
                    }
                }
                restart(&local, name)?;
                out::line(format!(
                    "r{id} killed, its log and state emptied, and started: it rejoins from the others"
                ));
                out::line(format!("  what it says: {}", local.node(name).join("replica.log").display()));
            }
            What::Corrupt => {
                kill_now(&local, name)?;
                let damaged = damage(&local.node(name))?;
                restart(&local, name)?;
                out::line(format!("r{id} killed, a sector of each of {damaged} files damaged, and started"));
                out::line(format!("  what it says: {}", local.node(name).join("replica.log").display()));
            }
            What::Heal => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the name of the replica that is meant.
    fn choose<'a>(&self, local: &Local, names: &'a [String]) -> Result<&'a str, Failure> {
        let id = match self.replica.as_str() {
            "primary" => usize::try_from(local.view() % u64::try_from(names.len()).unwrap_or(1)).ok(),
            text => text.trim_start_matches('r').parse().ok(),
        };
        id.and_then(|id: usize| names.get(id)).map(String::as_str).ok_or_else(|| {
            Failure::new(
                Code::Value,
                format!("`{}`: a replica, 0 to {}, or primary was expected", self.replica, names.len() - 1),
            )
            .at("REPLICA")
        })
    }

    /// More than f faults are refused.
    fn check_margin(&self, local: &Local, names: &[String], name: &str) -> Result<(), Failure> {
        let broken: Vec<(String, String)> = names
            .iter()
            .filter(|other| *other != name)
            .filter_map(|other| {
                let stopped = || local.process(other).is_none().then(|| "has stopped".to_owned());
                local.fault(other).or_else(stopped).map(|how| (other.replace("replica-", "r"), how))
            })
            .collect();
        let f = (names.len() - 1) / 3;
        if broken.len() < f || self.force {
            return Ok(());
        }
        let list: Vec<String> = broken.iter().map(|(other, how)| format!("{other} ({how})")).collect();
        let first =
            broken.first().map_or(String::new(), |(other, _)| other.trim_start_matches('r').to_owned());
        Err(Failure::new(
            Code::TooMany,
            format!("{} is broken already and f = {f}: one more stops the service", list.join(", ")),
        )
        .at(self.dir.display().to_string())
        .next(format!("quorate fault heal {first}      or say --yes-break-it to see that")))
    }
}

fn kill_now(local: &Local, name: &str) -> Result<(), Failure> {
    local.signal(name, Signal::SIGKILL);
    if local.wait_until_gone(name, GONE) {
        return Ok(());
    }
    Err(Failure::new(Code::InUse, "its process does not end").at(name))
}

fn restart(local: &Local, name: &str) -> Result<(), Failure> {
    local.set_fault(name, None)?;
    // It goes on when this command has ended; `quorate up` finds it by its process id.
    local.start(name, "replica", &[]).map(drop)
}

fn heal(local: &Local, name: &str, id: &str) -> Outcome {
    if local.process(name).is_none() {
        restart(local, name)?;
    } else {
        local.signal(name, Signal::SIGCONT);
        local.set_fault(name, None)?;
    }
    out::line(format!("r{id} runs, and catches up with what it missed"));
    Ok(ExitCode::SUCCESS)
}

/// Overwrites a sector in the middle of the newest file of the log and of the newest state, and says how
/// many files that were.
fn damage(dir: &Path) -> Result<usize, Failure> {
    const SECTOR: u64 = 512;
    let mut damaged = 0;
    for part in ["log", "checkpoint"] {
        let Ok(entries) = fs::read_dir(dir.join(part)) else { continue };
        let files = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
        let Some(path) = files.max() else { continue };
        let change = || {
            let mut file = fs::File::options().read(true).write(true).open(&path)?;
            let middle = file.metadata()?.len() / 2 / SECTOR * SECTOR;
            let mut sector = Vec::new();
            file.seek(SeekFrom::Start(middle))?;
            (&file).take(SECTOR).read_to_end(&mut sector)?;
            for byte in &mut sector {
                *byte ^= 0x5a;
            }
            file.seek(SeekFrom::Start(middle))?;
            file.write_all(&sector)
        };
        change().map_err(|error| unwritable(&path, &error))?;
        damaged += 1;
    }
    Ok(damaged)
}

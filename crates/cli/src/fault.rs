//! `quorate fault`: injects faults into the replicas of a cluster that `quorate up` runs.

mod act;
pub(crate) mod probe;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use nix::fcntl::Flock;

use self::act::Break;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::liar::Way;
use crate::local::Local;
use crate::out;

/// Inject a fault into a replica, or heal it
///
/// Works only on clusters that `quorate up` runs. A cluster of 3f + 1 replicas tolerates f faulty ones. `fault` refuses
/// to break more replicas, unless you add --yes-break-it.
///
///   kill      end the process immediately, like a crash (SIGKILL)
///   pause     suspend the process, like a machine that hangs (SIGSTOP)
///   wipe      kill the replica, delete its log and its stored state, and restart the replica: it fetches the state from
///             the others
///   corrupt   kill the replica, damage one sector of its log and one of its stored state, and restart the replica: it
///             detects and repairs the damage
///   lie       restart the replica as a liar, which sends false messages; --how selects the kind of lie (default wrong-reply)
///   slow      restart the replica so that all its messages are late; --how sets the delay (default 50ms)
///   heal      undo kill, pause, lie or slow; `heal all` heals every replica
///
/// `quorate replica --liar list` lists the kinds of lies.
///
/// Example:
///
///   quorate fault kill primary
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Fault {
    /// The fault to inject
    #[arg(value_enum)]
    what: What,
    /// The replica: its number, or `primary`; for heal also `all`
    replica: String,
    /// Data directory of the cluster
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// For lie: the kind of lie. For slow: the delay
    #[arg(long, value_name = "NAME|TIME")]
    how: Option<String>,
    /// Inject the fault even if it stops the service
    #[arg(long = "yes-break-it", alias = "force")]
    force: bool,
}

/// The state of a replica that has not rejoined yet.
const REJOINING: &str = "is rejoining";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Kill,
    Pause,
    Wipe,
    Corrupt,
    Lie,
    Slow,
    Heal,
}

impl Fault {
    pub(crate) fn run(&self) -> CommandResult {
        let local = Local::made(&self.dir)?;
        let names = local.replicas();
        if self.what == What::Heal && self.replica == "all" {
            return heal_all(&local, &names);
        }
        // Another fault at the same time would count no more than this one, and neither the other.
        let held = hold(&local)?;
        let name = self.choose(&local, &names)?;
        let way = self.way()?;
        let replica = Break::of(&local, name);
        if self.what == What::Heal {
            return if faulty(&local, name).is_some() {
                replica.heal(held)
            } else {
                nothing_to_heal(&local, &names, name)
            };
        }
        let too_many = self.check_margin(&local, &names, name)?;
        match (self.what, way) {
            (What::Kill, _) => replica.kill(too_many, held)?,
            (What::Pause, _) => replica.pause()?,
            (What::Wipe, _) => replica.wipe(too_many, held)?,
            (What::Corrupt, _) => replica.corrupt(held)?,
            (What::Lie | What::Slow, Some(way)) => replica.lie(&way, held)?,
            (What::Lie | What::Slow | What::Heal, _) => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the way of lying, if the fault is one.
    fn way(&self) -> Result<Option<Way>, Failure> {
        match (self.what, self.how.as_deref()) {
            (What::Lie, how) => Way::read(how.unwrap_or("wrong-reply")).map(Some),
            (What::Slow, how) => Way::read(&format!("slow:{}", how.unwrap_or("50ms"))).map(Some),
            (_, None) => Ok(None),
            (_, Some(_)) => {
                let what = "--how is only for lie and slow";
                Err(Failure::new(Code::Rule, what).at("--how").next("omit --how, or use: quorate fault lie"))
            }
        }
    }

    /// Returns the name of the chosen replica.
    fn choose<'a>(&self, local: &Local, names: &'a [String]) -> Result<&'a str, Failure> {
        let id = match self.replica.as_str() {
            "primary" => usize::try_from(local.view() % u64::try_from(names.len()).unwrap_or(1)).ok(),
            text => text.trim_start_matches('r').parse().ok(),
        };
        id.and_then(|id: usize| names.get(id)).map(String::as_str).ok_or_else(|| {
            Failure::new(
                Code::Value,
                format!(
                    "`{}`: expected a replica, 0 to {}, {}",
                    self.replica,
                    names.len() - 1,
                    if self.what == What::Heal { "primary or all" } else { "or primary" }
                ),
            )
            .at("REPLICA")
        })
    }

    /// Refuses more than f faults, unless forced. Returns whether this fault is one too many.
    fn check_margin(&self, local: &Local, names: &[String], name: &str) -> Result<bool, Failure> {
        let broken: Vec<(&str, String)> = names
            .iter()
            .filter(|other| *other != name)
            .filter_map(|other| {
                let rejoins = || local.rejoins(other).then(|| REJOINING.to_owned());
                let how = faulty(local, other).or_else(rejoins)?;
                Some((other.trim_start_matches("replica-"), how))
            })
            .collect();
        let f = (names.len() - 1) / 3;
        if broken.len() < f || self.force {
            return Ok(broken.len() >= f);
        }
        let list: Vec<String> = broken.iter().map(|(id, how)| format!("r{id} {}", in_words(how))).collect();
        let liars = broken.iter().filter(|(_, how)| how.starts_with("lies")).count();
        let liars = liars + usize::from(self.what == What::Lie);
        let means = if liars > f {
            "more than f liars could make clients accept wrong results"
        } else {
            "one more fault stops the service until a replica is healed"
        };
        let verb = if broken.len() == 1 { "already" } else { "already," };
        let what = format!("{} {verb} and f = {f}: {means}", list.join(", "));
        // A replica that rejoins needs only time; the others have to be healed.
        let heal = broken.iter().find(|(_, how)| how != REJOINING);
        let next = heal.map_or_else(
            || "wait until it has rejoined".to_owned(),
            |(id, _)| format!("quorate fault heal {id}"),
        );
        Err(Failure::new(Code::TooMany, what)
            .at(self.dir.display().to_string())
            .next(format!("{next}      or give --yes-break-it to see the service stop")))
    }
}

/// Returns what `heal` can undo at a replica: the injected fault, or that its process has ended.
fn faulty(local: &Local, name: &str) -> Option<String> {
    let stopped = || local.process(name).is_none().then(|| "has stopped".to_owned());
    local.fault(name).or_else(stopped)
}

/// Keeps other commands from starting and stopping replicas of a cluster that runs.
fn hold(local: &Local) -> Result<Flock<File>, Failure> {
    let held = local.alone()?;
    if local.runs() {
        return Ok(held);
    }
    Err(Failure::new(Code::Unreachable, "the cluster is not running")
        .at(local.dir().display().to_string())
        .next("quorate up"))
}

/// Heals every replica that has a fault.
fn heal_all(local: &Local, names: &[String]) -> CommandResult {
    let mut healed = false;
    for name in names {
        let held = hold(local)?;
        if faulty(local, name).is_some() {
            healed = true;
            Break::of(local, name).heal(held)?;
        }
    }
    if !healed {
        out::line("no replica has a fault: nothing was changed");
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that a replica has no fault. If other replicas have one, the command probably named the wrong replica.
fn nothing_to_heal(local: &Local, names: &[String], name: &str) -> CommandResult {
    let id = |name: &str| name.trim_start_matches("replica-").to_owned();
    let says = format!("r{} has no fault that can be healed: nothing was changed", id(name));
    let broken = names.iter().find_map(|other| Some((id(other), faulty(local, other)?)));
    let Some((other, how)) = broken else {
        out::line(says);
        return Ok(ExitCode::SUCCESS);
    };
    Err(Failure::new(Code::Rule, format!("{says}; r{other} {}", in_words(&how)))
        .at("REPLICA")
        .next(format!("quorate fault heal {other}      or: quorate fault heal all")))
}

/// Turns a recorded fault into the rest of a sentence about the replica.
fn in_words(how: &str) -> String {
    let is_participle = matches!(how, "killed" | "paused");
    if is_participle { format!("is {how}") } else { how.to_owned() }
}

//! `quorate fault`: break a replica of a cluster that `quorate up` runs, to see that it does not matter.

mod act;
pub(crate) mod probe;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use self::act::Break;
use crate::explain::Code;
use crate::fail::{Failure, Outcome};
use crate::liar::Way;
use crate::local::Local;

/// Break a replica on purpose, or heal it
///
/// Only on clusters that `quorate up` runs. With f of them broken the service goes on; one more is refused, unless forced.
///
///   kill      ends the process at once, as a crash does (SIGKILL)
///   pause     lets it stand still, as a machine that hangs does (SIGSTOP)
///   wipe      kills it, empties its log and state, and starts it: it rejoins from the others
///   corrupt   kills it, damages its log and its newest state, and starts it: it notices, and repairs itself
///   lie       starts it again as a liar, --how says which: wrong-reply (the default), or see `replica --liar list`
///   slow      starts it again as one that says everything late, --how says by how much: 50ms (the default)
///   heal      undoes kill, pause, lie and slow: it catches up with what it missed
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
    /// How it lies, or by how much it is slow
    #[arg(long, value_name = "NAME|TIME")]
    how: Option<String>,
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
    Lie,
    Slow,
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
        let way = self.way()?;
        let replica = Break::of(&local, name);
        if self.what == What::Heal {
            return replica.heal();
        }
        let too_many = self.check_margin(&local, &names, name)?;
        match (self.what, way) {
            (What::Kill, _) => replica.kill(too_many)?,
            (What::Pause, _) => replica.pause()?,
            (What::Wipe, _) => replica.wipe(too_many)?,
            (What::Corrupt, _) => replica.corrupt()?,
            (What::Lie | What::Slow, Some(way)) => replica.lie(&way)?,
            (What::Lie | What::Slow | What::Heal, _) => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns how it is to lie, if it is to.
    fn way(&self) -> Result<Option<Way>, Failure> {
        match (self.what, self.how.as_deref()) {
            (What::Lie, how) => Way::read(how.unwrap_or("wrong-reply")).map(Some),
            (What::Slow, how) => Way::read(&format!("slow:{}", how.unwrap_or("50ms"))).map(Some),
            (_, None) => Ok(None),
            (_, Some(_)) => {
                let what = "--how says how a replica lies, or by how much it is slow";
                Err(Failure::new(Code::Rule, what).at("--how").next("leave it away, or: quorate fault lie"))
            }
        }
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

    /// More than f faults are refused, unless forced: says whether it comes to that.
    fn check_margin(&self, local: &Local, names: &[String], name: &str) -> Result<bool, Failure> {
        let broken: Vec<(&str, String)> = names
            .iter()
            .filter(|other| *other != name)
            .filter_map(|other| {
                let stopped = || local.process(other).is_none().then(|| "has stopped".to_owned());
                let rejoins = || local.rejoins(other).then(|| "is not back yet".to_owned());
                let how = local.fault(other).or_else(stopped).or_else(rejoins)?;
                Some((other.trim_start_matches("replica-"), how))
            })
            .collect();
        let f = (names.len() - 1) / 3;
        if broken.len() < f || self.force {
            return Ok(broken.len() >= f);
        }
        let list: Vec<String> = broken.iter().map(|(id, how)| format!("r{id} {how}")).collect();
        let liars = broken.iter().filter(|(_, how)| how.starts_with("lies")).count();
        let liars = liars + usize::from(self.what == What::Lie);
        let means = if liars > f {
            "more liars than f could make clients believe what is wrong"
        } else {
            "one more fault stops the service until one heals"
        };
        let verb = if broken.len() == 1 { "already" } else { "already," };
        let what = format!("{} {verb} and f = {f}: {means}", list.join(", "));
        // What only takes time is waited for; the rest is healed.
        let heal = broken.iter().find(|(_, how)| how != "is not back yet");
        let next =
            heal.map_or_else(|| "wait for it".to_owned(), |(id, _)| format!("quorate fault heal {id}"));
        Err(Failure::new(Code::TooMany, what)
            .at(self.dir.display().to_string())
            .next(format!("{next}      or say --yes-break-it to see that")))
    }
}

//! What the flags of `sim run` and `sim replay` ask for: the service, the size of the cluster, its settings.

use clap::ValueEnum;
use quorate_node::settings::{configure, protocol_keys};
use quorate_sim::command::{self, Config, Refused, Swarm};
use quorate_sim::scenario;
use quorate_wire::Cluster;

use super::files;
use crate::code::Code;
use crate::fail::{Failure, nearest};
use crate::values;

/// The service of the simulated replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Runs {
    /// The key-value store, or for some seeds a service without state
    #[default]
    Kv,
    /// The file system. When a run ends, the file system of every correct replica is also checked
    Fs,
}

impl Runs {
    pub(super) fn swarm(self) -> Swarm {
        match self {
            Self::Kv => Swarm::default(),
            Self::Fs => Swarm(files::run),
        }
    }
}

/// Checks the size of the cluster and the number of faulty replicas.
pub(super) fn size(n: Option<u16>, f: Option<u16>) -> Result<Option<Cluster>, Failure> {
    match (n, f) {
        (None, None) => Ok(None),
        (n, f) => values::cluster(n.unwrap_or(4), f).map(Some),
    }
}

/// Returns the settings of a run, if any are given: the defaults of scenarios, with the given ones changed.
pub(super) fn configured(
    given: &[String],
    n: Option<u16>,
    f: Option<u16>,
) -> Result<Option<Config>, Failure> {
    if given.is_empty() {
        return Ok(None);
    }
    let cluster = values::cluster(n.unwrap_or(4), f)?;
    let config = configure(&command::settings(cluster), given);
    config.map(Some).map_err(|trouble| Failure::from(trouble).at("--set").next("quorate sim run --help"))
}

/// Returns the flags of a run, for a command that repeats it.
pub(super) fn flags(plain: bool, workers: bool) -> String {
    let flag = |is_set, name| if is_set { name } else { "" };
    [flag(plain, "--plain "), flag(workers, "--workers ")].concat()
}

/// Adds the service and what was set to the commands that a report names.
pub(super) fn with_settings(report: &str, service: Runs, given: &[String], flags: &str) -> String {
    let mut command = format!("quorate sim replay {flags}");
    if service == Runs::Fs {
        command += "--service fs ";
    }
    for text in given {
        command += "--set ";
        command.extend(text.chars().filter(|c| *c != ' '));
        command.push(' ');
    }
    report.replace("quorate sim replay ", &command)
}

/// The list of settings at the end of the help.
pub(super) fn settings_help() -> String {
    format!(
        "Settings for --set. Each node.toml describes them. Without --set, all settings are drawn from the seed. With\n\
         --set, the settings that you do not name have fixed values. Some of these are smaller than the defaults of\n\
         node.toml: for example, checkpoint_interval is 8, and window is 16.\n\n{}",
        protocol_keys()
    )
}

/// Turns a refusal into a failure.
pub(super) fn refused(error: &Refused) -> Failure {
    match error {
        Refused::NoScenario(name) => {
            let near = nearest(name, scenario::all().map(|scenario| scenario.name));
            let says = match near {
                Some(near) => format!("no scenario `{name}`. Nearest: {near}"),
                None => format!("no scenario `{name}`"),
            };
            Failure::new(Code::Scenario, says).at("--scenario").next("quorate sim list")
        }
        Refused::NoCluster(n) => Failure::new(Code::Rule, error.to_string()).at(format!("--n {n}")),
        Refused::NotAtSize { n, sizes, .. } => {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            Failure::new(Code::Rule, error.to_string())
                .at(format!("--n {n}"))
                .next(format!("--n {}", sizes.join(" or --n ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_sim::expected::{OPEN, Shows};
    use quorate_sim::swarm::Ask;

    use super::*;

    #[test]
    fn a_scenario_that_does_not_exist_is_answered_with_the_nearest() {
        let Some(any) = scenario::all().next() else { unreachable!("there are scenarios") };
        let typed = any.name[..any.name.len() - 1].to_owned();
        let says = refused(&Refused::NoScenario(typed)).to_string();
        assert!(says.starts_with("error Q005") && says.contains(&format!("Nearest: {}", any.name)), "{says}");
    }

    fn given(settings: &[&str]) -> Vec<String> {
        settings.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn settings_are_checked_together() {
        assert!(matches!(configured(&[], None, None), Ok(None)));
        let Ok(Some(config)) = configured(&given(&["window=32", "pipeline=4"]), Some(7), None) else {
            unreachable!("they obey the rules")
        };
        assert_eq!((config.cluster.n(), config.window, config.pipeline), (7, 32, 4));
        let says = |settings: &[&str]| match configured(&given(settings), None, None) {
            Ok(_) => String::new(),
            Err(failure) => failure.to_string(),
        };
        assert!(says(&["checkpoint_interval=64"]).starts_with("error Q004: window = 16: at least twice"));
        assert!(says(&["windw=64"]).starts_with("error Q009: no setting `windw`. Nearest: window"));
        assert!(says(&["window=big"]).starts_with("error Q002: window = big: expected batches"));
        let failure =
            configured(&given(&["window=32"]), Some(3), None).err().map(|failure| failure.to_string());
        assert!(failure.is_some_and(|says| says.contains("n = 3") && says.contains("n >= 3f + 1")));
    }

    #[test]
    fn a_report_names_the_command_with_its_settings() {
        let report = "  again:   quorate sim replay --seed 0x1";
        let with = |service| with_settings(report, service, &given(&["window = 32"]), "");
        assert_eq!(with(Runs::Kv), "  again:   quorate sim replay --set window=32 --seed 0x1");
        assert_eq!(with(Runs::Fs), "  again:   quorate sim replay --service fs --set window=32 --seed 0x1");
    }

    /// Faults that are not mended yet still fail: who mends one takes it out of the list.
    #[test]
    fn what_is_not_mended_still_fails() {
        let mut wrong = Vec::new();
        for open in OPEN {
            let Shows::Seed { service, n, seed, set, plain } = open.shows else { continue };
            let Ok(config) = configured(&given(set), Some(n), None) else { unreachable!("{set:?}") };
            let Ok(cluster) = command::cluster(n, None) else { unreachable!("n = {n}") };
            let config = config.as_ref();
            let ask =
                Ask { cluster, config, batches: command::BATCHES, steps: 0, lines: 0, workers: None, plain };
            let swarm = if service == "fs" { Runs::Fs.swarm() } else { Runs::Kv.swarm() };
            let failure = (swarm.0)(seed, &ask).failure;
            let found = failure.as_ref().map_or("nothing", |failure| failure.rule.name());
            if found != open.rule {
                wrong.push(format!(
                    "{} {:?}: {} expected, {found} found",
                    open.finding, open.shows, open.rule
                ));
            }
        }
        println!("{}", wrong.join("\n"));
        assert!(wrong.is_empty());
    }

    #[test]
    fn sizes_are_checked_with_key_value_and_rule() {
        assert!(matches!(size(None, None), Ok(None)));
        assert!(size(Some(3), None).is_err_and(|failure| failure.to_string().contains("n >= 3f + 1 = 4")));
        assert!(size(None, Some(2)).is_err_and(|failure| failure.to_string().contains("n >= 3f + 1 = 7")));
        let refused = refused(&Refused::NotAtSize { name: "p1_x", n: 5, sizes: &[4, 7] }).to_string();
        assert!(refused.contains("--n 5") && refused.contains("--n 4 or --n 7"), "{refused}");
    }
}

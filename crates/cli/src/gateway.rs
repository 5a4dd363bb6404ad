//! The subcommands that run gateways, and the flags of `up` with their addresses: one for each row of
//! [`quorate_gateways::GATEWAYS`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, value_parser};
use quorate_gateways::front::Limits;
use quorate_gateways::{GATEWAYS, GatewayRow, Given, OptionRow};
use quorate_node::services::ServiceName;
use quorate_node::{descriptors, signals};

use crate::fail::CommandResult;
use crate::node::open_client;
use crate::{out, values};

/// A gateway with its options.
#[derive(Debug)]
pub(crate) struct Gateway {
    row: &'static GatewayRow,
    dir: PathBuf,
    listen: SocketAddr,
    limits: Limits,
    /// The options of its own that are given or have a default.
    options: Vec<(&'static str, String)>,
}

impl Gateway {
    pub(crate) fn run(&self) -> CommandResult {
        let stop = signals::stop_flag()?;
        descriptors::raise();
        let node = open_client(&self.dir, self.row.service)?;
        if let Some(warning) = self.row.warning(self.listen) {
            eprintln!("{warning}");
        }
        let option = |name: &str| Some(self.options.iter().find(|(known, _)| *known == name)?.1.clone());
        let given = Given {
            listen: self.listen,
            limits: self.limits.clone(),
            dir: &self.dir,
            option: &option,
            ready: &|line| out::line(line),
            stop: &stop,
        };
        (self.row.serve)(node, given)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the subcommand of a gateway.
fn command(row: &'static GatewayRow) -> Command {
    let limits = Limits::default();
    let command = Command::new(row.name)
        .about(row.help.lines().next().unwrap_or_default())
        .long_about(row.help)
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Directory of a client that no other program uses, such as cluster/client-0"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDR")
                .default_value(row.address().to_string())
                .value_parser(values::address)
                .help(format!("Address for {}, IP:PORT", row.users)),
        )
        .arg(
            Arg::new("connections")
                .long("connections")
                .value_name("CONNECTIONS")
                .default_value(limits.connections_max.to_string())
                .value_parser(value_parser!(usize))
                .help("Maximum number of connections"),
        )
        .arg(
            Arg::new("lanes")
                .long("lanes")
                .value_name("LANES")
                .default_value(limits.lanes.to_string())
                .value_parser(value_parser!(u16))
                .help("Maximum number of operations in progress"),
        )
        .arg(
            Arg::new("deadline")
                .long("deadline")
                .value_name("TIME")
                .default_value(format!("{}s", row.deadline.as_secs()))
                .value_parser(values::duration)
                .help(format!(
                    "Time to wait for the cluster, such as 500ms or 10s. See `quorate {} --help`",
                    row.name
                ))
                .long_help(
                    "Time to wait for the cluster, such as 500ms or 10s. The text above the options says what happens \
                     after this time",
                ),
        );
    row.options.iter().fold(command, |command, option| command.arg(argument(option)))
}

/// Returns the flag of an option of a gateway's own.
fn argument(option: &'static OptionRow) -> Arg {
    let flag = Arg::new(option.name).long(option.name).help(option.help);
    let flag = match option.value {
        None => flag.action(ArgAction::SetTrue),
        Some(value) if option.values.is_empty() => flag.value_name(value),
        Some(value) => flag.value_name(value).value_parser(PossibleValuesParser::new(option.values)),
    };
    let flag = if option.default.is_empty() { flag } else { flag.default_value(option.default) };
    if option.requires.is_empty() { flag } else { flag.requires(option.requires) }
}

fn row(name: &str) -> Option<&'static GatewayRow> {
    GATEWAYS.iter().find(|row| row.name == name)
}

/// Returns a value that has a default.
fn value<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Result<T, clap::Error> {
    let value = matches.get_one::<T>(name).cloned();
    value.ok_or_else(|| clap::Error::new(ErrorKind::MissingRequiredArgument))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl FromArgMatches for Gateway {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let found = matches.subcommand().and_then(|(name, matches)| Some((row(name)?, matches)));
        let Some((row, matches)) = found else { return Err(clap::Error::new(ErrorKind::InvalidSubcommand)) };
        let given = |option: &OptionRow| match option.value {
            None => matches.get_flag(option.name).then(String::new),
            Some(_) => matches.get_one::<String>(option.name).cloned(),
        };
        Ok(Self {
            row,
            dir: value(matches, "dir")?,
            listen: value(matches, "listen")?,
            limits: Limits {
                lanes: value(matches, "lanes")?,
                connections_max: value(matches, "connections")?,
                deadline_ns: nanoseconds(value(matches, "deadline")?),
                ..Limits::default()
            },
            options: row.options.iter().filter_map(|option| Some((option.name, given(option)?))).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Gateway {
    fn augment_subcommands(all: Command) -> Command {
        GATEWAYS.iter().fold(all, |all, row| all.subcommand(command(row)))
    }

    fn augment_subcommands_for_update(all: Command) -> Command {
        Self::augment_subcommands(all)
    }

    fn has_subcommand(name: &str) -> bool {
        row(name).is_some()
    }
}

/// The addresses of the gateways that `up` starts.
#[derive(Debug)]
pub(crate) struct Addresses(Vec<SocketAddr>);

impl Addresses {
    /// Returns the gateways of a service, each with its address.
    pub(crate) fn of(&self, service: ServiceName) -> Vec<(&'static GatewayRow, SocketAddr)> {
        GATEWAYS
            .iter()
            .zip(&self.0)
            .filter(|(row, _)| row.service == service)
            .map(|(row, at)| (row, *at))
            .collect()
    }
}

impl FromArgMatches for Addresses {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(GATEWAYS.iter().map(|row| value(matches, row.name)).collect::<Result<_, _>>()?))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Addresses {
    fn augment_args(command: Command) -> Command {
        GATEWAYS.iter().fold(command, |command, row| {
            let users = row.users.split(" (").next().unwrap_or_default();
            command.arg(
                Arg::new(row.name)
                    .long(row.name)
                    .value_name("ADDR")
                    .default_value(row.address().to_string())
                    .value_parser(values::address)
                    .help(format!("Address of the {} gateway, for {users}, IP:PORT", row.protocol)),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

//! The command `quorate`. Each subcommand is a file that begins with its help text. The logic is in the
//! library crates.

mod bench;
mod change;
mod clients;
mod code;
mod demo;
mod doctor;
mod explain;
mod fail;
mod fault;
mod fs;
mod gateway;
mod kv;
mod liar;
mod local;
mod log;
mod mount;
mod node;
mod out;
mod quorum;
mod sim;
mod status;
mod up;
mod values;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use nix::sys::stat::{Mode, umask};

use crate::bench::Bench;
use crate::change::{MoveReplica, Set};
use crate::clients::{AddClient, RemoveClient};
use crate::code::Code;
use crate::doctor::Doctor;
use crate::explain::Explain;
use crate::fail::{Failure, nearest};
use crate::fault::Fault;
use crate::fs::Fs;
use crate::gateway::Gateway;
use crate::kv::Kv;
use crate::mount::Mount;
use crate::node::{Init, Replica};
use crate::quorum::Quorum;
use crate::sim::Sim;
use crate::status::Status;
use crate::up::{Down, Up};

/// Run a service that tolerates Byzantine machines: replicas, gateways, tools, a simulator and benchmarks
///
/// A Byzantine machine may do anything: crash, lose its data, or send wrong answers.
///
/// Exit status: 0 success; 1 a check or an operation failed; 2 the command was refused: wrong arguments, wrong settings,
/// a problem with files, or a missing right; 3 cluster unreachable.
/// Every error has a code, such as Q004. `quorate explain Q004` describes it.
///
/// Example:
///
///   quorate up
#[derive(Parser, Debug)]
#[command(name = "quorate", version, verbatim_doc_comment, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Up(Up),
    Down(Down),
    Fault(Fault),
    Doctor(Doctor),
    Status(Status),
    Init(Init),
    Replica(Replica),
    #[command(flatten)]
    Gateway(Gateway),
    Mount(Mount),
    AddClient(AddClient),
    RemoveClient(RemoveClient),
    MoveReplica(MoveReplica),
    Set(Set),
    Kv(Kv),
    Fs(Fs),
    Sim(Sim),
    Quorum(Quorum),
    Bench(Bench),
    Explain(Explain),
}

impl Command {
    /// Lets nobody but this user read what a node writes: keys, states, logs. What the others write is the user's.
    fn privately(self) -> Self {
        if !matches!(self, Self::Fs(_) | Self::Sim(_) | Self::Bench(_)) {
            umask(Mode::from_bits_truncate(0o077));
        }
        self
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => match cli.command.privately() {
            Command::Up(up) => up.run(),
            Command::Down(down) => down.run(),
            Command::Fault(fault) => fault.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Status(status) => status.run(),
            Command::Init(init) => init.run(),
            Command::Replica(replica) => replica.run(),
            Command::Gateway(gateway) => gateway.run(),
            Command::Mount(mount) => mount.run(),
            Command::AddClient(add) => add.run(),
            Command::RemoveClient(remove) => remove.run(),
            Command::MoveReplica(change) => change.run(),
            Command::Set(set) => set.run(),
            Command::Kv(kv) => kv.run(),
            Command::Fs(fs) => fs.run(),
            Command::Sim(sim) => sim.run(),
            Command::Quorum(quorum) => quorum.run(),
            Command::Bench(bench) => bench.run(),
            Command::Explain(explain) => explain.run(),
        },
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            out::line(error.to_string().trim_end());
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(usage(&error)),
    };
    outcome.unwrap_or_else(|failure| {
        // Standard error may have no reader, either.
        let _ = writeln!(std::io::stderr(), "{failure}");
        ExitCode::from(failure.code.status())
    })
}

/// Turns an error of clap into one in our format.
#[allow(clippy::wildcard_enum_match_arm, reason = "clap has more kinds; those keep clap's wording")]
fn usage(error: &clap::Error) -> Failure {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            no_such("command", &typed, &commands(&Cli::command()))
        }
        ErrorKind::UnknownArgument => {
            let mut flags = flags(&Cli::command());
            // Of two names that are equally near, the longer one: a letter is left out more often than changed.
            flags.sort_by_key(|flag| std::cmp::Reverse(flag.len()));
            if flags.contains(&argument) {
                return Failure::new(Code::Usage, format!("this command has no flag `{argument}`"))
                    .next("see --help");
            }
            no_such("flag", &argument, &flags)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Failure::new(Code::Usage, "no command given").next("quorate --help")
        }
        ErrorKind::MissingRequiredArgument => {
            Failure::new(Code::Usage, format!("{argument} is missing")).next("add it; --help describes it")
        }
        ErrorKind::ArgumentConflict => {
            let other = context(ContextKind::PriorArg).unwrap_or_default();
            Failure::new(Code::Rule, format!("{argument} conflicts with {other}"))
                .next("give only one of them")
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if !value.is_empty() => {
            let why = std::error::Error::source(error).map(ToString::to_string);
            let valid = context(ContextKind::ValidValue).map(|valid| format!("expected one of {valid}"));
            let why = why.or(valid).unwrap_or_else(|| "invalid value".to_owned());
            Failure::new(Code::Value, format!("`{value}`: {why}")).at(argument)
        }
        ErrorKind::InvalidValue => {
            Failure::new(Code::Usage, format!("{argument} needs a value")).next("see --help")
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Failure::new(Code::Usage, line).next("see --help")
        }
    }
}

fn no_such(what: &str, typed: &str, names: &[String]) -> Failure {
    if names.iter().any(|name| name == typed) {
        return Failure::new(Code::Usage, format!("this command has no {what} `{typed}`")).next("see --help");
    }
    let names = || names.iter().map(String::as_str);
    // Prefer a name of the same length among equally near ones: letters are swapped more often than lost.
    let near = nearest(typed, names());
    let alike = nearest(typed, names().filter(|name| name.len() == typed.len()));
    let near = if what == "command" { alike.or(near) } else { near };
    let says = match near {
        Some(near) => format!("no {what} `{typed}`. Nearest: {near}"),
        None => format!("no {what} `{typed}`"),
    };
    Failure::new(Code::Usage, says).next("see --help")
}

/// The names of all commands and subcommands.
fn commands(command: &clap::Command) -> Vec<String> {
    command
        .get_subcommands()
        .flat_map(|sub| [vec![sub.get_name().to_owned()], commands(sub)].concat())
        .collect()
}

/// All flags of all commands.
fn flags(command: &clap::Command) -> Vec<String> {
    let own =
        command.get_arguments().filter_map(|argument| argument.get_long().map(|long| format!("--{long}")));
    own.chain(command.get_subcommands().flat_map(flags)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn says(line: &str) -> String {
        usage(&Cli::try_parse_from(line.split(' ')).unwrap_err()).to_string()
    }

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_typing_error_is_answered_with_the_nearest_name() {
        assert_eq!(says("quorate smi"), "error Q001: no command `smi`. Nearest: sim\n  do: see --help");
        assert!(says("quorate sim rum").contains("Nearest: run"));
        assert!(says("quorate sim run --sed 3").contains("no flag `--sed`. Nearest: --seed"));
        // Another command has it.
        let explained = says("quorate explain Q001 --dir x");
        assert!(explained.starts_with("error Q001: this command has no flag `--dir`\n"), "{explained}");
        assert!(says("quorate frobnicate").starts_with("error Q001: no command `frobnicate`\n"));
        assert!(
            says("quorate up --listen 1").starts_with("error Q001: this command has no flag `--listen`\n")
        );
    }

    #[test]
    fn a_missing_command_or_value_is_told() {
        assert!(says("quorate").starts_with("error Q001: no command given"));
        assert!(says("quorate sim run --seed").starts_with("error Q001: --seed"));
    }

    #[test]
    fn a_bad_value_is_told_with_flag_value_and_form() {
        let says = says("quorate sim run --seed 0xzz");
        assert_eq!(
            says,
            "error Q002: `0xzz`: expected a whole number, such as 7 or 0x2f81\n  --> --seed <S>\n  do: quorate explain Q002"
        );
    }

    /// Every command with its help.
    fn helps(command: &clap::Command, path: &str) -> Vec<(String, String)> {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        let help = command.clone().render_long_help().to_string();
        let below = command.get_subcommands().flat_map(|sub| helps(sub, &path));
        [(path.clone(), help)].into_iter().chain(below).collect()
    }

    /// The arguments in an example line. The command may read from a pipe.
    fn example(line: &str) -> Option<&str> {
        let piped = || line.strip_prefix("  ")?.split_once(" | quorate ").map(|(_, rest)| rest);
        line.strip_prefix("  quorate ").or_else(piped)
    }

    /// The help of a command is its documentation: an imperative line without a full stop, sentences,
    /// and an example that can be pasted.
    #[test]
    fn every_help_has_the_house_form_and_an_example_that_parses() {
        for (path, help) in helps(&Cli::command(), "") {
            let first = help.lines().next().unwrap_or_default();
            assert!(first.starts_with(char::is_uppercase) && !first.ends_with('.'), "{path}: {first}");
            let examples: Vec<&str> = help.lines().filter_map(example).collect();
            assert!(!examples.is_empty(), "{path} has no example:\n{help}");
            for example in examples {
                let words = std::iter::once("quorate").chain(example.split_whitespace());
                assert!(Cli::try_parse_from(words).is_ok(), "{path}: quorate {example}");
            }
        }
    }

    /// Commands in a document, in code blocks and code spans: behind `cargo run ... --` or `quorate`.
    fn commands_in(text: &str) -> Vec<String> {
        let mut fenced = false;
        let mut spans = Vec::new();
        for line in text.lines() {
            if line.starts_with("```") {
                fenced = !fenced;
            } else if fenced {
                spans.push(line);
            } else {
                spans.extend(line.split('`').skip(1).step_by(2));
            }
        }
        let command = |span: &&str| match span.trim().split_once(" -- ") {
            // `--example` runs another program.
            Some((cargo, _)) if cargo.contains("--example") => None,
            Some((cargo, rest)) if cargo.starts_with("cargo run") => Some(rest.to_owned()),
            _ => span.trim().strip_prefix("quorate ").map(str::to_owned),
        };
        spans.iter().filter_map(command).collect()
    }

    /// The commands in README and CONTRIBUTING exist.
    #[test]
    fn commands_in_documents_parse() {
        let documents = [include_str!("../../../README.md"), include_str!("../../../CONTRIBUTING.md")];
        let commands: Vec<String> = documents.into_iter().flat_map(commands_in).collect();
        assert!(commands.len() > 5, "{commands:?}");
        for command in commands {
            let words = std::iter::once("quorate").chain(command.split_whitespace());
            let parsed = Cli::try_parse_from(words);
            let helps = parsed.as_ref().is_err_and(|error| error.kind() == ErrorKind::DisplayHelp);
            assert!(parsed.is_ok() || helps, "quorate {command}");
        }
        assert_eq!(commands_in("quorate is `quorate sim rum`"), ["sim rum"]);
    }
}

//! `quorate quorum init`, `server` and `client`: registers on real machines.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use quorate_node::init::Host;
use quorate_node::signals;
use quorate_quorum::Protocol;
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::init::F_MAX;
use quorate_quorum_node::lie::Lie;
use quorate_quorum_node::link::Carrier;
use quorate_quorum_node::{
    CallError, Client as RegisterClient, Config, NewRegister, Server as RegisterServer, VersionedValue,
};

use super::name::{Name, VariantName, protocol};
use crate::code::Code;
use crate::fail::{CommandResult, Failure, nearest};
use crate::node::{self, Durability};
use crate::{out, values};

/// Create a new cluster for registers: one directory for each server and client
///
/// Copy each directory to its machine. Run `quorate quorum server --dir` with each directory of a server. A directory
/// holds:
///
///   node.toml       the addresses
///   cluster.toml    the public keys of all servers and clients
///   register.toml   the protocol, and which clients may read and write (by default, all may)
///   keys/           the secret key of this server or client
///
/// Example:
///
///   quorate quorum init --dir registers --protocol minimal-f
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Init {
    /// Directory to create the nodes in; must be empty or not exist
    #[arg(long)]
    dir: PathBuf,
    /// Protocol of the registers
    #[arg(long, value_enum, default_value_t = Name::MinimalF)]
    protocol: Name,
    /// Variant of bft-bc (default optimized)
    #[arg(long, value_enum)]
    variant: Option<VariantName>,
    /// Number of Byzantine servers to tolerate: f of 3f + 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(F_MAX)))]
    f: u16,
    /// Addresses of the servers, IP or IP:PORT. Give one address for each server, or one for all (default: this machine)
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    host: Vec<Host>,
    /// Number of clients to create keys for
    #[arg(long, default_value_t = 4)]
    clients: u16,
    /// What servers write to disk. sync: everything, before they answer. async: everything, but they do not wait for the
    /// disk. memory: nothing. async and memory are for measurements
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    durability: Durability,
}

/// Returns the description of a new register.
pub(super) fn new_register(protocol: Protocol, f: u16, durability: Durability) -> NewRegister {
    let lines = durability.chosen().into_iter().map(|(key, value)| format!("{key} = {value}"));
    NewRegister {
        f,
        hosts: Vec::new(),
        clients: 4,
        config: Config::new(protocol),
        lines: Vec::new(),
        server_lines: lines.collect(),
    }
}

impl Init {
    pub(super) fn run(&self) -> CommandResult {
        let mut register = new_register(protocol(self.protocol, self.variant)?, self.f, self.durability);
        register.hosts.clone_from(&self.host);
        register.clients = self.clients;
        let made = register.make(&self.dir)?;
        let (dir, name) = (self.dir.display(), register.config.protocol.name());
        out::line(format!(
            "created {dir}: {} servers of {name}, tolerates {} Byzantine",
            made.replicas.len(),
            self.f
        ));
        for (id, address) in made.replicas.iter().enumerate() {
            out::line(format!("  server-{id}  {address}"));
        }
        out::line(format!("  clients   {}, with a key each", made.clients.len()));
        out::line("");
        out::line(format!("next:  quorate quorum server --dir {dir}/server-0      and the other servers"));
        Ok(ExitCode::SUCCESS)
    }
}

/// Run one server of registers in the foreground
///
/// SIGTERM or Ctrl-C stops it. With durability "sync", a restarted server has everything that it had acknowledged,
/// even if it was killed. With "async", a clean stop loses nothing, but a server that was killed may lack its latest
/// data. With "memory", nothing is kept. When a server starts after a possible loss, it fetches all values from the
/// other servers. It answers no reads before this repair is complete.
///
/// The log goes to standard error. The variable `QUORATE_LOG` sets its level: error, warn, info (default) or debug.
///
/// Example:
///
///   quorate quorum server --dir registers/server-0
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Server {
    /// The server's directory, made by `quorate quorum init`. Required, except with `--lie list`
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run as a liar, for tests and demos. NAME is the kind of lie; `list` prints all kinds
    #[arg(long, value_name = "NAME")]
    lie: Option<String>,
    /// Use TCP for all messages. All servers and clients of the cluster must do the same
    #[arg(long)]
    tcp: bool,
}

/// Returns the way of lying with this name.
pub(super) fn lie_of(name: &str) -> Result<Lie, Failure> {
    Lie::from_name(name).ok_or_else(|| {
        let near = nearest(name, Lie::ALL.iter().map(|(_, name, _)| *name));
        let near = near.map_or(String::new(), |near| format!(". Nearest: {near}"));
        Failure::new(Code::Value, format!("no lie `{name}`{near}"))
            .at("--lie")
            .next("quorate quorum server --lie list")
    })
}

fn carrier(tcp: bool) -> Carrier {
    if tcp { Carrier::Tcp } else { Carrier::Udp }
}

impl Server {
    pub(super) fn run(&self) -> CommandResult {
        if self.lie.as_deref() == Some("list") {
            for (_, name, says) in Lie::ALL {
                out::line(format!("{name:<12}{says}"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let lie = self.lie.as_deref().map(lie_of).transpose()?;
        let dir = node::required(self.dir.as_deref())?;
        // Before any thread starts: threads inherit the signal mask.
        let stop = signals::stop_flag()?;
        crate::log::to_stderr();
        let server = RegisterServer::open(dir, lie, carrier(self.tcp))?;
        out::line(format!("{} runs, {}", server.id(), server.config().protocol.name()));
        if let Some(name) = &self.lie {
            tracing::warn!(server = %server.id(), lie = name, "lies on purpose");
            out::line(format!("{} LIES ON PURPOSE: {name}", server.id()));
        }
        server.run(&stop)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Read, write, delete or watch a register
///
/// Exit status: 0 success; 2 the operation was refused; 3 too few servers answered within the time of --deadline. After
/// status 3, a write may still take effect.
///
/// Examples:
///
///   quorate quorum client read greeting
///   quorate quorum client write greeting hello
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Client {
    #[command(subcommand)]
    what: What,
    /// The client's directory, made by `quorate quorum init` or `up`
    #[arg(long, default_value = "quorate-registers/client-0", global = true)]
    dir: PathBuf,
    /// Time to wait for the answers of servers, such as 500ms or 10s
    #[arg(long, default_value = "10s", value_parser = values::duration, value_name = "TIME", global = true)]
    deadline: Duration,
    /// Use TCP for all messages. Needs servers that were started with --tcp
    #[arg(long, global = true)]
    tcp: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Print the value of a register, or `nil` if nobody has written it or it was deleted
    ///
    /// Example:
    ///
    ///   quorate quorum client read greeting
    #[command(verbatim_doc_comment)]
    Read {
        /// Key of the register
        key: String,
    },
    /// Replace the value of a register
    ///
    /// Example:
    ///
    ///   quorate quorum client write greeting hello
    #[command(verbatim_doc_comment)]
    Write {
        /// Key of the register
        key: String,
        /// New value, at most 1 MiB
        value: String,
    },
    /// Delete the value of a register
    ///
    /// Later reads print `nil`, until somebody writes the register again. The servers keep the version number of the
    /// register, so an older write cannot undo the deletion.
    ///
    /// Example:
    ///
    ///   quorate quorum client delete greeting
    #[command(verbatim_doc_comment)]
    Delete {
        /// Key of the register
        key: String,
    },
    /// Print the value of a register, and print it again when it changes. If it is deleted, print `nil`
    ///
    /// Example:
    ///
    ///   quorate quorum client watch greeting --for 10s
    #[command(verbatim_doc_comment)]
    Watch {
        /// Key of the register
        key: String,
        /// Stop after this time (default: run until Ctrl-C)
        #[arg(long = "for", value_parser = values::duration, value_name = "TIME")]
        within: Option<Duration>,
    },
}

pub(super) fn failed(error: CallError) -> Failure {
    let code = match error {
        CallError::NotAllowed | CallError::TooLarge | CallError::Reserved => Code::Rule,
        CallError::Unavailable | CallError::Busy | CallError::Exhausted | CallError::Closed | _ => {
            Code::Unreachable
        }
    };
    Failure::new(code, error.to_string())
}

impl Client {
    pub(super) fn run(&self) -> CommandResult {
        let options = ClientOptions { deadline: self.deadline, carrier: carrier(self.tcp) };
        let client = RegisterClient::open(&self.dir, options)?;
        match &self.what {
            What::Read { key } => match client.read(key.as_bytes()).map_err(failed)? {
                Some(entry) => show(&entry),
                None => out::line("nil"),
            },
            What::Write { key, value } => {
                written(&client, &client.write(key.as_bytes(), value.as_bytes().to_vec()).map_err(failed)?)?;
            }
            What::Delete { key } => written(&client, &client.delete(key.as_bytes()).map_err(failed)?)?,
            What::Watch { key, within } => {
                let stop = signals::stop_flag()?;
                let watch = client.watch(key.as_bytes()).map_err(failed)?;
                let begin = std::time::Instant::now();
                while !stop.load(std::sync::atomic::Ordering::Relaxed)
                    && within.is_none_or(|within| begin.elapsed() < within)
                {
                    if let Some(entry) = watch.next(Duration::from_millis(50)).map_err(failed)? {
                        show(&entry);
                    }
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Says that a write has ended, and lets the servers acknowledge it that were not needed: a reader would have to write it
/// back to them.
fn written(client: &RegisterClient, entry: &VersionedValue) -> Result<(), Failure> {
    out::line(format!("ok, version {}", entry.version.val));
    client.settle(Duration::from_millis(300)).map(drop).map_err(failed)
}

/// Prints a value and a newline, whatever its bytes are.
fn show(entry: &VersionedValue) {
    let mut line = if entry.is_deleted() { b"nil".to_vec() } else { entry.value.to_vec() };
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    if output.write_all(&line).and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}

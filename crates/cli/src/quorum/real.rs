//! `quorate quorum init`, `server`, `client` and `status`: registers on real machines.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use quorate_gateways::page;
use quorate_node::init::Host;
use quorate_node::signals;
use quorate_quorum::Protocol;
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::init::F_MAX;
use quorate_quorum_node::lie::Lie;
use quorate_quorum_node::link::Carrier;
use quorate_quorum_node::note::State;
use quorate_quorum_node::{
    CallError, Client as RegisterClient, Config, NewRegister, Server as RegisterServer, VersionedValue,
};
use serde_json::json;

use super::metrics;
use super::name::{Name, VariantName, protocol};
use crate::code::Code;
use crate::fail::{CommandResult, Failure, nearest};
use crate::node::{self, Durability};
use crate::{out, values};

/// The status where nobody has answered.
const SILENT: u8 = 3;
/// How often the metrics are updated.
const EVERY: Duration = Duration::from_secs(1);
/// How long to wait for the states of servers.
const LOOK: Duration = Duration::from_secs(2);

/// Create a new cluster for registers: one directory for each server and client
///
/// Copy each directory to its machine, and start `quorate quorum server` in the directories of servers. A directory
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
/// even if it was killed. With "async", only a clean stop keeps this data. With "memory", nothing is kept. A server
/// that has lost data fetches all values from the other servers. It answers no reads before this repair is complete.
///
/// The log goes to standard error. The variable `QUORATE_LOG` sets its level: error, warn, info (default) or debug.
///
/// Example:
///
///   quorate quorum server --dir registers/server-0
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Server {
    /// The server's directory, made by `quorate quorum init`
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
        node::log_to_stderr();
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

/// Read, write or watch a register
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
    /// Print the value of a register, or `nil` if nobody has written it
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
    /// Print the value of a register, and print it again when it changes
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

fn failed(error: CallError) -> Failure {
    let code = match error {
        CallError::NotAllowed | CallError::TooLarge => Code::Rule,
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
                let entry = client.write(key.as_bytes(), value.as_bytes().to_vec()).map_err(failed)?;
                out::line(format!("ok, version {}", entry.version.val));
                // The servers that were not needed: a reader would have to write it back to them.
                client.settle(Duration::from_millis(300)).map_err(failed)?;
            }
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

/// Prints a value and a newline, whatever its bytes are.
fn show(entry: &VersionedValue) {
    let mut line = entry.value.to_vec();
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    if output.write_all(&line).and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Show the states of the servers
///
/// Asks every server for its state. A server is "silent" after 2 s without an answer. A Byzantine server may report a
/// false state.
///
/// `status` connects with the key of the client in DIR that has the highest number. No other program may use this key
/// at the same time.
///
/// Exit status: 0 all servers answer and have their data; 1 some do not; 3 no server answers.
///
/// With --serve, `status` asks the servers once a second. Each HTTP request is answered with the newest result.
///
/// Example:
///
///   quorate quorum status
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Status {
    /// Directory that holds the servers and clients
    #[arg(long, default_value = "quorate-registers")]
    dir: PathBuf,
    /// Print JSON: a line for the cluster, then a line for each server
    #[arg(long)]
    json: bool,
    /// Serve /metrics for Prometheus on IP:PORT until Ctrl-C. There is no password
    #[arg(long, value_name = "ADDR", conflicts_with = "json")]
    serve: Option<SocketAddr>,
}

impl Status {
    pub(super) fn run(&self) -> CommandResult {
        let stop = signals::stop_flag()?;
        let listener =
            self.serve.map(|address| page::listen(address, "quorate quorum status --serve")).transpose()?;
        let client = RegisterClient::open(&observer(&self.dir)?, ClientOptions::default())?;
        if let (Some(listener), Some(address)) = (listener, self.serve) {
            let newest = Arc::new(Mutex::new(String::new()));
            metrics::serve(listener, Arc::clone(&newest)).map_err(|error| {
                Failure::new(Code::Network, format!("cannot listen: {error}")).at(address.to_string())
            })?;
            out::line(format!("http://{address}/metrics"));
            return follow(&client, &stop, &newest);
        }
        let seen = Seen::look(&client)?;
        if self.json {
            seen.json().iter().for_each(out::line);
        } else {
            seen.lines().iter().for_each(out::line);
        }
        Ok(ExitCode::from(seen.status()))
    }
}

/// Asks the servers again and again, and prints the headline when it changes.
fn follow(client: &RegisterClient, stop: &AtomicBool, newest: &Mutex<String>) -> CommandResult {
    let mut last = String::new();
    while !stop.load(Ordering::Relaxed) {
        let seen = Seen::look(client)?;
        *newest.lock().unwrap_or_else(PoisonError::into_inner) = seen.metrics();
        let line = seen.headline();
        if line != last {
            out::line(&line);
            last = line;
        }
        let begin = Instant::now();
        while begin.elapsed() < EVERY && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the directory of the client with the highest number: the others are for users.
pub(super) fn observer(dir: &Path) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let clients = entries.filter_map(|entry| {
        let number: u64 = entry.file_name().to_str()?.strip_prefix("client-")?.parse().ok()?;
        entry.path().is_dir().then(|| (number, entry.path()))
    });
    clients.max().map(|(_, path)| path).ok_or_else(|| {
        Failure::new(Code::Unreadable, "no register here")
            .at(dir.display().to_string())
            .next("quorate quorum up      or name the register's directory with --dir")
    })
}

/// What the servers have said of themselves.
#[derive(Debug)]
pub(super) struct Seen {
    servers: usize,
    protocol: &'static str,
    states: Vec<(usize, State)>,
}

impl Seen {
    pub(super) fn look(client: &RegisterClient) -> Result<Self, Failure> {
        let states = client.states(LOOK).map_err(failed)?;
        let states = states.into_iter().map(|(server, state)| (server.index(), state)).collect();
        Ok(Self { servers: client.servers(), protocol: client.config().protocol.name(), states })
    }

    fn working(&self) -> usize {
        self.states.iter().filter(|(_, state)| !state.lost).count()
    }

    fn metrics(&self) -> String {
        let margin = ((self.servers - 1) / 3).saturating_sub(self.servers - self.working());
        let Self { servers, states, .. } = self;
        metrics::text(metrics::Said { verdict: self.verdict(), margin, servers: *servers, states })
    }

    fn verdict(&self) -> &'static str {
        let f = (self.servers - 1) / 3;
        match self.working() {
            all if all == self.servers => "HEALTHY",
            some if some + f >= self.servers => "DEGRADED",
            _ => "HALTED",
        }
    }

    pub(super) fn status(&self) -> u8 {
        match self.working() {
            0 if self.states.is_empty() => SILENT,
            all if all == self.servers => 0,
            _ => 1,
        }
    }

    pub(super) fn headline(&self) -> String {
        let objects = self.states.iter().map(|(_, state)| state.objects).max().unwrap_or(0);
        let (working, n, s) = (self.working(), self.servers, if objects == 1 { "" } else { "s" });
        format!("{}  {working} of {n} servers answer and have their data; {objects} key{s}", self.verdict())
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}  {}", self.protocol, self.headline())];
        lines.push(format!(
            "  {:<8}{:<12}{:>8}{:>12}{:>12}{:>10}{:>10}",
            "server", "state", "keys", "bytes", "log bytes", "accepted", "refused"
        ));
        for id in 0..self.servers {
            let Some((_, state)) = self.states.iter().find(|(server, _)| *server == id) else {
                lines.push(format!("  {id:<8}silent"));
                continue;
            };
            let word = match (state.lost, state.repaired) {
                (true, _) => "lost disk",
                (false, true) => "repaired",
                (false, false) => "runs",
            };
            lines.push(format!(
                "  {id:<8}{word:<12}{:>8}{:>12}{:>12}{:>10}{:>10}",
                state.objects, state.bytes, state.log_bytes, state.taken, state.refused
            ));
        }
        lines
    }

    fn json(&self) -> Vec<serde_json::Value> {
        let all = json!({
            "protocol": self.protocol, "verdict": self.verdict(), "servers": self.servers, "working": self.working(),
        });
        let each = self.states.iter().map(|(id, state)| {
            json!({
                "server": id, "up_ms": state.up_ms, "keys": state.objects, "bytes": state.bytes,
                "log_bytes": state.log_bytes, "taken": state.taken, "refused": state.refused,
                "watchers": state.watchers, "lost": state.lost, "repaired": state.repaired,
            })
        });
        std::iter::once(all).chain(each).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A machine may have the directory of one client only, whatever its number.
    #[test]
    fn status_takes_the_client_with_the_highest_number() {
        let dir = std::env::temp_dir().join(format!("quorate-observer-{}", std::process::id()));
        assert!(observer(&dir).is_err(), "nothing is here");
        for name in ["client-2", "client-10", "client-x", "server-30"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("client-11"), "a file").unwrap();
        assert_eq!(observer(&dir).ok(), Some(dir.join("client-10")));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

//! `quorate quorum status`: what the servers say of themselves and of each other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use quorate_gateways::page;
use quorate_node::members::client_name;
use quorate_node::signals;
use quorate_quorum_node::Client as RegisterClient;
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::note::State;
use quorate_quorum_node::suspicion::{self, Suspicion};
use serde_json::json;

use super::metrics;
use super::real::failed;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::{out, values};

/// The status where nobody has answered.
const SILENT: u8 = 3;
/// How often the metrics are updated.
const EVERY: Duration = Duration::from_secs(1);
/// How long to wait for the states of servers.
const LOOK: Duration = Duration::from_secs(2);

/// Show the states of the servers
///
/// Asks every server for its state. A server is "silent" after 2 s without an answer. A Byzantine server may report a
/// false state.
///
/// A server is shown as SUSPECT if other servers or clients reported in the last 10 minutes that it sent invalid
/// signatures or wrong versions of a register. A Byzantine client or server can make such a report about a correct
/// server.
///
/// The verdict is HEALTHY if all servers answer and have their data, and none is suspected. Otherwise it is DEGRADED if
/// at least 2f + 1 servers answer and have their data, and HALTED if fewer do.
///
/// `status` connects with the key of the client in DIR that has the highest number. No other program may use this key
/// at the same time.
///
/// Exit status: 0 all servers answer and have their data, and none is suspected; 1 otherwise; 3 no server answers.
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
    #[arg(long, value_parser = values::address, value_name = "ADDR", conflicts_with = "json")]
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

/// Returns the directories of the clients on this machine, with their numbers.
pub(super) fn clients(dir: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| {
        let number: u64 = entry.file_name().to_str()?.strip_prefix("client-")?.parse().ok()?;
        entry.path().is_dir().then(|| (number, entry.path()))
    });
    let mut clients: Vec<_> = numbered.collect();
    clients.sort();
    clients
}

/// Returns the directory of the client with the highest number: the others are for users.
pub(super) fn observer(dir: &Path) -> Result<PathBuf, Failure> {
    clients(dir).pop().map(|(_, path)| path).ok_or_else(|| {
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
    suspicions: Vec<Suspicion>,
}

impl Seen {
    pub(super) fn look(client: &RegisterClient) -> Result<Self, Failure> {
        let states = client.states(LOOK).map_err(failed)?;
        let servers = client.servers();
        let said = states.iter().map(|(server, state)| (*server, &*state.suspicions));
        let suspicions = suspicion::together(said, (servers - 1) / 3 + 1);
        let states = states.into_iter().map(|(server, state)| (server.index(), state)).collect();
        Ok(Self { servers, protocol: client.config().protocol.name(), states, suspicions })
    }

    /// Returns how many Byzantine servers the registers tolerate.
    fn f(&self) -> usize {
        (self.servers - 1) / 3
    }

    fn working(&self) -> usize {
        self.states.iter().filter(|(_, state)| !state.lost).count()
    }

    /// Returns the servers that do not count as correct: they do not work, or are suspected.
    fn faulty(&self) -> usize {
        let works = |id: usize| self.states.iter().any(|(server, state)| *server == id && !state.lost);
        (0..self.servers).filter(|id| !works(*id) || self.is_suspect(*id)).count()
    }

    fn is_suspect(&self, id: usize) -> bool {
        self.suspicions.iter().any(|one| one.server.index() == id)
    }

    /// Says whether all servers answer and have their data.
    pub(super) fn all_work(&self) -> bool {
        self.working() == self.servers
    }

    fn metrics(&self) -> String {
        let margin = self.f().saturating_sub(self.faulty());
        let Self { servers, states, suspicions, .. } = self;
        metrics::text(metrics::Said {
            verdict: self.verdict(),
            margin,
            servers: *servers,
            states,
            suspicions,
        })
    }

    /// A suspicion alone does not halt the registers: it may be the word of a client that lies.
    fn verdict(&self) -> &'static str {
        match self.working() {
            _ if self.faulty() == 0 => "HEALTHY",
            some if some + self.f() >= self.servers => "DEGRADED",
            _ => "HALTED",
        }
    }

    fn status(&self) -> u8 {
        match self.working() {
            0 if self.states.is_empty() => SILENT,
            _ if self.faulty() == 0 => 0,
            _ => 1,
        }
    }

    pub(super) fn headline(&self) -> String {
        let objects = self.states.iter().map(|(_, state)| state.objects).max().unwrap_or(0);
        let (working, n, s) = (self.working(), self.servers, if objects == 1 { "" } else { "s" });
        let suspects: Vec<String> =
            (0..n).filter(|id| self.is_suspect(*id)).map(|id| format!("; SUSPECT server {id}")).collect();
        format!(
            "{}  {working} of {n} servers answer and have their data; {objects} key{s}{}",
            self.verdict(),
            suspects.concat()
        )
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
        for one in &self.suspicions {
            let (id, says, count) = (one.server.index(), one.wrong.says(), one.count);
            lines.push(format!("  SUSPECT server {id}: {says}: {count}, seen by {}", witness(one)));
        }
        lines
    }

    fn json(&self) -> Vec<serde_json::Value> {
        let suspects = self.suspicions.iter().map(|one| {
            json!({
                "server": one.server.index(), "reason": one.wrong.name(), "count": one.count, "witness": witness(one),
            })
        });
        let all = json!({
            "protocol": self.protocol, "verdict": self.verdict(), "servers": self.servers, "working": self.working(),
            "suspects": suspects.collect::<Vec<_>>(),
        });
        let each = self.states.iter().map(|(id, state)| {
            json!({
                "server": id, "up_ms": state.up_ms, "keys": state.objects, "bytes": state.bytes,
                "log_bytes": state.log_bytes, "taken": state.taken, "refused": state.refused,
                "watchers": state.watchers, "lost": state.lost, "repaired": state.repaired,
                "suspect": self.is_suspect(*id),
            })
        });
        std::iter::once(all).chain(each).collect()
    }
}

/// Returns the name of the client or server that has seen something.
fn witness(one: &Suspicion) -> String {
    match u16::try_from(one.witness) {
        Ok(server) => format!("server {server}"),
        Err(_) => client_name((one.witness >> 16).saturating_sub(1)),
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

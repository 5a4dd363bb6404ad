//! `quorate resp`: the RESP gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use quorate_gateways::front::{self, Limits};
use quorate_gateways::resp::{self, Options};
use quorate_node::settings::ServiceName;
use quorate_node::trouble::Kind;
use quorate_node::{Trouble, signals};

use crate::fail::Outcome;
use crate::node::open_client;
use crate::out;

/// Run a RESP gateway for Redis clients
///
/// The gateway is a client of the cluster, and accepts a result only if enough replicas agree on it. Its users trust
/// the gateway itself, so run one on each machine that uses the cluster. Supported commands:
///
///   PING, ECHO, HELLO 2, AUTH, SELECT 0, SET (NX, XX, EX, PX, GET), GET, GETDEL, DEL, EXISTS, INCR, DECR, INCRBY,
///   APPEND, STRLEN, MGET, MSET, EXPIRE, TTL, PERSIST, DBSIZE, FLUSHALL, INFO, CONFIG GET, COMMAND, CLIENT
///
/// A pipeline is executed in order, as one operation. Two errors report problems of the cluster: -TRYAGAIN means
/// that nothing was changed, -UNKNOWN that the command may or may not take effect.
///
///   quorate resp --dir cluster/client-0 --listen 127.0.0.1:6380
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Resp {
    /// The client's directory, made by `quorate init`
    #[arg(long)]
    dir: PathBuf,
    /// Address for Redis clients, IP:PORT
    #[arg(long, default_value = "127.0.0.1:6380", value_name = "ADDR")]
    listen: SocketAddr,
    /// File with the password for AUTH, mode 0600 (default: no password)
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Maximum number of connections
    #[arg(long, default_value_t = Limits::default().connections_max)]
    connections: usize,
    /// Maximum number of operations in progress, at most one for each connection
    #[arg(long, default_value_t = Limits::default().lanes)]
    lanes: u16,
}

impl Resp {
    pub(crate) fn run(&self) -> Outcome {
        let stop = signals::stop_flag()?;
        let password = self.password_file.as_deref().map(resp::read_password).transpose()?;
        let node = open_client(&self.dir, ServiceName::Kv)?;
        let limits = Limits { lanes: self.lanes, connections_max: self.connections, ..Limits::default() };
        let client = node.with_lanes(limits.lanes);
        let waiting = client.waiting;
        let mut door = resp::open(self.listen, Options { limits, password }, client.drive, client.socket)
            .map_err(|error| front::not_open("RESP", self.listen, &error))?;
        out::line(format!("RESP  {}     redis-cli -p {}", self.listen, self.listen.port()));
        door.run(waiting, &stop).map_err(|error| Trouble::new(Kind::Network, error.to_string()))?;
        drop(client.lock);
        Ok(ExitCode::SUCCESS)
    }
}

//! `quorate init` and `quorate replica`: nodes and their directories.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, ValueEnum};
use quorate_node::error::NodeErrorKind;
use quorate_node::init::{Host, NewCluster};
use quorate_node::settings::{self, ServiceName};
use quorate_node::{ClientNode, NodeError, ReplicaNode, descriptors, replica, signals};

use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::liar::{self, Way};
use crate::{log, out, values};

/// Create a new cluster: one directory for each node
///
/// The cluster has 3f + 1 replicas and tolerates f Byzantine ones. The nodes are these replicas, and the clients.
///
/// Each directory holds node.toml (the node's own settings), cluster.toml (the public keys of all nodes, and the
/// settings that must be the same on all nodes) and the node's secret key. The file of the secret key has mode 0600.
/// Copy each directory to its machine. Run `quorate replica --dir` with each directory of a replica. Run a gateway or
/// another client program with each directory of a client.
///
/// Example:
///
///   quorate init --dir cluster --f 1
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Init {
    /// Directory to create the nodes in; must be empty or not exist
    #[arg(long)]
    dir: PathBuf,
    /// Number of Byzantine replicas to tolerate
    #[arg(long, default_value_t = 1)]
    f: u16,
    /// Addresses of the replicas, IP, IP:PORT or a name (default: this machine). Give one address for each replica, or
    /// one for all: they then use its IP address and successive ports. `init` looks up the address of a name
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    host: Vec<Host>,
    /// Number of clients to create. Each gateway and each other client program needs a client of its own
    #[arg(long, default_value_t = 2)]
    clients: u16,
    /// Addresses of the clients, if they do not run on the machines of the replicas. Give one address for each client, or
    /// one for all: they then use its IP address and successive ports
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    client_host: Vec<Host>,
    /// Service to replicate
    #[arg(long, value_parser = values::service(), default_value = "kv", value_name = "SERVICE")]
    service: ServiceName,
    /// What replicas write to disk. sync: everything, before they answer. async: everything, but they do not wait for the
    /// disk. memory: nothing. async and memory are for measurements
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    durability: Durability,
    /// Another setting, such as window=4096. `init` writes a setting that must be the same on all nodes to cluster.toml,
    /// and any other setting to node.toml. Some settings exist only in the node.toml of replicas. Can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Run one replica in the foreground
///
/// SIGTERM or Ctrl-C stops it cleanly: if it is the primary, it first hands over to the next primary.
///
/// With durability "sync", a restarted replica has everything that it had acknowledged, even if it was killed. With
/// "async", a clean stop loses nothing, but a replica that was killed may lack its latest data. With "memory", nothing
/// is kept. When a replica starts after a possible loss, it fetches the state from the others, and does not vote before
/// it has the state.
///
/// The log goes to standard error. The variable `QUORATE_LOG` sets its level: error, warn, info (default) or debug. With
/// `QUORATE_LOG_FORMAT=json`, each line is a JSON object.
///
/// Example:
///
///   quorate replica --dir cluster/replica-0
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Replica {
    /// The replica's directory, made by `quorate init`. Required, except with `--liar list`
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run as a liar, for tests and demos. NAME is the kind of lie; `list` prints all kinds. A liar counts as one of the
    /// f Byzantine replicas
    #[arg(long, value_name = "NAME")]
    liar: Option<String>,
    /// Seed for a liar's random choices
    #[arg(long, value_parser = values::seed, default_value = "1")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Durability {
    Sync,
    Async,
    Memory,
}

impl Durability {
    /// Returns it as the protocol has it.
    pub(crate) fn config(self) -> quorate_pbft::config::Durability {
        use quorate_pbft::config::Durability as Config;
        match self {
            Self::Sync => Config::Sync,
            Self::Async => Config::Async,
            Self::Memory => Config::Memory,
        }
    }

    /// Returns the line of `node.toml`, if it is not the default.
    pub(crate) fn chosen(self) -> Option<(&'static str, String)> {
        let value = match self {
            Self::Sync => return None,
            Self::Async => "\"async\"",
            Self::Memory => "\"memory\"",
        };
        Some(("durability", value.to_owned()))
    }
}

impl Init {
    pub(crate) fn run(&self) -> CommandResult {
        if self.f == 0 {
            return Err(Failure::new(Code::Rule, "f = 0: must be at least 1")
                .at("--f 0")
                .next("--f 1, which needs 4 replicas"));
        }
        let mut cluster = NewCluster::local(self.f);
        cluster.hosts.clone_from(&self.host);
        cluster.clients = self.clients;
        cluster.client_hosts.clone_from(&self.client_host);
        cluster.service = self.service;
        cluster.chosen = self.durability.chosen().into_iter().collect();
        let set = self.set.iter().map(|text| settings::chosen(text).map_err(|trouble| trouble.at("--set")));
        cluster.chosen.extend(set.collect::<Result<Vec<_>, _>>()?);
        let made = cluster.make(&self.dir)?;
        let dir = self.dir.display();
        let n = made.replicas.len();
        out::line(format!("created {dir}: {n} replicas, {}", tolerates(usize::from(self.f))));
        let list = |addresses: &[std::net::SocketAddr], letter: char| {
            let each = addresses.iter().enumerate().map(|(i, address)| format!("{letter}{i} {address}"));
            each.collect::<Vec<_>>().join("  ")
        };
        out::line(format!("  replicas  {}", list(&made.replicas, 'r')));
        out::line(format!("  clients   {}", list(&made.clients, 'c')));
        out::line(format!("  keys      {} keys, mode 0600, in {dir}/*/keys", n + made.clients.len()));
        if made.replicas.iter().any(|address| !address.ip().is_loopback()) {
            out::line(
                "  links     authenticated, not encrypted: let only the nodes reach these ports, UDP and TCP",
            );
        }
        out::line("");
        out::line(format!(
            "next:  quorate replica --dir {dir}/replica-0      and the other replicas, each on its machine"
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the directory that a process of a node needs, unless it only lists something.
pub(crate) fn required(dir: Option<&Path>) -> Result<&Path, Failure> {
    dir.ok_or_else(|| Failure::new(Code::Usage, "--dir <DIR> is missing").next("add it; --help describes it"))
}

impl Replica {
    pub(crate) fn run(&self) -> CommandResult {
        if self.liar.as_deref() == Some("list") {
            liar::list();
            return Ok(ExitCode::SUCCESS);
        }
        let way = self.liar.as_deref().map(Way::read).transpose()?;
        let dir = required(self.dir.as_deref())?;
        descriptors::raise();
        // Before any thread starts: threads inherit the signal mask.
        let stop = signals::stop_flag()?;
        log::to_stderr();
        let node = ReplicaNode::open(dir)?;
        let settings = node.settings();
        let durability = format!("{:?}", settings.config.durability).to_lowercase();
        out::line(format!(
            "{} listens on {}, service {}, durability {durability}: {}",
            node.id(),
            settings.listen,
            settings.service.name(),
            replica::in_words(settings.config.durability)
        ));
        let Some(way) = way else {
            node.run(&stop)?;
            return Ok(ExitCode::SUCCESS);
        };
        let (id, told) = (node.id(), Arc::new(AtomicU64::new(0)));
        tracing::warn!(replica = %id, liar = way.name, seed = self.seed, "lies on purpose: {}", way.says());
        out::line(format!("{id} LIES ON PURPOSE: {}", way.says()));
        let count = Arc::clone(&told);
        node.run_as(|replica, signer, config| way.put(replica, signer, config, self.seed, count), &stop)?;
        tracing::warn!(replica = %id, told = told.load(Ordering::Relaxed), "lies no more");
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns how many Byzantine replicas a cluster tolerates, as text.
pub(crate) fn tolerates(f: usize) -> String {
    let replicas = if f == 1 { "replica" } else { "replicas" };
    format!("tolerates {f} Byzantine {replicas}")
}

/// Opens the client in `dir`, whose cluster must run this service.
pub(crate) fn open_client(dir: &Path, service: ServiceName) -> Result<ClientNode, Failure> {
    let node = ClientNode::open(dir)?;
    let runs = node.settings().service;
    if runs == service {
        return Ok(node);
    }
    let what = format!("the cluster runs the service {}; this command needs {}", runs.name(), service.name());
    Err(NodeError::new(NodeErrorKind::Rule, what).in_file(&dir.join("node.toml")).into())
}

/// The system's text for EMFILE. The one for ENFILE begins with it.
const OUT_OF_DESCRIPTORS: &str = "Too many open files";

impl From<NodeError> for Failure {
    fn from(trouble: NodeError) -> Self {
        let code = match trouble.kind {
            NodeErrorKind::Value => Code::Value,
            NodeErrorKind::Taken => Code::Taken,
            NodeErrorKind::Rule => Code::Rule,
            NodeErrorKind::Setting => Code::Setting,
            NodeErrorKind::Exposed => Code::Exposed,
            NodeErrorKind::Unreadable => Code::Unreadable,
            NodeErrorKind::Unwritable => Code::Unwritable,
            NodeErrorKind::WrongKey => Code::WrongKey,
            NodeErrorKind::OtherFormat => Code::OtherFormat,
            NodeErrorKind::OtherState => Code::OtherState,
            NodeErrorKind::Timestamps => Code::Timestamps,
            NodeErrorKind::Occupied => Code::Occupied,
            NodeErrorKind::InUse => Code::InUse,
            NodeErrorKind::Disk => Code::Disk,
            NodeErrorKind::Network => Code::Network,
        };
        let failure = Self { code, what: trouble.what, place: trouble.place, next: trouble.next };
        if failure.what.contains(OUT_OF_DESCRIPTORS) {
            // Which file or socket met the limit first is chance: one code, and advice about the limit.
            let next = "raise this user's limit of open files, for example: ulimit -n 4096";
            return Self { code: Code::Network, ..failure.next(next) };
        }
        failure
    }
}

//! `quorate init` and `quorate replica`: nodes and their directories.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, ValueEnum};
use quorate_node::init::{Host, NewCluster};
use quorate_node::settings::ServiceName;
use quorate_node::trouble::Kind;
use quorate_node::{ClientNode, ReplicaNode, Trouble, replica, signals};
use tracing_subscriber::EnvFilter;

use crate::explain::Code;
use crate::fail::{Failure, Outcome};
use crate::liar::{self, Way};
use crate::{out, values};

/// Make the directories of a new cluster, one for each node
///
/// Each gets a node.toml with its settings, a cluster.toml with everyone's public keys, and its own secret
/// key with mode 0600. Copy each directory to its machine, and start it there with `quorate replica`.
/// There are 3f + 1 replicas; f of them may crash, lie or be taken over.
///
///   quorate init --dir cluster --f 1
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Init {
    /// Where to make them; empty, or not there yet
    #[arg(long)]
    dir: PathBuf,
    /// Faulty replicas to tolerate
    #[arg(long, default_value_t = 1)]
    f: u16,
    /// Where the replicas are, IP or IP:PORT: none for this machine, one for all of them, or one each
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    host: Vec<Host>,
    /// How many clients get a key; each door or other client needs one of its own
    #[arg(long, default_value_t = 2)]
    clients: u16,
    /// What is replicated
    #[arg(long, value_enum, default_value_t = Service::Kv)]
    service: Service,
    /// What is on disk before it is promised: sync is everything, async and memory are for measuring
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    durability: Durability,
}

/// Run one replica in the foreground
///
/// It stops cleanly on SIGTERM or Ctrl-C: the primary hands over, and everything is written. Killed in any
/// other way it comes back with all that it had promised, or it notices that it cannot, and rejoins from
/// the others. Its log goes to standard error; the variable `QUORATE_LOG` says how much (error, warn, info, debug).
///
///   quorate replica --dir cluster/replica-0
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Replica {
    /// The replica's directory, as `quorate init` made it
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Lie on purpose, for tests and demonstrations: `list` says how one can; it counts as one of the f
    #[arg(long, value_name = "NAME")]
    liar: Option<String>,
    /// What a liar's chance follows from
    #[arg(long, value_parser = values::seed, default_value = "1")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Service {
    /// A file system
    Fs,
    /// A key-value store
    Kv,
    /// Nothing at all, for measuring
    Null,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Durability {
    Sync,
    Async,
    Memory,
}

impl Service {
    pub(crate) fn name(self) -> ServiceName {
        match self {
            Self::Fs => ServiceName::Fs,
            Self::Kv => ServiceName::Kv,
            Self::Null => ServiceName::Null,
        }
    }
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
    pub(crate) fn run(&self) -> Outcome {
        if self.f == 0 {
            return Err(Failure::new(
                Code::Rule,
                "f = 0: a cluster that tolerates nothing needs no protocol",
            )
            .at("--f 0")
            .next("--f 1, which takes 4 replicas"));
        }
        let mut cluster = NewCluster::local(self.f);
        cluster.hosts.clone_from(&self.host);
        cluster.clients = self.clients;
        cluster.service = self.service.name();
        cluster.chosen = self.durability.chosen().into_iter().collect();
        let made = cluster.make(&self.dir)?;
        let dir = self.dir.display();
        let n = made.replicas.len();
        out::line(format!(
            "made {dir}: {n} replicas, f = {} ({})",
            self.f,
            match self.f {
                1 => "one of them may crash, lie or be taken over".to_owned(),
                f => format!("{f} of them may crash, lie or be taken over"),
            }
        ));
        let list = |addresses: &[std::net::SocketAddr], letter: char| {
            let each = addresses.iter().enumerate().map(|(i, address)| format!("{letter}{i} {address}"));
            each.collect::<Vec<_>>().join("  ")
        };
        out::line(format!("  replicas  {}", list(&made.replicas, 'r')));
        out::line(format!("  clients   {}", list(&made.clients, 'c')));
        out::line(format!("  keys      {} keys, mode 0600, in {dir}/*/keys", n + made.clients.len()));
        out::line("");
        out::line(format!(
            "next:  quorate replica --dir {dir}/replica-0      and so on, each where it belongs"
        ));
        Ok(ExitCode::SUCCESS)
    }
}

impl Replica {
    pub(crate) fn run(&self) -> Outcome {
        if self.liar.as_deref() == Some("list") {
            liar::list();
            return Ok(ExitCode::SUCCESS);
        }
        let way = self.liar.as_deref().map(Way::read).transpose()?;
        let Some(dir) = &self.dir else {
            return Err(Failure::new(Code::Usage, "--dir <DIR> is missing").next("add it, or see --help"));
        };
        // Before any thread: threads inherit who takes signals.
        let stop = signals::stop_flag()?;
        let filter = EnvFilter::try_from_env("QUORATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .init();
        let node = ReplicaNode::open(dir)?;
        let settings = node.settings();
        out::line(format!(
            "{} listens at {}, service {}, durability {:?}: {}",
            node.id(),
            settings.listen,
            settings.service.name(),
            settings.config.durability,
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

/// Opens the client in `dir`, whose cluster has to run this service.
pub(crate) fn open_client(dir: &Path, service: ServiceName) -> Result<ClientNode, Failure> {
    let node = ClientNode::open(dir)?;
    let runs = node.settings().service;
    if runs == service {
        return Ok(node);
    }
    let what = format!("the cluster runs the service {}, and this needs {}", runs.name(), service.name());
    Err(Trouble::new(Kind::Rule, what).in_file(&dir.join("node.toml")).into())
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        let code = match trouble.kind {
            Kind::Value => Code::Value,
            Kind::Taken => Code::Taken,
            Kind::Rule => Code::Rule,
            Kind::Setting => Code::Setting,
            Kind::Exposed => Code::Exposed,
            Kind::Unreadable => Code::Unreadable,
            Kind::Unwritable => Code::Unwritable,
            Kind::WrongKey => Code::WrongKey,
            Kind::OtherFormat => Code::OtherFormat,
            Kind::OtherState => Code::OtherState,
            Kind::Timestamps => Code::Timestamps,
            Kind::Occupied => Code::Occupied,
            Kind::InUse => Code::InUse,
            Kind::Disk => Code::Disk,
            Kind::Network => Code::Network,
        };
        Self { code, what: trouble.what, place: trouble.place, next: trouble.next }
    }
}

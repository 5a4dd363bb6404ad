//! Looking at a cluster: asks its replicas, has a few operations of its own done, reads what clients have
//! seen, and judges.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quorate_service::kv::Operation;
use quorate_wire::Cluster;
use quorate_wire::message::Statement;

use super::ledger;
use super::model::{Picture, Reading, judge};
use crate::caller::{Caller, Options};
use crate::client_node::ClientNode;
use crate::members::client_number;
use crate::settings::ServiceName;
use crate::trouble::{Kind, Trouble};

/// A replica that says nothing for so long is silent.
pub const PATIENCE: Duration = Duration::from_millis(700);
/// How long an operation of the reader's own may take before the cluster counts as halted.
pub const DEADLINE: Duration = Duration::from_secs(3);

/// How long an operation took on each path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// One that was ordered.
    pub ordered: Option<Duration>,
    /// One that was only to be read.
    pub read_only: Option<Duration>,
}

/// Looks at a cluster, as often as it is asked to.
#[derive(Debug)]
pub struct Observer {
    caller: Caller,
    cluster: Cluster,
    /// The directory in which the clients' directories are.
    dir: PathBuf,
    service: ServiceName,
}

impl Observer {
    /// Opens a client of the cluster in `dir` that nobody uses, the last one first: the first ones are doors.
    ///
    /// # Errors
    ///
    /// There is no client's directory, none of them is free, or one is wrong.
    pub fn open(dir: &Path) -> Result<Self, Trouble> {
        let mut names: Vec<(u64, PathBuf)> = Vec::new();
        let entries = std::fs::read_dir(dir).map_err(|error| {
            Trouble::unreadable(dir, &error).next("name the cluster's directory with --dir")
        })?;
        for entry in entries.flatten() {
            if let Some(number) = entry.file_name().to_str().and_then(client_number) {
                names.push((number, entry.path()));
            }
        }
        names.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let mut last = None;
        for (_, path) in &names {
            match ClientNode::open(path) {
                Ok(node) => return Self::start(node, dir),
                Err(trouble) if matches!(trouble.kind, Kind::InUse | Kind::Taken) => last = Some(trouble),
                Err(trouble) => return Err(trouble),
            }
        }
        Err(match last {
            Some(trouble) => Trouble {
                what: format!("all {} clients of this cluster are in use", names.len()),
                ..trouble.in_file(dir).next(
                    "stop one of their programs, or look at http://127.0.0.1:9640 where `quorate up` runs",
                )
            },
            None => Trouble::new(Kind::Unreadable, "there is no client's directory: client-0, client-1, ...")
                .in_file(dir)
                .next("name the cluster's directory with --dir"),
        })
    }

    /// Looks through a client that is open, at the cluster in `dir`.
    ///
    /// # Errors
    ///
    /// As [`Caller::start`].
    pub fn start(node: ClientNode, dir: &Path) -> Result<Self, Trouble> {
        let options = Options { lanes: 2, deadline: DEADLINE };
        let (cluster, service) = (node.settings().config.cluster, node.settings().service);
        let caller = Caller::start(node.with_lanes(options.lanes), options)?;
        Ok(Self { caller, cluster, dir: dir.to_path_buf(), service })
    }

    /// Returns the size of the cluster.
    pub fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// Returns the directory of the cluster.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the service that it runs.
    pub fn service(&self) -> ServiceName {
        self.service
    }

    /// Asks the replicas, and judges.
    pub fn look(&self) -> Picture {
        self.judge(self.ask(), None)
    }

    /// Asks the replicas, has operations done, and judges. A cluster none of whose replicas says anything is not
    /// asked for more.
    pub fn look_well(&self) -> (Picture, Latency) {
        let statements = self.ask();
        if statements.iter().all(Option::is_none) {
            return (self.judge(statements, None), Latency::default());
        }
        let latency = self.try_out();
        (self.judge(statements, Some(latency.ordered.is_some())), latency)
    }

    fn ask(&self) -> Vec<Option<Statement>> {
        self.caller.statements(PATIENCE).into_iter().map(|heard| Some(heard?.statement)).collect()
    }

    fn judge(&self, statements: Vec<Option<Statement>>, answered: Option<bool>) -> Picture {
        let evidence = ledger::of_all(&self.dir);
        judge(Reading { cluster: self.cluster, statements, evidence, answered, now_s: now_s() })
    }

    /// Has an operation done on each path: one that changes nothing, whatever the service. None if it was not
    /// done in time.
    pub fn try_out(&self) -> Latency {
        let mut operation = Vec::new();
        if self.service == ServiceName::Kv {
            Operation::Get { key: b"\0quorate watches" }.encode(&mut operation);
        }
        // Else no operation at all: every service refuses it, in agreement.
        let took = |read_only| {
            let begin = Instant::now();
            self.caller.call(&operation, read_only).ok().map(|_| begin.elapsed())
        };
        let ordered = took(false);
        // One that waits for as long again says nothing more.
        Latency { ordered, read_only: if ordered.is_some() { took(true) } else { None } }
    }
}

/// Returns the time of day, in seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

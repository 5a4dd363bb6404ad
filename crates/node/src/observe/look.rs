//! Observing a cluster: asks its replicas, runs two probe operations, reads the clients' evidence, and computes the
//! verdict.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorate_wire::Cluster;

use super::model::{Picture, Reading, judge};
use super::probe::{LANES, Latency, Probe, ProbeOutcomes, Tried};
use crate::error::{NodeError, NodeErrorKind};
use crate::home::members::client_number;
use crate::run::caller::{Caller, CallerOptions, Heard};
use crate::run::client_node::ClientNode;
use crate::services::ServiceName;

/// A replica is silent after this time without an answer.
pub const PATIENCE: Duration = Duration::from_millis(700);
/// A cluster counts as halted if a probe operation takes longer than this.
pub const DEADLINE: Duration = Duration::from_secs(3);

/// Observes a cluster on demand.
#[derive(Debug)]
pub struct Observer {
    caller: Caller,
    probe: Probe,
    cluster: Cluster,
    /// The directory that holds the clients' directories.
    dir: PathBuf,
    service: ServiceName,
}

impl Observer {
    /// Opens a free client of the cluster in `dir`, the last one first: gateways use the first ones.
    ///
    /// # Errors
    ///
    /// No client's directory exists, none of them is free, or one is invalid.
    pub fn open(dir: &Path) -> Result<Self, NodeError> {
        let mut names: Vec<(u64, PathBuf)> = Vec::new();
        let entries = std::fs::read_dir(dir).map_err(|error| {
            NodeError::unreadable(dir, &error).next("name the cluster's directory with --dir")
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
                Err(trouble) if matches!(trouble.kind, NodeErrorKind::InUse | NodeErrorKind::Taken) => {
                    last = Some(trouble);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(match last {
            Some(trouble) => NodeError {
                what: format!("all {} clients of this cluster are in use", names.len()),
                ..trouble
                    .in_file(dir)
                    .next("stop a program that uses one, or open http://127.0.0.1:9640 if `quorate up` runs")
            },
            None => NodeError::new(
                NodeErrorKind::Unreadable,
                "no client's directory found: client-0, client-1, ...",
            )
            .in_file(dir)
            .next("name the cluster's directory with --dir"),
        })
    }

    /// Observes the cluster in `dir` through an open client.
    ///
    /// # Errors
    ///
    /// As [`Caller::start`].
    pub fn start(node: ClientNode, dir: &Path) -> Result<Self, NodeError> {
        let options = CallerOptions { lanes: LANES, deadline: DEADLINE };
        let (cluster, service) = (node.settings().config.cluster, node.settings().service);
        let caller = Caller::start(node.with_lanes(options.lanes), options)?;
        let mut operation = Vec::new();
        // For a service that is not built in, an empty operation: it refuses it, with the same answer everywhere.
        if let Some(row) = service.row() {
            (row.probe)(&mut operation);
        }
        let probe = Probe::new(operation);
        Ok(Self { caller, probe, cluster, dir: dir.to_path_buf(), service })
    }

    /// Returns the size of the cluster.
    pub fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// Returns the directory of the cluster.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the addresses of the replicas, in the order of their ids.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.caller.known().addresses()
    }

    /// Returns the service of the cluster.
    pub fn service(&self) -> ServiceName {
        self.service
    }

    /// Asks the replicas, and computes the verdict.
    pub fn look(&self) -> Picture {
        self.judge(self.ask(), ProbeOutcomes::default())
    }

    /// Asks the replicas, runs the probe operations, and computes the verdict. If no replica answers, no operation
    /// is run.
    pub fn look_well(&self) -> (Picture, Latency) {
        let (picture, tried) = self.look_and_try(true);
        (picture, tried.latency)
    }

    /// The same, with the probe operations that are due: their latencies are new ones or the last ones.
    pub(super) fn look_and_try(&self, now: bool) -> (Picture, Tried) {
        let statements = self.ask();
        if statements.iter().all(Option::is_none) {
            return (self.judge(statements, ProbeOutcomes::default()), Tried::default());
        }
        let tried = self.probe.turn(&self.caller, now);
        (self.judge(statements, tried.outcomes), tried)
    }

    fn ask(&self) -> Vec<Option<Heard>> {
        self.caller.statements(PATIENCE)
    }

    fn judge(&self, heard: Vec<Option<Heard>>, outcomes: ProbeOutcomes) -> Picture {
        let settings = heard.iter().map(|heard| heard.as_ref()?.settings).collect();
        let statements = heard.into_iter().map(|heard| Some(heard?.statement)).collect();
        let evidence = crate::run::client::ledger::of_all(&self.dir);
        judge(Reading { cluster: self.cluster, statements, settings, evidence, outcomes, now_s: now_s() })
    }

    /// Says whether the cluster orders operations: runs one that changes nothing, for any service.
    pub fn orders(&self) -> bool {
        self.probe.orders(&self.caller, DEADLINE)
    }
}

/// Returns the time of day, in seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

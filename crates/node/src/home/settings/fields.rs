//! The settings of a node, as values.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use quorate_pbft::config::Config;
use quorate_service::parallel::EngineKind;
use quorate_wire::{Cluster, ClusterId};

use crate::error::{NodeError, NodeErrorKind};
use crate::net::idle::Waiting;
use crate::services::ServiceName;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address that the node listens on.
    pub listen: SocketAddr,
    /// The addresses of the replicas, in the order of their ids.
    pub replicas: Vec<SocketAddr>,
    /// The addresses of the clients, by their numbers.
    pub clients: BTreeMap<u64, SocketAddr>,
    /// The replicated service.
    pub service: ServiceName,
    /// The settings of the file system, for that service.
    pub fs: quorate_fs::Settings,
    /// The settings of the protocol.
    pub config: Config,
    /// How long session keys are used, in nanoseconds.
    pub key_interval_ns: u64,
    /// Maximum size of the log before the state is written to disk, in bytes.
    pub log_bytes_max: usize,
    /// Bytes of the state that are kept in memory, if it is also on disk.
    pub state_memory_max: usize,
    /// How long to poll before sleeping.
    pub waiting: Waiting,
    /// The core that the main thread is pinned to.
    pub core: Option<usize>,
    /// How the workers' requests are ordered.
    pub parallel: EngineKind,
    /// The size of the flight recorder, in bytes.
    pub recording_bytes: usize,
    /// The values that the file gives to shared settings, as they are written there.
    pub(super) written: BTreeMap<&'static str, String>,
}

/// Returns the defaults of a file system. Its name follows from the cluster's, so that file handles of another
/// cluster are detected.
fn file_system(cluster_id: ClusterId) -> quorate_fs::Settings {
    let name = cluster_id.0.first_chunk().map_or(1, |name| u64::from_le_bytes(*name));
    quorate_fs::Settings { service_id: name, ..quorate_fs::Settings::default() }
}

impl Settings {
    /// Returns the defaults of a node that listens on `listen` and reaches the replicas at these
    /// addresses.
    pub fn new(
        cluster: Cluster,
        cluster_id: ClusterId,
        listen: SocketAddr,
        replicas: Vec<SocketAddr>,
    ) -> Self {
        Self {
            listen,
            replicas,
            clients: BTreeMap::new(),
            service: ServiceName::KV,
            fs: file_system(cluster_id),
            config: Config::new(cluster, cluster_id),
            key_interval_ns: 900_000_000_000,
            log_bytes_max: 64 << 20,
            state_memory_max: 1 << 30,
            waiting: Waiting::default(),
            core: None,
            parallel: EngineKind::GroupIndex,
            recording_bytes: 0,
            written: BTreeMap::new(),
        }
    }

    /// Returns the file system with the settings in `path`.
    ///
    /// # Errors
    ///
    /// They break a rule.
    pub fn file_system(&self, path: &Path) -> Result<quorate_fs::Fs, NodeError> {
        quorate_fs::Fs::new(self.fs.clone())
            .map_err(|error| NodeError::new(NodeErrorKind::Rule, format!("fs_{error}")).in_file(path))
    }

    /// Returns the front of a digest of what this replica runs above agreement: replicas with other services, or the
    /// same with other settings, disagree about the state.
    pub fn service_digest(&self) -> u64 {
        let options = quorate_process::executor_options(&self.config, 0);
        let pages = (options.page_bytes, options.pages_max, options.result_bytes_max);
        let version = self.service.row().map_or(0, |row| row.version);
        let lanes = self.config.lanes_max;
        let text = format!("{} {version} {pages:?} {lanes} {:?}", self.service.name(), self.fs);
        let digest = blake3::derive_key("quorate 2026 service settings", text.as_bytes());
        digest.first_chunk().map_or(0, |front| u64::from_le_bytes(*front))
    }
}

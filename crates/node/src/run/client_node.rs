//! A client from its directory: used by gateways, commands and programs.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use quorate_wire::{Door, Principal};

use crate::error::{NodeError, NodeErrorKind};
use crate::home::members::{Members, client_identity, client_number};
use crate::home::place::lock;
use crate::home::secret;
use crate::home::settings::Settings;
use crate::home::timestamps::Timestamps;
use crate::net::idle::Waiting;
use crate::net::open::open_socket;
use crate::net::socket::Socket;
use crate::run::client::ClientProcess;
use crate::run::client::ledger::Ledger;
use crate::run::clock::Clock;
use quorate_process::Directory;

/// A client's identity, settings and sockets.
#[derive(Debug)]
pub struct ClientNode {
    number: u64,
    members: Members,
    settings: Settings,
    door: Door,
    directory: Directory,
    socket: Socket,
    timestamps: Timestamps,
    dir: PathBuf,
    lock: Flock<File>,
}

/// A client, ready to invoke operations.
#[derive(Debug)]
pub struct OpenClient {
    /// Its lanes.
    pub drive: ClientProcess,
    /// Its sockets.
    pub socket: Socket,
    /// How it waits.
    pub waiting: Waiting,
    /// The lock that keeps other processes from this identity.
    pub lock: Flock<File>,
}

impl ClientNode {
    /// Opens the client in `dir`, whose name is `client-0`, `client-1`, ...
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses the identity.
    /// Nothing has changed then.
    pub fn open(dir: &Path) -> Result<Self, NodeError> {
        if !dir.is_dir() {
            return Err(NodeError::new(NodeErrorKind::Unreadable, "no such directory").in_file(dir).next(
                "create a cluster with `quorate up` or `quorate init`, or name another directory with --dir",
            ));
        }
        let full = std::fs::canonicalize(dir).map_err(|error| NodeError::unreadable(dir, &error))?;
        let name = full.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let Some(number) = client_number(name) else {
            let what = "not a client's directory: its name is not client-0, client-1, ...";
            return Err(NodeError::new(NodeErrorKind::Unreadable, what).in_file(dir));
        };
        let own = client_identity(number);
        let members = Members::read(&dir.join("cluster.toml"))?;
        let Some(public) = members.key_of(own) else {
            let what = format!("{name} is not a member of this cluster");
            return Err(NodeError::new(NodeErrorKind::Rule, what).in_file(&dir.join("cluster.toml")));
        };
        let cluster_id = members.cluster_id();
        let settings = Settings::read(&dir.join("node.toml"), own, members.cluster, cluster_id)?;
        let signer = secret::read(&dir.join("keys/client.key"), public)?;
        let lock = lock(dir)?;
        let directory = Directory::new(&settings.replicas);
        let socket = open_socket(settings.listen, &directory, &dir.join("node.toml"))?;
        let timestamps = Timestamps::open(dir, Clock::new().now().wall_ns)?;
        let time = timestamps.next().0;
        let (verifier, entropy) = (members.verifier(), secret::entropy()?);
        let door = Door::new(own, members.cluster, cluster_id, 0, signer, verifier, entropy, time);
        let dir = dir.to_path_buf();
        Ok(Self { number, members, settings, door, directory, socket, timestamps, dir, lock })
    }

    /// Returns its identity.
    pub fn identity(&self) -> Principal {
        client_identity(self.number)
    }

    /// Returns its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the members of the cluster at its creation.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Returns its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the client with this number of lanes, each with at most one operation in progress.
    pub fn with_lanes(self, lanes: u16) -> OpenClient {
        let Self { settings, door, directory, socket, timestamps, dir, lock, .. } = self;
        let mut drive = ClientProcess::new(&settings.config, door, lanes, directory, timestamps, ());
        drive.keep_evidence(Ledger::keep(&dir));
        drive.follow_moves(&settings.config);
        OpenClient { drive, socket, waiting: settings.waiting, lock }
    }
}

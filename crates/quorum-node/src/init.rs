//! Creates the directories of a new register, one for each node.
//!
//! ```text
//! DIR/server-0/ node.toml cluster.toml register.toml keys/replica.key state/
//! DIR/client-0/ node.toml cluster.toml register.toml keys/client.key
//! ```
//!
//! Keys, addresses and members are those of any cluster of `quorate init`.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use quorate_node::error::NodeErrorKind;
use quorate_node::init::{Host, Made, NewCluster, client_dir, draft_of, install, replica_dir, write_file};
use quorate_node::members::{Members, client_name};
use quorate_node::{NodeError, settings::ServiceName};
use quorate_wire::ReplicaId;

use crate::config::{Config, FILE};
use crate::store::{self, Owner};

/// The first port of the servers on a host: not that of `quorate init`.
pub const PORT: u16 = 7400;

/// The description of a new register.
#[derive(Clone, Debug)]
pub struct NewRegister {
    /// Byzantine servers to tolerate: there are `3f + 1` servers.
    pub f: u16,
    /// The addresses of the servers: none for this machine, one for all, or one each.
    pub hosts: Vec<Host>,
    /// The number of clients.
    pub clients: u16,
    /// The register.
    pub config: Config,
    /// Further lines of every `node.toml`, such as `poll = "0ms"`.
    pub lines: Vec<String>,
    /// Further lines of the servers' alone, such as `durability = "sync"`.
    pub server_lines: Vec<String>,
}

/// The most servers that may be faulty: certificates of more do not fit beside the longest value.
pub const F_MAX: u16 = 5;

/// Returns the directory of a server.
pub fn server_dir(dir: &Path, id: ReplicaId) -> PathBuf {
    dir.join(format!("server-{}", id.0))
}

impl NewRegister {
    /// Creates the directories of all nodes under `dir`, which must be empty or not exist.
    ///
    /// # Errors
    ///
    /// The directory is not empty, or cannot be written. Nothing has changed then.
    pub fn make(&self, dir: &Path) -> Result<Made, NodeError> {
        if !(1..=F_MAX).contains(&self.f) {
            return Err(NodeError::new(
                NodeErrorKind::Rule,
                format!("f = {}: expected 1 to {F_MAX}", self.f),
            ));
        }
        if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
            let what = "directory is not empty; existing keys are never overwritten";
            return Err(NodeError::new(NodeErrorKind::Occupied, what)
                .in_file(dir)
                .next("choose another directory with --dir, or move this one away"));
        }
        let dir = &fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
        let draft = draft_of(dir);
        let made = self.base().make(&draft)?;
        let changed = self.change(&draft, &made).and_then(|()| install(&draft, dir));
        if changed.is_err() {
            let _ = fs::remove_dir_all(&draft);
        }
        changed.map(|()| made)
    }

    /// Returns the addresses that the nodes will have.
    ///
    /// # Errors
    ///
    /// Two nodes would have one address, or the numbers of hosts do not fit.
    pub fn addresses(&self) -> Result<Made, NodeError> {
        self.base().addresses()
    }

    /// Returns the cluster whose directories become those of the register.
    fn base(&self) -> NewCluster {
        let hosts = match self.hosts.as_slice() {
            [] => vec![Host { ip: std::net::Ipv4Addr::LOCALHOST.into(), port: Some(PORT) }],
            [Host { ip, port }] => vec![Host { ip: *ip, port: port.or(Some(PORT)) }],
            each => each.to_vec(),
        };
        NewCluster { hosts, clients: self.clients, service: ServiceName::OWN, ..NewCluster::local(self.f) }
    }

    /// Makes a register of a cluster's directories.
    fn change(&self, draft: &Path, made: &Made) -> Result<(), NodeError> {
        let first = replica_dir(draft, ReplicaId(0)).join("cluster.toml");
        // The settings of agreement are of no use here.
        let members = Members { settings: String::new(), ..Members::read(&first)? };
        let failed = |path: &Path, error: &std::io::Error| {
            NodeError::new(NodeErrorKind::Unwritable, format!("cannot be written: {error}")).in_file(path)
        };
        let (n, f) = (made.replicas.len(), self.f);
        for (id, address) in made.replicas.iter().enumerate() {
            let id = ReplicaId::at(id);
            let (from, to) = (replica_dir(draft, id), server_dir(draft, id));
            fs::rename(&from, &to).map_err(|error| failed(&to, &error))?;
            for part in ["log", "checkpoint"] {
                let part = to.join(part);
                fs::remove_dir_all(&part).map_err(|error| failed(&part, &error))?;
            }
            let title = format!("server {} of {n} (f = {f})", id.0);
            self.write_files(&to, &self.node_toml(&title, *address, made, true), &members)?;
            let owner = Owner { cluster: members.cluster_id(), epoch: self.config.epoch, id };
            store::create(&to, owner)?;
        }
        for (number, address) in (0..).zip(&made.clients) {
            let title = format!("client {number} of a register on {n} servers");
            let node = self.node_toml(&title, *address, made, false);
            self.write_files(&client_dir(draft, number), &node, &members)?;
        }
        Ok(())
    }

    fn write_files(&self, dir: &Path, node: &str, members: &Members) -> Result<(), NodeError> {
        for (name, text) in
            [("node.toml", node), ("cluster.toml", &members.text()), (FILE, &self.config.text())]
        {
            write_file(&dir.join(name), text)?;
        }
        Ok(())
    }

    fn node_toml(&self, title: &str, listen: SocketAddr, made: &Made, is_server: bool) -> String {
        let mut text = format!(
            "# {title}\n\n# The address that this node listens on, UDP and TCP.\nlisten = \"{listen}\"\n"
        );
        if is_server {
            text.push_str(
                "\n# What a server writes to disk before it answers: \"sync\" everything; \"async\" the same without waiting;\n\
                 # \"memory\" nothing. With the last two a server that was killed has to be repaired by the others.\n\
                 # durability = \"sync\"\n",
            );
        }
        text.push_str(
            "\n# How long to poll for the next datagram before sleeping. 0ms to sleep immediately.\n# poll = \"1ms\"\n\
             \n# The core that the node's main thread is pinned to.\n# core = \"any\"\n",
        );
        let of_servers = self.server_lines.iter().filter(|_| is_server);
        for line in self.lines.iter().chain(of_servers) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}");
        }
        text.push_str("\n# The addresses where this node reaches the servers.\n[replicas]\n");
        for (id, address) in made.replicas.iter().enumerate() {
            let _ = writeln!(text, "r{id} = \"{address}\"");
        }
        if is_server {
            text.push_str("\n# The addresses where this server answers clients.\n[clients]\n");
            for (number, address) in (0..).zip(&made.clients) {
                let _ = writeln!(text, "{} = \"{address}\"", client_name(number));
            }
        }
        text
    }
}

//! `quorate nfs`: the relay between NFS clients and the cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use quorate_fs::Fs;
use quorate_node::front::{self, Limits};
use quorate_node::settings::ServiceName;
use quorate_node::trouble::Kind;
use quorate_node::{ClientNode, Trouble, nfs, signals};

use crate::fail::Outcome;
use crate::node::{Durability, open_client};
use crate::out;

/// Open the front door for NFS clients
///
/// It turns each call of an NFS version 3 client into one operation of the cluster, and believes no single
/// replica. It keeps nothing itself: it may be killed and started again, and there may be several. Whoever
/// mounts trusts it for the users that it forwards, so run one on each machine that mounts. An export of a
/// subdirectory is no wall: who makes calls of his own can name any file of the service by its handle, with the
/// rights of that export. What must be apart needs a service of its own.
///
///   quorate nfs --dir cluster/client-0 --listen 127.0.0.1:20490
///
/// Then, as root:
///
///   mount -t nfs -o vers=3,tcp,nolock,port=20490,mountport=20490 localhost:/ /mnt
///
/// With --unreplicated no cluster is asked: the file system is in this process, in memory, behind the same door and
/// with the same settings, and forgotten when it stops. That is what benchmarks compare the cluster with.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Nfs {
    /// The client's directory, as `quorate init` made it
    #[arg(long)]
    dir: PathBuf,
    /// Where NFS clients connect, for both NFS and MOUNT, IP:PORT
    #[arg(long, default_value = "127.0.0.1:20490", value_name = "ADDR")]
    listen: SocketAddr,
    /// The most connections
    #[arg(long, default_value_t = Limits::default().connections_max)]
    connections: usize,
    /// How many calls are under way at a time
    #[arg(long, default_value_t = Limits::default().lanes)]
    lanes: u16,
    /// Serve a file system of this process instead, without replicas: for measuring
    #[arg(long)]
    unreplicated: bool,
    /// Where what changes it is written before it is answered: nowhere, or to the file DIR/unreplicated.log, which
    /// is never read
    #[arg(long, value_enum, requires = "unreplicated", default_value_t = Durability::Memory)]
    durability: Durability,
}

impl Nfs {
    pub(crate) fn run(&self) -> Outcome {
        let stop = signals::stop_flag()?;
        let node = open_client(&self.dir, ServiceName::Fs)?;
        let fs = node.settings().file_system(&self.dir.join("node.toml"))?;
        let limits = Limits { lanes: self.lanes, connections_max: self.connections, ..Limits::default() };
        if self.unreplicated {
            return self.serve_alone(node, fs, limits, &stop);
        }
        let client = node.with_lanes(limits.lanes);
        let waiting = client.waiting;
        let mut door = nfs::open(self.listen, limits, fs, client.drive, client.socket)
            .map_err(|error| front::not_open("NFS", self.listen, &error))?;
        out::line(format!("NFS  {}     {}", self.listen, mount_command(self.listen)));
        door.run(waiting, &stop).map_err(|error| Trouble::new(Kind::Network, error.to_string()))?;
        drop(client.lock);
        Ok(ExitCode::SUCCESS)
    }

    /// Serves a file system of this process.
    fn serve_alone(&self, node: ClientNode, fs: Fs, limits: Limits, stop: &AtomicBool) -> Outcome {
        let client = node.with_lanes(0);
        let log = self.dir.join("unreplicated.log");
        let mut door = nfs::open_alone(self.listen, limits, fs, self.durability.config(), &log)
            .map_err(|error| front::not_open("NFS", self.listen, &error))?;
        out::line(format!("NFS  {}     not replicated: for measuring", self.listen));
        door.run(client.waiting, stop).map_err(|error| Trouble::new(Kind::Network, error.to_string()))?;
        drop(client.lock);
        let _ = std::fs::remove_file(log);
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the command that mounts the file system behind a relay.
pub(crate) fn mount_command(relay: SocketAddr) -> String {
    let (ip, port) = (relay.ip(), relay.port());
    format!("sudo mount -t nfs -o vers=3,tcp,nolock,port={port},mountport={port} {ip}:/ /mnt")
}

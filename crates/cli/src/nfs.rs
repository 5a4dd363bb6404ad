//! `quorate nfs`: the gateway between NFS clients and the cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use clap::Args;
use quorate_fs::Fs;
use quorate_gateways::front::{self, Limits};
use quorate_gateways::nfs;
use quorate_node::settings::ServiceName;
use quorate_node::trouble::Kind;
use quorate_node::{ClientNode, Trouble, signals};

use crate::fail::Outcome;
use crate::node::{Durability, open_client};
use crate::out;

/// Run an NFS gateway
///
/// The gateway turns each call of an NFS version 3 client into one operation of the cluster, and accepts a result
/// only if enough replicas agree on it. It has no state: you can kill and restart it, and run several.
///
/// The replicas trust the gateway to report the user of each call, so run one on each machine that mounts.
///
/// An export of a subdirectory is no boundary: a program that forges NFS calls can also reach files outside the
/// subdirectory, if it knows or guesses their handles. The program can use the options of every export that admits its
/// address. To isolate files, use a separate cluster.
///
///   quorate nfs --dir cluster/client-0 --listen 127.0.0.1:20490
///
/// Then, as root:
///
///   mount -t nfs -o vers=3,tcp,nolock,port=20490,mountport=20490 localhost:/ /mnt
///
/// With --unreplicated, the gateway uses no cluster. It serves a file system in its own memory, with the settings in
/// DIR/node.toml. The files are lost when the gateway stops. Benchmarks compare the cluster with this file system.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Nfs {
    /// The client's directory, made by `quorate init`
    #[arg(long)]
    dir: PathBuf,
    /// Address for NFS clients (NFS and MOUNT protocols), IP:PORT
    #[arg(long, default_value = "127.0.0.1:20490", value_name = "ADDR")]
    listen: SocketAddr,
    /// Maximum number of connections
    #[arg(long, default_value_t = Limits::default().connections_max)]
    connections: usize,
    /// Maximum number of calls in progress
    #[arg(long, default_value_t = Limits::default().lanes)]
    lanes: u16,
    /// Serve a file system in this process instead, without replicas, for measurements
    #[arg(long)]
    unreplicated: bool,
    /// What --unreplicated writes to DIR/unreplicated.log before it answers. memory: nothing. async: each change. sync:
    /// each change, with fsync. The log serves measurements only: it is never read
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

    /// Serves a file system in this process.
    fn serve_alone(&self, node: ClientNode, fs: Fs, limits: Limits, stop: &AtomicBool) -> Outcome {
        let client = node.with_lanes(0);
        let log = self.dir.join("unreplicated.log");
        let mut door = nfs::open_alone(self.listen, limits, fs, self.durability.config(), &log)
            .map_err(|error| front::not_open("NFS", self.listen, &error))?;
        out::line(format!("NFS  {}     not replicated, for measurements", self.listen));
        door.run(client.waiting, stop).map_err(|error| Trouble::new(Kind::Network, error.to_string()))?;
        drop(client.lock);
        let _ = std::fs::remove_file(log);
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the command that mounts the file system of a gateway.
pub(crate) fn mount_command(relay: SocketAddr) -> String {
    let (ip, port) = (relay.ip(), relay.port());
    format!("sudo mount -t nfs -o vers=3,tcp,nolock,port={port},mountport={port} {ip}:/ /mnt")
}

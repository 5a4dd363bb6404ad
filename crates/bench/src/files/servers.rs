//! The arms of the file system's experiments: NFS servers on this machine, each with its own address.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, statfs,
};
use quorate_node::settings::ServiceName;

use super::client::{Nfs, Place};
use super::ganesha::{Ganesha, Store};
use super::{replica, store};
use crate::nodes::{self, Nodes};
use crate::processes::{self, Part, REPLICA_CORES};
use crate::report::Row;

/// An arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The file system on four replicas behind a gateway.
    Bfs(Reads, &'static str),
    /// The same service behind the same gateway, without replicas.
    Alone(Reads, &'static str),
    /// NFS-Ganesha.
    Ganesha(Where),
    /// A cluster of the experiments on parallel execution.
    Parallel(Replicas),
}

/// Four replicas of the file system behind a gateway, each pinned to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    /// The name in a table.
    pub(crate) name: &'static str,
    /// Settings of the replicas.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) work: Work,
}

/// What a replica does for a call, beside executing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing: the state is in memory.
    Memory,
    /// It waits after a WRITE, for this number of microseconds.
    Waits(u32),
    /// It writes each change to a store of its own, which needs this number of microseconds a record at least.
    Store(u32),
}

impl Work {
    fn name(self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::Waits(us) => format!("waits {} ms", us / 1000),
            Self::Store(0) => "store".to_owned(),
            Self::Store(us) => format!("store, {} ms a record", us / 1000),
        }
    }
}

/// The settings of all clusters of the experiments on parallel execution, as in the paper: access times are kept, and so
/// READ is ordered.
const PARALLEL: [(&str, &str); 5] = [
    ("fs_exports", "/(rw,no_root_squash)"),
    ("fs_read_only", "getattr access"),
    ("fs_atime", "strict"),
    ("request_auth", "mac"),
    ("piggyback", "false"),
];

/// Which calls are served without ordering, and when reading changes the access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The default: all calls that only read; the access time changes as with `relatime`.
    Default,
    /// All calls that only read; the access time never changes.
    NoAtime,
    /// Only GETATTR; the access time changes with every read: BFS-strict [OSDI99 §7.3].
    Strict,
    /// Also LOOKUP.
    Lookup,
}

/// Where NFS-Ganesha stores its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Disk,
    Tmpfs,
    Mem,
}

impl Reads {
    fn settings(self) -> [(&'static str, &'static str); 3] {
        let (read_only, atime) = match self {
            Self::Default => ("all", "relatime"),
            Self::NoAtime => ("all", "none"),
            Self::Strict => ("getattr", "strict"),
            Self::Lookup => ("getattr lookup", "strict"),
        };
        [("fs_exports", "/(rw,no_root_squash)"), ("fs_read_only", read_only), ("fs_atime", atime)]
    }
}

enum Parts {
    Nodes(Nodes),
    Ganesha(Ganesha),
}

/// A server that runs until this is dropped.
pub(crate) struct Server {
    pub(crate) arm: Arm,
    pub(crate) place: Place,
    system: &'static str,
    variant: String,
    parts: Parts,
    /// The stores of its replicas.
    stores: Mutex<Vec<Part>>,
}

impl Server {
    /// Starts a server and waits until it answers. None: it is not installed, and `notes` gets the reason.
    pub(crate) fn start(arm: Arm, notes: &mut Vec<String>) -> Result<Option<Self>> {
        let mut stores = Vec::new();
        let (system, variant, parts, place) = match arm {
            Arm::Bfs(reads, durability) => {
                let mut cluster = Nodes::make("bfs", ServiceName::FS, durability, &reads.settings())?;
                cluster.start_replicas()?;
                let address = cluster.open_nfs(&[])?;
                let system = match reads {
                    Reads::Default | Reads::NoAtime => "bfs",
                    Reads::Strict => "bfs-strict",
                    Reads::Lookup => "bfs-ro-lookup",
                };
                (system, durability.to_owned(), Parts::Nodes(cluster), place(address))
            }
            Arm::Alone(reads, durability) => {
                let mut cluster = Nodes::make("bfs-nr", ServiceName::FS, "memory", &reads.settings())?;
                let address = cluster.open_nfs(&["--unreplicated", "--durability", durability])?;
                ("bfs-nr", durability.to_owned(), Parts::Nodes(cluster), place(address))
            }
            Arm::Ganesha(place) => {
                let (store, variant) = match place {
                    Where::Disk => (Store::Disk, format!("VFS on {}", file_system(&nodes::place()))),
                    Where::Tmpfs => (Store::Tmpfs, "VFS on tmpfs".to_owned()),
                    Where::Mem => (Store::Mem, "MEM".to_owned()),
                };
                if let Some(why) = store.missing() {
                    notes.push(format!("missing: ganesha {variant}: {why}"));
                    return Ok(None);
                }
                let (dir, ip) = nodes::new_place("ganesha")?;
                let (mut ganesha, place) = Ganesha::start(store, ip, &dir)?;
                if let Err(error) = Nfs::wait_for(&place, || ganesha.runs()) {
                    notes.push(format!("missing: ganesha {variant}: {error:#}: {}", ganesha.says()));
                    return Ok(None);
                }
                ("ganesha", variant, Parts::Ganesha(ganesha), place)
            }
            Arm::Parallel(Replicas { name, settings, work }) => {
                let settings = [&PARALLEL, settings].concat();
                let mut cluster = Nodes::make("cbase", ServiceName::FS, "memory", &settings)?;
                for (id, core) in REPLICA_CORES.into_iter().enumerate() {
                    let dir = cluster.node(&format!("replica-{id}"));
                    let (wait_us, place) = match work {
                        Work::Memory => (0, replica::NO_STORE.to_owned()),
                        Work::Waits(us) => (us, replica::NO_STORE.to_owned()),
                        Work::Store(pace_us) => {
                            let path = dir.join("store").display().to_string();
                            let words = [store::ROLE.to_owned(), path, pace_us.to_string()];
                            stores.push(Part::start_anywhere(&words)?);
                            (0, stores.last_mut().context("it was added")?.line()?)
                        }
                    };
                    let dir = dir.display().to_string();
                    let words = [replica::ROLE.to_owned(), dir, wait_us.to_string(), place];
                    cluster.start_replica(processes::command(core, &words)?)?;
                }
                let address = cluster.open_nfs(&[])?;
                (name, work.name(), Parts::Nodes(cluster), place(address))
            }
        };
        let server = Self { arm, place, system, variant, parts, stores: Mutex::new(stores) };
        Nfs::wait_for(&server.place, || true).with_context(|| server.name())?;
        Ok(Some(server))
    }

    /// Returns what it is called in a table.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.system, self.variant)
    }

    /// Returns the processor time that its processes have had, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        let pids = match &self.parts {
            Parts::Nodes(nodes) => nodes.all_pids(),
            Parts::Ganesha(ganesha) => processes::children(ganesha.pid()),
        };
        pids.into_iter().map(processes::all_threads_ns).sum()
    }

    /// Returns for how long the disk of each store has been busy, in nanoseconds.
    pub(crate) fn store_busy_ns(&self) -> Result<Vec<u64>> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.iter_mut().map(|store| Ok(store.answer("busy")?.parse()?)).collect()
    }

    /// Returns a row about it without figures.
    pub(crate) fn row(&self, op: &str, mode: &str, clients: u32) -> Row {
        let is_replicated = matches!(self.arm, Arm::Bfs(..) | Arm::Parallel(_));
        let durability = match self.arm {
            Arm::Bfs(_, durability) | Arm::Alone(_, durability) => Some(durability.to_owned()),
            Arm::Parallel(_) => Some("memory".to_owned()),
            Arm::Ganesha(_) => None,
        };
        Row {
            system: self.system.to_owned(),
            variant: self.variant.clone(),
            op: op.to_owned(),
            mode: mode.to_owned(),
            n: is_replicated.then_some(4),
            f: is_replicated.then_some(1),
            clients,
            durability,
            ..Row::default()
        }
    }
}

fn place(address: std::net::SocketAddr) -> Place {
    Place { nfs: address, mount: address, export: "/".to_owned() }
}

/// Starts the arms. What is not installed is named in `notes`.
pub(crate) fn start_all(arms: &[Arm], notes: &mut Vec<String>) -> Result<Vec<Server>> {
    let servers = arms.iter().filter_map(|arm| Server::start(*arm, notes).transpose());
    servers.collect()
}

/// Returns whether a directory is in memory.
pub(super) fn is_tmpfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

/// Returns the name of the file system that a directory is on.
fn file_system(path: &Path) -> &'static str {
    let names = [
        (EXT4_SUPER_MAGIC, "ext4"),
        (XFS_SUPER_MAGIC, "xfs"),
        (BTRFS_SUPER_MAGIC, "btrfs"),
        (OVERLAYFS_SUPER_MAGIC, "overlay"),
        (TMPFS_MAGIC, "tmpfs"),
    ];
    let found = statfs(path).map(|found| found.filesystem_type()).ok();
    names.into_iter().find(|(magic, _)| Some(*magic) == found).map_or("a disk", |(_, name)| name)
}

//! A cluster with directories, as in production: with a log on disk, and replicas that run this program's own command.

use std::fs::{self, File, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::Pid;
use quorate_node::ClientNode;
use quorate_node::init::{Host, NewCluster};
use quorate_node::settings::ServiceName;

use crate::link::Link;
use crate::load::{self, Clients};
use crate::processes::{self, Part};

/// The environment variable with the parent of the directories; the default is the directory of temporary files.
const PLACE: &str = "QUORATE_BENCH_DIR";

/// A cluster of four replicas on this machine. Its directory is removed when it is dropped.
pub(crate) struct Nodes {
    dir: PathBuf,
    ip: IpAddr,
    replicas: Vec<Option<Child>>,
    /// Its gateways.
    doors: Vec<Child>,
}

/// The port of a gateway, at an address that no other program uses.
const DOOR: u16 = 20490;

impl Nodes {
    /// Creates the directories of a cluster with the null service and two clients, and starts the replicas.
    pub(crate) fn start(name: &str, durability: &str) -> Result<Self> {
        let mut nodes = Self::make(name, ServiceName::NULL, durability, &[])?;
        nodes.start_replicas()?;
        Ok(nodes)
    }

    /// Only creates the directories. `chosen` are further settings of the replicas and the client.
    pub(crate) fn make(
        name: &str,
        service: ServiceName,
        durability: &str,
        chosen: &[(&'static str, &str)],
    ) -> Result<Self> {
        let mut settings = vec![("durability", durability), ("poll", "20us")];
        settings.extend(chosen);
        Self::create(name, service, &settings)
    }

    /// Creates the directories of a cluster in which everything but the durability is as usual.
    pub(crate) fn usual(name: &str, service: ServiceName, durability: &str) -> Result<Self> {
        Self::create(name, service, &[("durability", durability)])
    }

    fn create(name: &str, service: ServiceName, settings: &[(&'static str, &str)]) -> Result<Self> {
        let (dir, ip) = new_place(name)?;
        fs::create_dir_all(&dir).with_context(|| format!("{}: set {PLACE}", dir.display()))?;
        let nodes = Self { dir, ip, replicas: Vec::new(), doors: Vec::new() };
        let mut cluster = NewCluster::local(1);
        cluster.hosts = vec![Host { ip, port: None }];
        cluster.clients = 3;
        cluster.service = service;
        let quoted = |value: &str| {
            let is_plain = value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok();
            if is_plain { value.to_owned() } else { format!("\"{value}\"") }
        };
        cluster.chosen = settings.iter().map(|(key, value)| (*key, quoted(value))).collect();
        cluster.make(&nodes.dir.join("cluster")).map_err(|trouble| anyhow!("{trouble}"))?;
        Ok(nodes)
    }

    /// Starts the replicas.
    pub(crate) fn start_replicas(&mut self) -> Result<()> {
        for id in 0..4 {
            let child = self.spawn(id, &[])?;
            self.replicas.push(Some(child));
        }
        Ok(())
    }

    /// Starts the next replica with a command of its own.
    pub(crate) fn start_replica(&mut self, command: Command) -> Result<()> {
        let child = self.spawn_as(self.replicas.len(), command)?;
        self.replicas.push(Some(child));
        Ok(())
    }

    /// Starts the NFS gateway, and returns its address.
    pub(crate) fn open_nfs(&mut self, flags: &[&str]) -> Result<SocketAddr> {
        self.open("nfs", flags)
    }

    /// Starts the RESP gateway, and returns its address.
    pub(crate) fn open_resp(&mut self) -> Result<SocketAddr> {
        self.open("resp", &[])
    }

    fn open(&mut self, gateway: &str, flags: &[&str]) -> Result<SocketAddr> {
        let address = SocketAddr::new(self.ip, DOOR);
        let log = File::create(self.dir.join("gateway.log"))?;
        let child = Command::new(std::env::current_exe()?)
            .args([gateway, "--listen", &address.to_string(), "--dir"])
            .arg(self.node("client-0"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.doors.push(child.context("the gateway does not start")?);
        Ok(address)
    }

    /// Returns the directory of the cluster.
    pub(crate) fn cluster(&self) -> PathBuf {
        self.dir.join("cluster")
    }

    /// Returns the directory of a node.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.cluster().join(name)
    }

    /// Returns a replica's log so far.
    pub(crate) fn log(&self, id: usize) -> String {
        fs::read_to_string(self.dir.join(format!("r{id}.log"))).unwrap_or_default()
    }

    fn spawn(&self, id: usize, arguments: &[&str]) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["replica", "--dir"]).arg(self.node(&format!("replica-{id}"))).args(arguments);
        self.spawn_as(id, command)
    }

    fn spawn_as(&self, id: usize, mut command: Command) -> Result<Child> {
        let log: File =
            OpenOptions::new().create(true).append(true).open(self.dir.join(format!("r{id}.log")))?;
        let command = command.env("QUORATE_LOG", "info").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log).spawn().with_context(|| format!("r{id} does not start"))
    }

    /// Starts the process of the clients.
    pub(crate) fn host(&self) -> Result<Part> {
        self.host_of(0)
    }

    /// Starts a process of the clients of client `number`.
    pub(crate) fn host_of(&self, number: u16) -> Result<Part> {
        let dir = self.node(&format!("client-{number}")).display().to_string();
        Part::start_anywhere(&["node-client".to_owned(), dir])
    }

    /// Returns the processes of the running replicas.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.replicas.iter().flatten().map(Child::id).collect()
    }

    /// Returns the processes of the running replicas and the gateways.
    pub(crate) fn all_pids(&self) -> Vec<u32> {
        self.replicas.iter().flatten().chain(&self.doors).map(Child::id).collect()
    }

    /// Sends a signal to a replica.
    pub(crate) fn signal(&self, id: usize, signal: Signal) -> Result<()> {
        let child = self.replicas.get(id).and_then(Option::as_ref).context("it does not run")?;
        Ok(kill(Pid::from_raw(i32::try_from(child.id())?), signal)?)
    }

    /// Kills a replica.
    pub(crate) fn kill(&mut self, id: usize) -> Result<()> {
        if let Some(mut child) = self.replicas.get_mut(id).and_then(Option::take) {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts a replica again.
    pub(crate) fn restart(&mut self, id: usize, arguments: &[&str]) -> Result<()> {
        let child = self.spawn(id, arguments)?;
        *self.replicas.get_mut(id).context("no such replica")? = Some(child);
        Ok(())
    }

    /// Empties a replica's log and state.
    pub(crate) fn wipe(&self, id: usize) -> Result<()> {
        for part in ["log", "checkpoint"] {
            let path = self.node(&format!("replica-{id}")).join(part);
            if path.exists() {
                fs::remove_dir_all(&path)?;
            }
        }
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in self.replicas.iter_mut().flatten().chain(&mut self.doors) {
            // It may have exited already; SIGKILL also ends a paused one.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns a new directory, and a loopback address that no other cluster on this machine uses.
pub(crate) fn new_place(name: &str) -> Result<(PathBuf, IpAddr)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = place().join(format!("quorate-bench-{name}-{}-{number}", std::process::id()));
    Ok((dir, own_address(number)?))
}

/// Returns the parent of the directories.
pub(crate) fn place() -> PathBuf {
    std::env::var_os(PLACE).map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Returns whether directories are in memory, so that a disk cannot be measured.
pub(crate) fn is_in_memory() -> bool {
    let path = place();
    let path: &Path = if path.exists() { &path } else { Path::new("/") };
    statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

/// Returns a loopback address that no other cluster on this machine uses.
fn own_address(number: u64) -> Result<IpAddr> {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ok(IpAddr::V4(Ipv4Addr::new(127, 100 + u8::try_from(number % 100)?, high, low.clamp(1, 254))))
}

/// Runs the process of the clients in `dir`.
pub(crate) fn client(dir: &str) -> Result<()> {
    let node = ClientNode::open(Path::new(dir)).map_err(|trouble| anyhow!("{trouble}"))?;
    let open = node.with_lanes(500);
    let mut clients =
        Clients::new(open.drive, Link::new(open.socket, None), quorate_node::Waiting::Poll(20_000));
    let mut moments = Vec::new();
    load::obey_with(|load| {
        moments.clear();
        let start = std::time::Instant::now();
        let sample = clients.work(load, || {
            if moments.len() < MOMENTS_MAX {
                moments.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
        })?;
        processes::say(&serde_json::to_string(&sample)?)?;
        processes::say(&serde_json::to_string(&buckets(&moments))?)
    })
}

/// Maximum number of operations whose times are kept.
const MOMENTS_MAX: usize = 1 << 22;
/// Microseconds of a bucket.
pub(crate) const BUCKET_US: u32 = 1000;

/// Returns how many operations were done in each millisecond.
fn buckets(moments: &[u32]) -> Vec<u32> {
    let mut buckets: Vec<u32> = Vec::new();
    for moment in moments {
        let index = usize::try_from(moment / BUCKET_US).unwrap_or(0);
        if buckets.len() <= index {
            buckets.resize(index + 1, 0);
        }
        buckets[index] += 1;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_by_the_millisecond() {
        assert_eq!(buckets(&[0, 999, 1000, 3500]), [2, 1, 0, 1]);
        assert!(buckets(&[]).is_empty());
    }
}

//! Creates the directories of a new cluster, one for each node.
//!
//! ```text
//! DIR/replica-0/node.toml          addresses and settings
//!               cluster.toml       the members with their public keys, the same everywhere
//!               keys/replica.key   the node's secret key, mode 0600
//!               log/ checkpoint/   its durable state (docs/storage-format.md)
//! DIR/client-0/ node.toml cluster.toml keys/client.key
//! ```
//!
//! Everything is created in a temporary directory and then renamed, so that a failure leaves nothing half done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use quorate_wire::{Cluster, Principal, ReplicaId};

use crate::error::{NodeError, NodeErrorKind};
use crate::home::members::{Members, client_identity, client_name};
use crate::home::secret;
use crate::home::settings::{self, ServiceName, Settings, is_shared, shared_section};
use crate::net::names;
use crate::storage;

/// The port of the first replica on a host.
pub const PORT: u16 = 7000;

/// Returns which clients may add and remove clients: two that are for the command line. The first two serve gateways and
/// status pages, which do not need that, nor should an intruder in one have it (a cluster of few clients has no others).
fn administrators(clients: u16) -> BTreeSet<u64> {
    let clients = u64::from(clients);
    match clients {
        0 => BTreeSet::new(),
        1 | 2 => [clients - 1].into(),
        _ => (2..clients.min(4)).collect(),
    }
}

/// The description of a new cluster.
#[derive(Clone, Debug)]
pub struct NewCluster {
    /// Byzantine replicas to tolerate: there are `3f + 1` replicas.
    pub f: u16,
    /// The addresses of the replicas. None: all on this machine. One: all on that machine. Otherwise one each. The
    /// default port is [`PORT`].
    pub hosts: Vec<Host>,
    /// The number of clients. Client `j` is on the machine of replica `j`, or on the first one.
    pub clients: u16,
    /// The addresses of the clients, if they are on other machines: one for all clients, or one each.
    pub client_hosts: Vec<Host>,
    /// The replicated service.
    pub service: ServiceName,
    /// Other settings with their values as in a file, for all nodes that have them.
    pub chosen: Vec<(&'static str, String)>,
}

/// A machine, optionally with a port. In text, a name stands for its address at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its address.
    pub ip: IpAddr,
    /// The port of the replica there.
    pub port: Option<u16>,
}

impl Host {
    /// Returns the address of the first replica there.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(PORT))
    }
}

impl std::str::FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self { ip, port: None });
        }
        let place = names::resolve(text).map(|address| (address.ip(), Some(address.port())));
        let place = place.or_else(|| Some((names::resolve(&format!("{text}:0"))?.ip(), None)));
        place.map(|(ip, port)| Self { ip, port }).ok_or_else(|| {
            "expected IP, IP:PORT or a name, such as 10.0.0.1, 10.0.0.1:7000 or node1".to_owned()
        })
    }
}

/// The addresses of a new cluster.
#[derive(Clone, Debug)]
pub struct Made {
    /// The addresses of the replicas.
    pub replicas: Vec<SocketAddr>,
    /// The addresses of the clients.
    pub clients: Vec<SocketAddr>,
}

impl NewCluster {
    /// Returns a cluster on this machine, with four clients.
    pub fn local(f: u16) -> Self {
        Self {
            f,
            hosts: Vec::new(),
            clients: 4,
            client_hosts: Vec::new(),
            service: ServiceName::KV,
            chosen: Vec::new(),
        }
    }

    /// Returns the addresses that the nodes will have.
    ///
    /// # Errors
    ///
    /// Two nodes would have one address, or the numbers of hosts do not fit.
    pub fn addresses(&self) -> Result<Made, NodeError> {
        let cluster = Cluster::tolerating(self.f)
            .map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()))?;
        let (replicas, clients) = (self.replicas(cluster)?, self.clients(cluster)?);
        check_places(&replicas, &clients)?;
        Ok(Made { replicas, clients })
    }

    /// Creates the directories of all nodes under `dir`, which must be empty or not exist.
    ///
    /// # Errors
    ///
    /// The directory is not empty, or cannot be written. Nothing has changed then.
    pub fn make(&self, dir: &Path) -> Result<Made, NodeError> {
        let cluster = Cluster::tolerating(self.f)
            .map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()))?;
        let Made { replicas, clients } = self.addresses()?;
        settings::check(cluster, &self.given()).map_err(|trouble| trouble.at("--set"))?;
        if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
            let what = "directory is not empty; existing keys are never overwritten";
            return Err(NodeError::new(NodeErrorKind::Occupied, what)
                .in_file(dir)
                .next("choose another directory with --dir, or move this one away"));
        }
        // By its full name, so that it can be replaced even if it is `.`.
        let dir = &fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
        make_parents(parent_of(dir))?;
        let draft = draft_of(dir);
        let made = self.write(&draft, cluster, &replicas, &clients).and_then(|()| install(&draft, dir));
        if made.is_err() {
            let _ = fs::remove_dir_all(&draft);
        }
        made.map(|()| Made { replicas, clients })
    }

    /// Returns all settings that are given a value.
    fn given(&self) -> Vec<(&'static str, String)> {
        let service = ("service", format!("\"{}\"", self.service.name()));
        [service].into_iter().chain(self.chosen.iter().cloned()).collect()
    }

    fn replicas(&self, cluster: Cluster) -> Result<Vec<SocketAddr>, NodeError> {
        let local = Host { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: None };
        let counted = |host: Host| {
            let ports = (0..).map(|i: u16| host.port.unwrap_or(PORT).saturating_add(i));
            ports.take(cluster.n()).map(|port| SocketAddr::new(host.ip, port)).collect()
        };
        match self.hosts.as_slice() {
            [] => Ok(counted(local)),
            [one] if cluster.n() > 1 => Ok(counted(*one)),
            all if all.len() == cluster.n() => {
                let mut used: BTreeMap<IpAddr, u16> = BTreeMap::new();
                Ok(all
                    .iter()
                    .map(|host| {
                        // Several on one machine get different ports.
                        let next = used.entry(host.ip).or_insert(PORT);
                        let port = host.port.unwrap_or(*next);
                        *next = port.saturating_add(1);
                        SocketAddr::new(host.ip, port)
                    })
                    .collect())
            }
            all => Err(NodeError::new(
                NodeErrorKind::Rule,
                format!("{} hosts for {} replicas (f = {})", all.len(), cluster.n(), self.f),
            )
            .at("--host")
            .next("give no host for this machine, one for all replicas, or one for each")),
        }
    }

    fn clients(&self, cluster: Cluster) -> Result<Vec<SocketAddr>, NodeError> {
        let (hosts, count) = (&self.client_hosts, usize::from(self.clients));
        if hosts.len() > 1 && hosts.len() != count {
            let what = format!("{} hosts for {count} clients", hosts.len());
            return Err(NodeError::new(NodeErrorKind::Rule, what)
                .at("--client-host")
                .next("give one host for all clients, or one for each"));
        }
        let first = self.hosts.first().and_then(|host| host.port).unwrap_or(PORT);
        let n = u16::try_from(cluster.n()).unwrap_or(u16::MAX);
        let port = |number: u16| first.saturating_add(n.max(10)).saturating_add(number);
        let of = |hosts: &[Host], number: u16| hosts.get(usize::from(number)).or(hosts.first()).copied();
        let address = |number: u16| match of(hosts, number) {
            // One port is the first of several.
            Some(Host { ip, port: Some(first) }) if hosts.len() == 1 => {
                SocketAddr::new(ip, first.saturating_add(number))
            }
            Some(host) => SocketAddr::new(host.ip, host.port.unwrap_or_else(|| port(number))),
            None => {
                let ip = of(&self.hosts, number).map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |host| host.ip);
                SocketAddr::new(ip, port(number))
            }
        };
        Ok((0..self.clients).map(address).collect())
    }

    fn write(
        &self,
        draft: &Path,
        cluster: Cluster,
        replicas: &[SocketAddr],
        clients: &[SocketAddr],
    ) -> Result<(), NodeError> {
        make_dir(draft)?;
        let mut members = Members {
            cluster,
            drawn: Some(secret::entropy()?),
            replicas: Vec::new(),
            clients: BTreeMap::new(),
            administrators: administrators(self.clients),
            added: BTreeMap::new(),
            settings: shared_section(&self.given()),
        };
        for id in cluster.replicas() {
            make_private_dir(&replica_dir(draft, id))?;
            let keys = replica_dir(draft, id).join("keys");
            make_private_dir(&keys)?;
            members.replicas.push(secret::create(&keys.join("replica.key"))?);
        }
        for number in 0..self.clients {
            make_private_dir(&client_dir(draft, u64::from(number)))?;
            let keys = client_dir(draft, u64::from(number)).join("keys");
            make_private_dir(&keys)?;
            members.clients.insert(u64::from(number), secret::create(&keys.join("client.key"))?);
        }
        let text = members.text();
        let mut chosen = self.chosen.clone();
        chosen.retain(|(key, _)| !is_shared(key));
        let mut settings =
            Settings::new(cluster, members.cluster_id(), SocketAddr::from(([0; 4], 0)), replicas.to_vec());
        settings.clients = (0..).zip(clients.iter().copied()).collect();
        let addresses = cluster.replicas().map(Principal::from).zip(replicas);
        let all = addresses.chain((0..).map(client_identity).zip(clients));
        for (own, address) in all {
            settings.listen = *address;
            let (dir, title) = match own {
                Principal::Replica(id) => {
                    let title = format!("replica {} of {} (f = {})", id.0, cluster.n(), self.f);
                    (replica_dir(draft, id), title)
                }
                Principal::Client(id) => {
                    let number = id.principal() - 1;
                    let title = format!("client {number} of a cluster of {} replicas", cluster.n());
                    (client_dir(draft, number), title)
                }
            };
            write_file(&dir.join("node.toml"), &settings.example(own, &title, &chosen))?;
            write_file(&dir.join("cluster.toml"), &text)?;
            if let Principal::Replica(id) = own {
                storage::create(&dir, members.cluster_id(), id)?;
            }
        }
        Ok(())
    }
}

/// Sees that every node has a place of its own.
fn check_places(replicas: &[SocketAddr], clients: &[SocketAddr]) -> Result<(), NodeError> {
    let mut seen = BTreeSet::new();
    let twice = replicas.iter().chain(clients).find(|address| address.port() == 0 || !seen.insert(**address));
    let Some(address) = twice else { return Ok(()) };
    let what = if address.port() == 0 {
        "port 0 is none".to_owned()
    } else {
        format!("two nodes would be at {address}: ports end at {}", u16::MAX)
    };
    Err(NodeError::new(NodeErrorKind::Rule, what)
        .at("--host")
        .next("choose a lower first port, such as 7000, or other hosts"))
}

/// Returns the directory of a replica.
pub fn replica_dir(dir: &Path, id: ReplicaId) -> PathBuf {
    dir.join(format!("replica-{}", id.0))
}

/// Returns the directory of a client.
pub fn client_dir(dir: &Path, number: u64) -> PathBuf {
    dir.join(client_name(number))
}

/// Returns the draft of a directory, which only this process uses, and removes those of interrupted attempts: their keys
/// were never used.
pub fn draft_of(dir: &Path) -> PathBuf {
    let name = dir.file_name().map_or_else(|| "cluster".into(), std::ffi::OsStr::to_string_lossy);
    let (begin, own) = (format!(".{name}.new-"), std::process::id());
    for path in fs::read_dir(parent_of(dir)).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let process = name.and_then(|name| name.strip_prefix(&begin)?.parse::<u32>().ok());
        if process.is_some_and(|id| id == own || !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
    dir.with_file_name(format!("{begin}{own}"))
}

/// Gives a complete draft its name, unless there is something by this name. A loss of power does not undo it.
///
/// # Errors
///
/// A directory cannot be written.
pub fn install(draft: &Path, dir: &Path) -> Result<(), NodeError> {
    sync_names(draft)?;
    let is_new = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let moved = fs::remove_dir(dir).or_else(|error| if is_new(&error) { Ok(()) } else { Err(error) });
    let moved = moved.and_then(|()| fs::rename(draft, dir)).and_then(|()| sync_dir(parent_of(dir)));
    moved.map_err(|error| {
        let trouble = NodeError::unwritable(dir, &error);
        if error.kind() == std::io::ErrorKind::ResourceBusy {
            // A mount point cannot be replaced.
            return trouble
                .next(format!("choose a new directory below it, such as {}/cluster", dir.display()));
        }
        trouble
    })
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_dir(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a directory, and those above it that are missing.
fn make_parents(path: &Path) -> Result<(), NodeError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = parent_of(path);
    make_parents(parent)?;
    make_dir(path)?;
    sync_dir(parent).map_err(|error| NodeError::unwritable(parent, &error))
}

fn make_dir(path: &Path) -> Result<(), NodeError> {
    fs::create_dir_all(path)
        .map_err(|error| NodeError::unwritable(path, &error).next("choose a writable directory with --dir"))
}

pub(crate) fn make_private_dir(path: &Path) -> Result<(), NodeError> {
    make_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(|error| NodeError::unwritable(path, &error))
}

/// Writes a file of a new node, and waits until it is durable.
///
/// # Errors
///
/// It cannot be written.
pub fn write_file(path: &Path, text: &str) -> Result<(), NodeError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| NodeError::unwritable(path, &error))
}

/// Makes the names in a directory, and in those below it, survive a loss of power.
fn sync_names(dir: &Path) -> Result<(), NodeError> {
    let names = || {
        let below = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
        sync_dir(dir)?;
        Ok(below)
    };
    let below = names().map_err(|error| NodeError::unwritable(dir, &error))?;
    below.iter().map(fs::DirEntry::path).filter(|path| path.is_dir()).try_for_each(|path| sync_names(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    /// What a node needs to start is on disk before anything depends on it. What is written to this device cannot be
    /// synced.
    #[test]
    fn a_file_of_a_new_node_is_synced() {
        assert!(write_file(Path::new("/dev/null"), "text").is_err());
    }

    /// Processes that create one directory at the same time do not write into each other's draft. The draft of a process
    /// that was killed does not stay.
    #[test]
    fn each_process_has_a_draft_of_its_own() {
        let dir = TempDir::new("drafts");
        let left = |process: u32| dir.path().join(format!(".c.new-{process}/keys"));
        // The first process, and one that cannot exist.
        let (runs, ended) = (left(1), left(u32::MAX));
        fs::create_dir_all(&runs).unwrap();
        fs::create_dir_all(&ended).unwrap();
        NewCluster::local(1).make(&dir.path().join("c")).unwrap();
        assert!(runs.exists() && !ended.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    /// A port that is none, and ports that two nodes would share, are told before anything is made.
    #[test]
    fn every_node_has_a_port_of_its_own() {
        let dir = TempDir::new("init");
        let make = |hosts: &[&str], clients| {
            let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
            let cluster = NewCluster { hosts, clients, ..NewCluster::local(1) };
            cluster.make(&dir.path().join("c")).map(|made| made.replicas.len())
        };
        for hosts in
            [&["127.0.0.1:0"][..], &["127.0.0.1:65533"], &["127.0.0.1:7000"; 4], &["127.0.0.1:65520"]]
        {
            let trouble = make(hosts, 10).unwrap_err();
            assert_eq!(trouble.kind, NodeErrorKind::Rule, "{hosts:?}: {trouble}");
        }
        assert!(make(&["127.0.0.1:7000"], u16::MAX).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(make(&["127.0.0.1:65520"], 4), Ok(4));
    }

    /// Clients are where replicas are, or on machines of their own; names and IPv6 addresses are machines, too.
    #[test]
    fn clients_have_machines() {
        let clients = |hosts: &[&str], count| {
            let client_hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
            let cluster = NewCluster { client_hosts, clients: count, ..NewCluster::local(1) };
            let addresses = cluster.clients(Cluster::tolerating(1).unwrap()).ok()?;
            Some(addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(clients(&[], 2), said("127.0.0.1:7010 127.0.0.1:7011"));
        assert_eq!(clients(&["10.0.0.9"], 2), said("10.0.0.9:7010 10.0.0.9:7011"));
        assert_eq!(clients(&["[fd00::9]:80"], 2), said("[fd00::9]:80 [fd00::9]:81"));
        assert_eq!(clients(&["10.0.0.8", "10.0.0.9:80"], 2), said("10.0.0.8:7010 10.0.0.9:80"));
        assert_eq!(clients(&["10.0.0.8", "10.0.0.9"], 3), None);
        let host: Host = "localhost:7100".parse().unwrap();
        assert!(host.ip.is_loopback() && host.port == Some(7100));
        assert_eq!("localhost".parse::<Host>().unwrap().port, None);
        assert_eq!("::1".parse::<Host>().unwrap().address().to_string(), "[::1]:7000");
        for text in ["no.such.invalid", "7000", "10.0.1", "10.0.1:7000"] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
    }

    /// M7: the clients that `up` runs its gateways, its status page and its mounts as are 0, 1 and 4.
    #[test]
    fn m7_gateways_are_no_administrators() {
        assert_eq!(administrators(0), BTreeSet::new());
        assert_eq!(administrators(1), [0].into(), "somebody has to be");
        assert_eq!(administrators(2), [1].into());
        for clients in [3, 4, 5, 100, u16::MAX] {
            let administrators = administrators(clients);
            assert!(
                !administrators.is_empty() && administrators.iter().all(|number| [2, 3].contains(number))
            );
        }
    }
}
